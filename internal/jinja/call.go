package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// builtin is a filter, test, method or global function. Parameters are bound by position or name before fn runs; what
// a call leaves out is missing.
type builtin struct {
	name   string
	params []string
	need   int  // how many parameters have no default
	rest   bool // takes any further arguments
	fn     func(e *exec, self any, a call) any
}

func (b *builtin) takesNone() bool { return len(b.params) == 0 && !b.rest }

// kwarg is an argument given by name.
type kwarg struct {
	name string
	v    any
}

// arguments as a call gives them.
type arguments struct {
	pos []any
	kw  []kwarg
}

// call is what a builtin's function sees. Its slices are valid during the call only.
type call struct {
	name string
	p    []any // one per parameter
	rest []any
	kw   []kwarg
}

func (c call) has(i int) bool { return c.p[i] != missing }

// str, num and flag read a parameter with a default.

func (c call) str(e *exec, i int, def string) string {
	if c.p[i] == missing || c.p[i] == nil {
		return def
	}
	return e.wantString(c.p[i], "argument of "+c.name)
}

func (c call) num(e *exec, i, def int) int {
	if c.p[i] == missing || c.p[i] == nil {
		return def
	}
	return e.wantInt(c.p[i], "argument of "+c.name)
}

func (c call) flag(e *exec, i int, def bool) bool {
	if c.p[i] == missing {
		return def
	}
	return e.truth(c.p[i])
}

// eval evaluates arguments onto the stack; the caller drops them.
func (c *callArgs) eval(e *exec) arguments {
	if c == noArgs {
		return arguments{}
	}
	base := len(e.stack)
	for _, x := range c.pos {
		v := x.eval(e)
		e.stack = append(e.stack, v)
	}
	var a arguments
	if len(c.kw) > 0 || c.dstar != nil {
		a.kw = make([]kwarg, 0, len(c.kw))
	}
	for _, k := range c.kw {
		a.kw = append(a.kw, kwarg{k.name, k.x.eval(e)})
	}
	if c.star != nil {
		for _, v := range e.items(c.star.eval(e)) {
			e.buildCells(1)
			e.stack = append(e.stack, e.entry(v))
		}
	}
	if c.dstar != nil {
		d := c.dstar.eval(e)
		if !isDict(d) {
			e.fail("argument after ** must be a dict, not '" + typeName(d) + "'")
		}
		for i := range dictLen(d) {
			e.buildCells(2)
			k, v := e.dictAt(d, i)
			a.kw = append(a.kw, kwarg{e.wantString(k, "keyword"), v})
		}
	}
	a.pos = e.stack[base:len(e.stack):len(e.stack)]
	return a
}

// invoke binds arguments and runs a builtin.
func (e *exec) invoke(b *builtin, self any, a arguments) any {
	c := call{name: b.name}
	base := len(e.stack)
	for range b.params {
		e.stack = append(e.stack, missing)
	}
	c.p = e.stack[base:len(e.stack):len(e.stack)]
	n := copy(c.p, a.pos)
	if n < len(a.pos) {
		if !b.rest {
			e.fail(fmt.Sprintf("%s takes at most %d arguments, %d given", b.name, len(b.params), len(a.pos)))
		}
		c.rest = a.pos[n:]
	}
	for i, k := range a.kw {
		j := slices.Index(b.params, k.name)
		switch {
		case j >= 0 && c.p[j] == missing:
			c.p[j] = k.v
		case j >= 0:
			e.fail(b.name + " got several values for argument " + k.name)
		case b.rest:
			if c.kw == nil {
				c.kw = make([]kwarg, 0, len(a.kw)-i)
			}
			c.kw = append(c.kw, k)
		default:
			e.fail(b.name + " takes no argument named " + k.name)
		}
	}
	for i := range b.need {
		if c.p[i] == missing {
			e.fail(b.name + " needs an argument " + b.params[i])
		}
	}
	v := b.fn(e, self, c)
	e.stack = e.stack[:base]
	return v
}

func (x *callExpr) eval(e *exec) any { return x.invoke(e, nil) }

