package jinja

import (
	"math"
	"math/big"
	"strconv"
)

// numberFilters convert to and work on numbers.
var numberFilters = map[string]*builtin{
	"abs":   spec("abs", absFilter),
	"float": spec("float default=", floatFilter),
	"int":   spec("int default= base=", intFilter),
	"round": spec("round precision= method=", roundFilter),
}

func absFilter(e *exec, v any, _ call) any {
	switch n := intOf(v).(type) {
	case int64:
		if n < 0 {
			return normInt(new(big.Int).Neg(big.NewInt(n)))
		}
		return n
	case *big.Int:
		return normInt(new(big.Int).Abs(n))
	case float64:
		return math.Abs(n)
	case *undefined:
		e.undefinedUse(n)
	}
	e.fail("bad operand type for abs(): '" + typeName(v) + "'")
	return nil
}

func floatFilter(e *exec, v any, c call) any {
	switch n := intOf(v).(type) {
	case int64, *big.Int, float64:
		return e.toFloat(n)
	case string, *Text:
		s, _, _ := asString(n)
		e.step(len(s))
		if f, ok := parseFloat(s); ok {
			return f
		}
	case *undefined:
		e.undefinedUse(n)
	}
	if c.has(0) {
		return c.p[0]
	}
	return 0.0
}

func intFilter(e *exec, v any, c call) any {
	var def any = int64(0)
	if c.has(0) {
		def = c.p[0]
	}
	base := c.num(e, 1, 10)
	switch n := intOf(v).(type) {
	case int64, *big.Int:
		return n
	case float64:
		if math.IsNaN(n) || math.IsInf(n, 0) {
			return def
		}
		return e.truncate(n)
	case string, *Text:
		s, _, _ := asString(n)
		e.step(len(s))
		if i, ok := parseInt(s, base); ok {
			return i
		}
		if f, ok := parseFloat(s); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return e.truncate(f)
		}
	case *undefined:
		e.undefinedUse(n)
	}
	return def
}

func roundFilter(e *exec, v any, c call) any {
	method := c.str(e, 1, "common")
	precision := c.num(e, 0, 0)
	n := intOf(v)
	if !isNumber(n) {
		if u, ok := v.(*undefined); ok {
			e.undefinedUse(u)
		}
		e.fail("round needs a number, not '" + typeName(v) + "'")
	}
	const most = 400 // beyond it a float has no digits left
	precision = min(max(precision, -most), most)
	switch method {
	case "common":
		return e.roundHalfEven(n, precision)
	case "ceil", "floor":
		f := math.Ceil
		if method == "floor" {
			f = math.Floor
		}
		scale := math.Pow(10, float64(precision))
		return f(e.toFloat(n)*scale) / scale
	}
	e.fail("method must be common, ceil or floor")
	return nil
}

// roundHalfEven is Python's round(n, precision): of the exact binary value, ties to even.
func (e *exec) roundHalfEven(n any, precision int) any {
	f, isFloat := n.(float64)
	if !isFloat {
		if precision >= 0 {
			return n
		}
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
		q, m := new(big.Int).DivMod(toBig(n), unit, new(big.Int))
		if c := new(big.Int).Lsh(m, 1).Cmp(unit); c > 0 || c == 0 && q.Bit(0) == 1 {
			q.Add(q, big.NewInt(1))
		}
		return normInt(q.Mul(q, unit))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if precision < 0 {
		unit := math.Pow(10, float64(-precision))
		return math.RoundToEven(f/unit) * unit
	}
	r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
	return r
}
