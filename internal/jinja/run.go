package jinja

import "fmt"

func (b block) run(e *exec) signal {
	for _, s := range b {
		if sig := s.run(e); sig != next {
			return sig
		}
	}
	return next
}

func (s *textStmt) run(e *exec) signal {
	e.step(1)
	e.room(len(s.s))
	e.out.literal(s.s)
	return next
}

func (s *outStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	e.emit(s.x)
	return next
}

// emit prints an expression. Chains of strings and conditions go piece by piece, without the string in between.
func (e *exec) emit(x expr) {
	switch x := x.(type) {
	case *condExpr:
		e.step(1)
		if e.truth(x.cond.eval(e)) {
			e.emit(x.x)
		} else if x.y != nil {
			e.emit(x.y)
		} else {
			e.toText(x.noElse())
		}
		return
	case *chainExpr:
		base := len(e.stack)
		if v, joined := x.collect(e); joined {
			for _, v := range e.stack[base:] {
				e.write(e.toText(v))
			}
		} else {
			e.write(e.toText(v))
		}
		e.drop(base)
		return
	}
	v := x.eval(e)
	e.write(e.textFrom(x, v))
}

// drop takes the values above base off the stack.
func (e *exec) drop(base int) {
	clear(e.stack[base:])
	e.stack = e.stack[:base]
}

func (s *ifStmt) run(e *exec) signal {
	for i, c := range s.conds {
		e.at = s.at[i]
		e.step(1)
		if e.truth(c.eval(e)) {
			return s.bodies[i].run(e)
		}
	}
	return s.other.run(e)
}

func (s *forStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	s.loop(e, s.iter.eval(e), nil)
	return next
}

// loop runs the body over a sequence; outer is the loop that called itself with loop(...).
func (s *forStmt) loop(e *exec, seq any, outer *loop) {
	e.at = s.at
	l := &loop{stmt: s, frame: e.frame, caller: outer}
	if outer != nil {
		l.frame, l.depth = outer.frame, outer.depth+1
	}
	if r, ok := seq.(*rangeValue); ok && s.cond == nil {
		l.r, l.n = r, r.n
	} else {
		l.items = e.items(seq)
		if s.cond != nil {
			l.items = s.filtered(e, l.items, l.frame)
		}
		l.n = len(l.items)
	}
	if l.n == 0 {
		if s.other != nil {
			back := e.frame
			f := e.push(l.frame)
			s.other.run(e)
			e.pop(f, back)
		}
		return
	}
	if s.recursive {
		l.frame.capture() // the loop may be called where this scope is long closed
	}
	back := e.frame
	f := e.push(l.frame)
	for ; l.i < l.n; l.i++ {
		e.step(1)
		clear(f.vars)
		f.vars = append(f.vars[:0], binding{idLoop, l})
		e.frame = f
		e.bind(s.target, l.item(e, l.i))
		if s.body.run(e) == stopLoop {
			break
		}
		if f.captured { // a macro of this round keeps its variables
			f = e.push(l.frame)
		}
	}
	e.pop(f, back)
}

func (s *forStmt) filtered(e *exec, items []any, parent *frame) []any {
	back := e.frame
	f := e.push(parent)
	e.buildCells(len(items))
	var keep []any
	for _, it := range items {
		e.step(1)
		e.bind(s.target, e.entry(it))
		if e.truth(s.cond.eval(e)) {
			keep = append(keep, it)
		}
	}
	e.pop(f, back)
	return keep
}

// bind assigns to a target in the current scope.
func (e *exec) bind(t target, v any) {
	switch {
	case t.tuple != nil:
		e.at = t.at
		if !iterable(v) {
			e.fail("cannot unpack '" + typeName(v) + "' object")
		}
		items := e.items(v)
		if len(items) != len(t.tuple) {
			e.fail(fmt.Sprintf("cannot unpack %d values into %d names", len(items), len(t.tuple)))
		}
		for i, part := range t.tuple {
			e.bind(part, e.entry(items[i]))
		}
	case t.attr != "":
		e.at = t.at
		ns, _ := e.lookup(t.id)
		n, ok := ns.(*namespace)
		if !ok {
			e.fail("cannot assign attribute on non-namespace object: use namespace()")
		}
		n.d.set(e, t.attr, v)
	default:
		e.frame.set(t.id, v)
	}
}

func (s *setStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	e.bind(s.target, s.x.eval(e))
	return next
}

// scoped runs a body in a scope of its own.
func (e *exec) scoped(b block) signal {
	back := e.frame
	f := e.push(back)
	sig := b.run(e)
	e.pop(f, back)
	return sig
}

func (e *exec) applyFilters(filters []*filterExpr, v any) any {
	for _, f := range filters {
		v = f.apply(e, v)
	}
	return v
}

func (s *setBlockStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	v, sig := e.capture(s.body)
	if sig != next {
		return sig // break and continue leave what was collected
	}
	e.bind(s.target, e.applyFilters(s.filters, v))
	return next
}

func (s *filterStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	v, sig := e.capture(s.body)
	if sig != next {
		return sig
	}
	e.write(e.toText(e.applyFilters(s.filters, v)))
	return next
}

func (s *withStmt) run(e *exec) signal {
	e.step(1)
	base := len(e.stack)
	for _, x := range s.values { // all in the scope outside
		v := x.eval(e)
		e.stack = append(e.stack, v)
	}
	back := e.frame
	f := e.push(back)
	for i, t := range s.targets {
		e.bind(t, e.stack[base+i])
	}
	e.drop(base)
	sig := s.body.run(e)
	e.pop(f, back)
	return sig
}

func (s *scopeStmt) run(e *exec) signal {
	e.step(1)
	return e.scoped(s.body)
}

func (s *doStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	s.x.eval(e)
	return next
}

func (breakStmt) run(*exec) signal    { return stopLoop }
func (continueStmt) run(*exec) signal { return nextItem }

func (s *macroStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	e.frame.set(s.id, &macro{def: s.macro, frame: e.frame.capture()})
	return next
}

func (s *callBlockStmt) run(e *exec) signal {
	e.at = s.at
	e.step(1)
	caller := &macro{def: s.caller, frame: e.frame.capture()}
	e.write(e.toText(s.call.invoke(e, caller)))
	return next
}
