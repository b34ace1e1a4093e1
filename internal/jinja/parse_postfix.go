package jinja

func (p *parser) postfix(x expr) expr {
	for {
		h := p.height
		switch {
		case p.isOp("."):
			at := p.next().at
			switch t := p.cur(); {
			case t.kind == tokName:
				p.words[t.val] = true
				x = &attrExpr{at, x, t.val}
			case t.kind == tokNumber:
				if _, ok := t.num.(float64); ok {
					p.fail("expected a name or an integer after the dot")
				}
				x = &itemExpr{at, x, &constExpr{t.num}}
			default:
				p.fail("expected a name or an integer after the dot, found " + p.describe())
			}
			p.next()
			p.grow(h)
		case p.isOp("["):
			x = p.subscript(x)
			p.grow(h, p.height)
		case p.isOp("("):
			at := p.cur().at
			x = &callExpr{at, x, p.args()}
			p.grow(h, p.height)
		default:
			return x
		}
	}
}

func (p *parser) subscript(x expr) expr {
	at := p.next().at
	p.height = 0
	if p.isOp("]") {
		p.fail("expected an index")
	}
	var lo expr
	if !p.isOp(":") {
		lo = p.expression()
		if p.isOp(",") { // a tuple as key
			l := &listExpr{at: at, items: []expr{lo}, tuple: true}
			h := p.height
			for p.skipOp(",") && !p.isOp("]") {
				l.items = append(l.items, p.expression())
				h = max(h, p.height)
			}
			p.wantOp("]")
			p.grow(h)
			return &itemExpr{at, x, l}
		}
	}
	if p.skipOp("]") {
		return &itemExpr{at, x, lo}
	}
	s := &sliceExpr{at: at, x: x, lo: lo}
	h := p.height
	part := func() expr {
		if !p.skipOp(":") || p.isOp(":") || p.isOp("]") {
			return nil
		}
		y := p.expression()
		h = max(h, p.height)
		return y
	}
	s.hi = part()
	s.steps = part()
	p.wantOp("]")
	p.height = h
	return s
}

func (p *parser) args() *callArgs {
	open := p.wantOp("(").at
	c := &callArgs{}
	h := 0
	for n := 0; !p.isOp(")"); n++ {
		if n > 0 {
			p.wantOp(",")
			if p.isOp(")") {
				break
			}
		}
		switch {
		case p.isOp("*") && c.star == nil && c.dstar == nil:
			p.next()
			c.star = p.expression()
		case p.isOp("**") && c.dstar == nil:
			p.next()
			c.dstar = p.expression()
		case p.cur().kind == tokName && p.ahead().kind == tokOp && p.ahead().val == "=" && c.dstar == nil:
			name := p.next().val
			p.next()
			p.words[name] = true
			c.kw = append(c.kw, kwExpr{name, p.expression()})
		case len(c.kw) == 0 && c.star == nil && c.dstar == nil && !p.isOp("*") && !p.isOp("**"):
			c.pos = append(c.pos, p.expression())
		default:
			p.failAt(open, "arguments stand in the wrong order: first by position, then by name, then * and **")
		}
		h = max(h, p.height)
	}
	p.wantOp(")")
	p.height = h
	return c
}

func (p *parser) filtersAndTests(x expr) expr {
	for {
		switch {
		case p.skipOp("|"):
			x = p.filter(x)
		case p.isName("is"):
			x = p.test(x)
		case p.isOp("("): // calls of what a filter returned
			h := p.height
			at := p.cur().at
			x = &callExpr{at, x, p.args()}
			p.grow(h, p.height)
		default:
			return x
		}
	}
}

func (p *parser) filter(x expr) *filterExpr {
	h := p.height
	t := p.wantName()
	fn := builtins.filters[t.val]
	if fn == nil {
		p.failAt(t.at, "no filter named "+t.val)
	}
	f := &filterExpr{at: t.at, x: x, fn: fn, args: noArgs}
	if t.val == "default" || t.val == "d" {
		p.unread(x, false)
	}
	p.height = 0
	if p.isOp("(") {
		f.args = p.args()
	}
	p.grow(h, p.height)
	return f
}

var noArgs = &callArgs{}

func (p *parser) test(x expr) expr {
	h := p.height
	at := p.next().at
	negate := p.skipName("not")
	t := p.wantName()
	fn := builtins.tests[t.val]
	if fn == nil {
		p.failAt(t.at, "no test named "+t.val)
	}
	if t.val == "defined" || t.val == "undefined" {
		p.unread(x, true)
	}
	n := &testExpr{at: at, x: x, fn: fn, args: noArgs, negate: negate}
	p.height = 0
	switch k := p.cur(); {
	case p.isOp("("):
		n.args = p.args()
	case k.kind == tokName && k.val == "is":
		p.fail("tests cannot be chained: use and")
	case k.kind == tokString, k.kind == tokNumber, p.isOp("["), p.isOp("{"),
		k.kind == tokName && k.val != "else" && k.val != "or" && k.val != "and":
		if k.kind == tokName && fn.takesNone() { // "x is defined if", "x is string in y"
			break
		}
		y := p.postfix(p.primary())
		n.args = &callArgs{pos: []expr{y}}
	}
	p.grow(h, p.height)
	return n
}