// invoke calls; caller is the block of a call statement.
func (x *callExpr) invoke(e *exec, caller *macro) any {
	var self any
	var fn *builtin
	var f any
	if at, ok := x.fn.(*attrExpr); ok { // a method, without the value that stands for it
		self = at.x.eval(e)
		e.at = at.at
		e.step(1)
		if fn = e.lib.methodOf(self, at.name); fn == nil {
			f = e.getAttr(self, at.name)
		}
	} else {
		f = x.fn.eval(e)
	}
	base := len(e.stack)
	a := x.args.eval(e)
	e.at = x.at
	e.step(1)
	if caller != nil {
		a.kw = append(a.kw, kwarg{"caller", caller})
	}
	var v any
	if fn != nil {
		v = e.invoke(fn, self, a)
	} else {
		v = e.callValue(f, a)
	}
	e.drop(base)
	return v
}

// callValue calls any value.
func (e *exec) callValue(f any, a arguments) any {
	switch f := f.(type) {
	case *macro:
		return f.call(e, a)
	case *builtin:
		return e.invoke(f, nil, a)
	case *method:
		return e.invoke(f.fn, f.self, a)
	case *loop:
		return f.recurse(e, a)
	case *cycler:
		return f.next()
	case *joiner:
		return f.next()
	case *undefined:
		e.undefinedUse(f)
	}
	e.fail("'" + typeName(f) + "' object is not callable")
	return nil
}

// macro is a macro with the scope it was defined in.
type macro struct {
	def   *macroDef
	frame *frame
}

func (m *macro) call(e *exec, a arguments) any {
	d := m.def
	at := e.at
	e.enter()
	e.step(len(d.params) + 1)
	back := e.frame
	f := e.push(m.frame)
	bound := min(len(a.pos), len(d.params))
	for i := range bound {
		f.vars = append(f.vars, binding{d.params[i], a.pos[i]})
	}
	var extra []kwarg
	for _, k := range a.kw {
		if i := slices.Index(d.names, k.name); i >= 0 {
			if i < bound {
				e.fail("macro " + d.name + " got several values for argument " + k.name)
			}
			f.set(d.params[i], k.v)
			continue
		}
		if k.name == "caller" && d.caller {
			f.set(idCaller, k.v)
			continue
		}
		extra = append(extra, k)
	}
	for i := bound; i < len(d.params); i++ {
		if _, ok := f.own(d.params[i]); ok {
			continue
		}
		if j := i - (len(d.params) - len(d.defaults)); j >= 0 {
			f.set(d.params[i], d.defaults[j].eval(e))
			continue
		}
		f.set(d.params[i], &undefined{msg: "parameter '" + d.names[i] + "' was not provided"})
	}
	m.surplus(e, f, a.pos[bound:], extra)
	e.at = at
	v, _ := e.captureIn(d.body)
	e.pop(f, back)
	e.leave()
	return v
}

// surplus hands over or refuses what goes beyond the parameters.
func (m *macro) surplus(e *exec, f *frame, pos []any, kw []kwarg) {
	d := m.def
	if d.varargs {
		f.set(idVarargs, tuple(slices.Clone(pos)))
	} else if len(pos) > 0 {
		e.fail(fmt.Sprintf("macro %s takes not more than %d arguments", d.name, len(d.params)))
	}
	if d.kwargs {
		f.set(idKwargs, e.newDict(nil, kw))
	} else if len(kw) > 0 {
		e.fail("macro " + d.name + " takes no keyword argument " + kw[0].name)
	}
}

func (f *frame) own(id int32) (any, bool) {
	for i := range f.vars {
		if f.vars[i].id == id {
			return f.vars[i].v, true
		}
	}
	return nil, false
}

func (m *macro) attr(name string) (any, bool) {
	switch name {
	case "name":
		return m.def.name, true
	case "arguments":
		var names tuple
		for _, n := range m.def.names {
			names = append(names, n)
		}
		return names, true
	case "catch_varargs":
		return m.def.varargs, true
	case "catch_kwargs":
		return m.def.kwargs, true
	case "caller":
		return m.def.caller, true
	}
	return nil, false
}

// spec is a line of a table of builtins: "name param param=" where "=" marks a parameter with a default and a last
// "*" takes any further arguments.
func spec(line string, fn func(e *exec, self any, a call) any) *builtin {
	words := strings.Fields(line)
	b := &builtin{name: words[0], fn: fn}
	for _, w := range words[1:] {
		if w == "*" {
			b.rest = true
			continue
		}
		name, optional := strings.CutSuffix(w, "=")
		b.params = append(b.params, name)
		if !optional {
			b.need = len(b.params)
		}
	}
	return b
}
