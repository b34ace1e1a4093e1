package jinja

// The grammar is Jinja2's, from weakest to strongest: if-else, or, and, not, comparisons, + and -, ~, * / // %, **,
// unary, then postfixes, filters and tests. Chains are loops here, so that only nesting costs stack, and every
// expression's height is bounded, so that evaluation cannot run away either.

func (p *parser) expression() expr {
	p.enter()
	defer p.leave()
	at := p.cur().at
	x := p.or()
	for p.skipName("if") {
		h := p.height
		c := &condExpr{at: at, x: x, cond: p.or()}
		p.grow(h, p.height)
		if p.skipName("else") {
			h = p.height
			c.y = p.expression()
			p.grow(h, p.height)
		}
		x = c
	}
	return x
}

// tuple parses expressions divided by commas: one without a comma is itself, else they form a tuple. Without
// conditions, "if" is left to the statement around.
func (p *parser) tuple(parens, conditions bool) expr {
	at := p.cur().at
	var items []expr
	h, isTuple := 0, false
	for {
		if len(items) > 0 && !isTuple {
			break
		}
		if k := p.cur(); k.kind == tokVarEnd || k.kind == tokBlockEnd || p.isOp(")") || p.isName("in") {
			break
		}
		if conditions {
			items = append(items, p.expression())
		} else {
			items = append(items, p.or())
		}
		h = max(h, p.height)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if isTuple || len(items) == 0 && parens {
		p.grow(h)
		return &listExpr{at, items, true}
	}
	if len(items) == 0 {
		p.fail("expected an expression, found " + p.describe())
	}
	return items[0]
}

func (p *parser) or() expr  { return p.logic("or", p.and) }
func (p *parser) and() expr { return p.logic("and", p.not) }

func (p *parser) logic(word string, operand func() expr) expr {
	at := p.cur().at
	x := operand()
	if !p.isName(word) {
		return x
	}
	l := &logicExpr{at, word == "and", []expr{x}}
	h := p.height
	for p.skipName(word) {
		l.terms = append(l.terms, operand())
		h = max(h, p.height)
	}
	p.grow(h)
	return l
}

func (p *parser) not() expr {
	if t := p.cur(); p.skipName("not") {
		p.enter()
		defer p.leave()
		x := p.not()
		p.grow(p.height)
		return &notExpr{t.at, x}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	at := p.cur().at
	x := p.sum()
	var c *compareExpr
	h := p.height
	for {
		t := p.cur()
		op := ""
		switch {
		case t.kind == tokOp && (t.val == "==" || t.val == "!=" || t.val == "<" || t.val == "<=" || t.val == ">" || t.val == ">="):
			op = t.val
		case p.isName("in"):
			op = "in"
		case p.isName("not") && p.ahead().kind == tokName && p.ahead().val == "in":
			op = "not in"
			p.next()
		}
		if op == "" {
			if c == nil {
				return x
			}
			p.grow(h)
			return c
		}
		p.next()
		if c == nil {
			c = &compareExpr{at: at, first: x}
		}
		c.rest = append(c.rest, comparison{t.at, op, p.sum()})
		h = max(h, p.height)
	}
}

func (p *parser) sum() expr {
	return p.chain(p.concat, func() bool { return p.isOp("+") || p.isOp("-") })
}

func (p *parser) concat() expr { return p.chain(p.product, func() bool { return p.isOp("~") }) }

func (p *parser) chain(operand func() expr, isOp func() bool) expr {
	x := operand()
	if !isOp() {
		return x
	}
	h := p.height
	c := &chainExpr{at: p.cur().at, terms: []expr{x}}
	for isOp() {
		t := p.next()
		c.ops = append(c.ops, chainOp{t.val[0], t.at})
		c.terms = append(c.terms, operand())
		h = max(h, p.height)
	}
	p.grow(h)
	return c
}

func (p *parser) product() expr {
	return p.math(p.power, func() bool { return p.isOp("*") || p.isOp("/") || p.isOp("//") || p.isOp("%") })
}

func (p *parser) power() expr {
	return p.math(func() expr { return p.unary(true) }, func() bool { return p.isOp("**") })
}

func (p *parser) math(operand func() expr, isOp func() bool) expr {
	x := operand()
	for isOp() {
		t := p.next()
		h := p.height
		x = &mathExpr{t.at, t.val, x, operand()}
		p.grow(h, p.height)
	}
	return x
}

func (p *parser) unary(withFilter bool) expr {
	t := p.cur()
	var x expr
	if p.isOp("-") || p.isOp("+") {
		p.next()
		p.enter()
		x = &unaryExpr{t.at, t.val == "-", p.unary(false)}
		p.leave()
		p.grow(p.height)
	} else {
		x = p.primary()
	}
	x = p.postfix(x)
	if withFilter {
		x = p.filtersAndTests(x)
	}
	return x
}

func (p *parser) primary() expr {
	t := p.cur()
	p.height = 1
	switch t.kind {
	case tokName:
		p.next()
		switch t.val {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		return &nameExpr{t.at, p.read(t.val)}
	case tokString:
		s := p.next().val
		for p.cur().kind == tokString {
			s += p.next().val
			if len(s) > p.opts.Limits.Source { // cannot be: each piece stands in the source
				p.fail("string is too long")
			}
		}
		p.words[s] = true
		return &constExpr{Literal(s)}
	case tokNumber:
		p.next()
		return &constExpr{t.num}
	case tokOp:
		switch t.val {
		case "(":
			p.next()
			p.enter()
			x := p.tuple(true, true)
			p.leave()
			p.wantOp(")")
			return x
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.fail("expected an expression, found " + p.describe())
	return nil
}

func (p *parser) list() expr {
	l := &listExpr{at: p.next().at}
	h := 0
	for !p.isOp("]") {
		if len(l.items) > 0 {
			p.wantOp(",")
			if p.isOp("]") {
				break
			}
		}
		l.items = append(l.items, p.expression())
		h = max(h, p.height)
	}
	p.wantOp("]")
	p.grow(h)
	return l
}

func (p *parser) dict() expr {
	d := &dictExpr{at: p.next().at}
	h := 0
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.wantOp(",")
			if p.isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		h = max(h, p.height)
		p.wantOp(":")
		d.values = append(d.values, p.expression())
		h = max(h, p.height)
	}
	p.wantOp("}")
	p.grow(h)
	return d
}
