package jinja

import "math/big"

func (x *constExpr) eval(*exec) any { return x.v }

func (x *nameExpr) eval(e *exec) any {
	e.step(1)
	if v, ok := e.lookup(x.id); ok {
		return v
	}
	return &undefined{msg: "'" + e.t.ids[x.id] + "' is undefined"}
}

// evalAll evaluates into a new slice.
func evalAll(e *exec, xs []expr) []any {
	e.buildCells(len(xs))
	out := make([]any, len(xs))
	for i, x := range xs {
		out[i] = x.eval(e)
	}
	return out
}

func (x *listExpr) eval(e *exec) any {
	e.at = x.at
	e.step(1)
	if x.tuple {
		return tuple(evalAll(e, x.items))
	}
	return evalAll(e, x.items)
}

func (x *dictExpr) eval(e *exec) any {
	e.step(1)
	d := &dict{}
	for i, k := range x.keys {
		kv := k.eval(e)
		v := x.values[i].eval(e)
		e.at = x.at
		d.set(e, kv, v)
	}
	return d
}

func (x *attrExpr) eval(e *exec) any {
	v := x.x.eval(e)
	e.at = x.at
	e.step(1)
	return e.getAttr(v, x.name)
}

func (x *itemExpr) eval(e *exec) any {
	v := x.x.eval(e)
	k := x.key.eval(e)
	e.at = x.at
	e.step(1)
	return e.getItem(v, k)
}

func (x *sliceExpr) eval(e *exec) any {
	v := x.x.eval(e)
	var bounds [3]any
	for i, b := range []expr{x.lo, x.hi, x.steps} {
		if b != nil {
			bounds[i] = b.eval(e)
		}
	}
	e.at = x.at
	e.step(1)
	return e.slice(v, bounds[0], bounds[1], bounds[2])
}

func (x *unaryExpr) eval(e *exec) any {
	v := x.x.eval(e)
	e.at = x.at
	e.step(1)
	switch n := intOf(v).(type) {
	case int64:
		if !x.neg {
			return n
		}
		if n != -n || n == 0 {
			return -n
		}
		return normInt(new(big.Int).Neg(big.NewInt(n)))
	case *big.Int:
		if !x.neg {
			return n
		}
		return normInt(new(big.Int).Neg(n))
	case float64:
		if !x.neg {
			return n
		}
		return -n
	case *undefined:
		e.undefinedUse(n)
	}
	sign := "+"
	if x.neg {
		sign = "-"
	}
	e.fail("bad operand type for unary " + sign + ": '" + typeName(v) + "'")
	return nil
}

func (x *notExpr) eval(e *exec) any {
	v := x.x.eval(e)
	e.at = x.at
	e.step(1)
	return !e.truth(v)
}

func (x *logicExpr) eval(e *exec) any {
	var v any
	for i, t := range x.terms {
		v = t.eval(e)
		e.at = x.at
		e.step(1)
		if i < len(x.terms)-1 && e.truth(v) != x.and {
			return v
		}
	}
	return v
}

func (x *compareExpr) eval(e *exec) any {
	left := x.first.eval(e)
	for i := range x.rest {
		c := &x.rest[i]
		right := c.x.eval(e)
		e.at = c.at
		e.step(1)
		if !e.compareOp(c.op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (x *condExpr) eval(e *exec) any {
	c := x.cond.eval(e)
	e.at = x.at
	e.step(1)
	if e.truth(c) {
		return x.x.eval(e)
	}
	if x.y != nil {
		return x.y.eval(e)
	}
	return x.noElse()
}

// noElse is the value of "x if false". It is undefined, but prints as nothing even where names are strict: the
// template says itself that there may be nothing.
func (x *condExpr) noElse() any {
	return &undefined{msg: "the inline if-expression is false and has no else", quiet: true}
}

func (x *mathExpr) eval(e *exec) any {
	a := x.x.eval(e)
	b := x.y.eval(e)
	e.at = x.at
	e.step(1)
	return e.arith(x.op, a, b)
}

func (x *chainExpr) eval(e *exec) any {
	base := len(e.stack)
	v, joined := x.collect(e)
	if joined {
		v = e.join(e.stack[base:])
	}
	e.drop(base)
	return v
}

// collect evaluates a chain. Where all terms are strings, or the chain is of ~, it leaves them on the stack to be
// joined; else it returns the result.
func (x *chainExpr) collect(e *exec) (v any, joined bool) {
	base := len(e.stack)
	for i, t := range x.terms {
		v := t.eval(e)
		e.step(1)
		if x.ops[0].op == '~' {
			if !isString(v) {
				e.at = x.ops[max(0, i-1)].at
				s, lit := e.textFrom(t, v)
				v = makeString(s, lit)
			}
			e.stack = append(e.stack, v)
			continue
		}
		if i > 0 {
			op := x.ops[i-1]
			top := e.stack[len(e.stack)-1]
			if op.op != '+' || !isString(v) || !isString(top) {
				e.at = op.at
				if len(e.stack)-base > 1 { // strings so far
					top = e.join(e.stack[base:])
				}
				e.drop(base)
				if op.op == '+' {
					v = e.add(top, v)
				} else {
					v = e.arith("-", top, v)
				}
			}
		}
		e.stack = append(e.stack, v)
	}
	if len(e.stack)-base > 1 {
		return nil, true
	}
	return e.stack[base], false
}

// join concatenates strings.
func (e *exec) join(parts []any) any {
	n, spans := 0, 0
	for _, p := range parts {
		s, lit, _ := asString(p)
		n += len(s)
		spans += len(lit)
	}
	e.build(n)
	e.buildCells(spans)
	b := builder{buf: make([]byte, 0, n), lit: make([]Span, 0, spans)}
	for _, p := range parts {
		s, lit, _ := asString(p)
		b.add(s, lit)
	}
	if len(b.lit) == 0 {
		return string(b.buf)
	}
	return &Text{S: string(b.buf), Literal: b.lit}
}

func (x *filterExpr) eval(e *exec) any { return x.apply(e, x.x.eval(e)) }

func (x *filterExpr) apply(e *exec, v any) any {
	base := len(e.stack)
	a := x.args.eval(e)
	e.at = x.at
	e.step(1)
	if v == nil && x.x != nil {
		e.from = e.named(x.x)
	}
	v = e.invoke(x.fn, v, a)
	e.from = ""
	e.drop(base)
	return v
}

func (x *testExpr) eval(e *exec) any {
	v := x.x.eval(e)
	base := len(e.stack)
	a := x.args.eval(e)
	e.at = x.at
	e.step(1)
	v = e.invoke(x.fn, v, a)
	e.drop(base)
	return v.(bool) != x.negate
}
