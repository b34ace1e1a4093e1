package jinja

// statement parses what follows {%, up to and including its end.
func (p *parser) statement() stmt {
	t := p.wantName()
	switch t.val {
	case "if":
		return p.ifStatement(t.at)
	case "for":
		return p.forStatement(t.at)
	case "set":
		return p.setStatement(t.at)
	case "macro":
		return p.macroStatement(t.at)
	case "call":
		return p.callStatement(t.at)
	case "filter":
		f := p.filters(nil)
		p.wantEnd()
		p.push()
		defer p.pop()
		return &filterStmt{t.at, f, p.body(t.at, "endfilter")}
	case "with":
		return p.withStatement(t.at)
	case "generation":
		p.wantEnd()
		p.push()
		defer p.pop()
		return &scopeStmt{p.body(t.at, "endgeneration")}
	case "do":
		x := p.tuple(false, true)
		p.wantEnd()
		return &doStmt{t.at, x}
	case "break", "continue":
		if p.loops == 0 {
			p.failAt(t.at, t.val+" outside of a loop")
		}
		p.wantEnd()
		if t.val == "break" {
			return breakStmt{}
		}
		return continueStmt{}
	case "include", "import", "from", "extends", "block":
		p.failAt(t.at, "tag "+t.val+" is not supported: a template has no access to files or other templates")
	}
	p.failAt(t.at, "unknown tag "+t.val)
	return nil
}

func (p *parser) ifStatement(open pos) stmt {
	s := &ifStmt{}
	for {
		s.at = append(s.at, p.cur().at)
		s.conds = append(s.conds, p.tuple(false, false))
		p.wantEnd()
		s.bodies = append(s.bodies, p.block())
		switch p.endTag(open, "elif", "else", "endif") {
		case "elif":
			continue
		case "else":
			p.wantEnd()
			s.other = p.body(open, "endif")
			return s
		}
		p.wantEnd()
		return s
	}
}

func (p *parser) forStatement(open pos) stmt {
	s := &forStmt{at: open, target: p.targets()}
	if !p.skipName("in") {
		p.fail("expected in, found " + p.describe())
	}
	s.iter = p.tuple(false, false)
	p.push()
	p.bindTarget(s.target)
	if p.skipName("if") {
		s.cond = p.expression()
	}
	s.recursive = p.skipName("recursive")
	p.wantEnd()
	p.bind(idLoop)
	p.loops++
	s.body = p.block()
	p.loops--
	p.pop()
	tag := p.endTag(open, "else", "endfor")
	p.wantEnd()
	if tag == "else" {
		p.push()
		s.other = p.body(open, "endfor")
		p.pop()
	}
	return s
}

// targets parses "a", "a, b" or "(a, b)".
func (p *parser) targets() target {
	first := p.oneTarget()
	if !p.isOp(",") {
		return first
	}
	t := target{at: first.at, tuple: []target{first}}
	for p.skipOp(",") {
		if p.cur().kind != tokName && !p.isOp("(") || p.isName("in") {
			break
		}
		t.tuple = append(t.tuple, p.oneTarget())
	}
	return t
}

func (p *parser) oneTarget() target {
	if p.isOp("(") {
		at := p.next().at
		p.enter()
		defer p.leave()
		t := p.targets()
		p.wantOp(")")
		if t.tuple == nil {
			t = target{at: at, tuple: []target{t}}
		}
		return t
	}
	n := p.wantName()
	if constNames[n.val] {
		p.failAt(n.at, "cannot assign to "+n.val)
	}
	return target{at: n.at, id: p.id(n.val)}
}

var constNames = map[string]bool{"true": true, "false": true, "none": true, "True": true, "False": true, "None": true}

func (p *parser) setStatement(open pos) stmt {
	var t target
	if n := p.ahead(); p.cur().kind == tokName && n.kind == tokOp && n.val == "." {
		name := p.next()
		p.next()
		t = target{at: name.at, id: p.read(name.val), attr: p.wantName().val}
	} else {
		t = p.targets()
	}
	if p.skipOp("=") {
		s := &setStmt{open, t, p.tuple(false, true)}
		p.wantEnd()
		p.bindTarget(t)
		return s
	}
	if t.tuple != nil {
		p.fail("expected =, found " + p.describe())
	}
	var f []*filterExpr
	if p.isOp("|") {
		p.next()
		f = p.filters(nil)
	}
	p.wantEnd()
	p.push()
	body := p.body(open, "endset")
	p.pop()
	p.bindTarget(t)
	return &setBlockStmt{open, t, f, body}
}

// filters parses "name(args) | name ..." of a filter or set block.
func (p *parser) filters(f []*filterExpr) []*filterExpr {
	for {
		f = append(f, p.filter(nil))
		if len(f) > p.opts.Limits.Depth {
			p.tooDeep(p.cur().at)
		}
		if !p.skipOp("|") {
			return f
		}
	}
}

// beginMacro opens a macro's scope; the loop around does not reach into it.
func (p *parser) beginMacro(m *macroDef) (outerLoops int) {
	p.push()
	outerLoops, p.loops = p.loops, 0
	p.macros = append(p.macros, m)
	for _, id := range []int32{idCaller, idVarargs, idKwargs} {
		p.bind(id)
	}
	return outerLoops
}

func (p *parser) endMacro(outerLoops int) {
	p.macros = p.macros[:len(p.macros)-1]
	p.loops = outerLoops
	p.pop()
}

// params parses "(a, b=1)" into m.
func (p *parser) params(m *macroDef) {
	p.wantOp("(")
	for !p.isOp(")") {
		if len(m.params) > 0 {
			p.wantOp(",")
			if p.isOp(")") {
				break
			}
		}
		n := p.wantName()
		if p.skipOp("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.failAt(n.at, "parameter "+n.val+" without a default stands behind one with a default")
		}
		m.params = append(m.params, p.id(n.val))
		m.names = append(m.names, n.val)
		p.bind(p.id(n.val))
	}
	p.wantOp(")")
}

func (p *parser) macroStatement(open pos) stmt {
	n := p.wantName()
	m := &macroDef{name: n.val}
	id := p.id(n.val)
	p.bind(id) // before the body, which may call it
	outer := p.beginMacro(m)
	p.params(m)
	p.wantEnd()
	m.body = p.body(open, "endmacro")
	p.endMacro(outer)
	return &macroStmt{open, id, m}
}

func (p *parser) callStatement(open pos) stmt {
	m := &macroDef{name: "caller"}
	outer := p.beginMacro(m)
	if p.isOp("(") {
		p.params(m)
	}
	at := p.cur().at
	p.macros = p.macros[:len(p.macros)-1] // the call itself belongs to the outside
	call, ok := p.expression().(*callExpr)
	p.macros = append(p.macros, m)
	if !ok {
		p.failAt(at, "expected a call of a macro")
	}
	p.wantEnd()
	m.body = p.body(open, "endcall")
	p.endMacro(outer)
	return &callBlockStmt{open, call, m}
}

func (p *parser) withStatement(open pos) stmt {
	s := &withStmt{}
	for p.cur().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			p.wantOp(",")
		}
		s.targets = append(s.targets, p.oneTarget())
		p.wantOp("=")
		s.values = append(s.values, p.expression())
	}
	p.wantEnd()
	p.push()
	defer p.pop()
	for _, t := range s.targets {
		p.bindTarget(t)
	}
	s.body = p.body(open, "endwith")
	return s
}
