package jinja

import (
	"math/big"
	"unicode"
)

// valueTests are what stands behind "is".
var valueTests = map[string]*builtin{
	"defined":     {name: "defined", fn: func(_ *exec, v any, _ call) any { return !isUndefined(v) }},
	"undefined":   {name: "undefined", fn: func(_ *exec, v any, _ call) any { return isUndefined(v) }},
	"none":        typeTest("none", func(v any) bool { return v == nil }),
	"boolean":     typeTest("boolean", func(v any) bool { _, ok := v.(bool); return ok }),
	"true":        typeTest("true", func(v any) bool { return v == true }),
	"false":       typeTest("false", func(v any) bool { return v == false }),
	"integer":     typeTest("integer", isInteger),
	"float":       typeTest("float", func(v any) bool { _, ok := v.(float64); return ok }),
	"number":      typeTest("number", isNumber),
	"string":      typeTest("string", isString),
	"mapping":     typeTest("mapping", isDict),
	"sequence":    typeTest("sequence", isSequence),
	"iterable":    typeTest("iterable", iterable),
	"callable":    typeTest("callable", isCallable),
	"escaped":     typeTest("escaped", func(any) bool { return false }),
	"even":        spec("even", func(e *exec, v any, _ call) any { return e.equal(e.arith("%", v, int64(2)), int64(0)) }),
	"odd":         spec("odd", func(e *exec, v any, _ call) any { return e.equal(e.arith("%", v, int64(2)), int64(1)) }),
	"divisibleby": spec("divisibleby num", func(e *exec, v any, c call) any { return e.equal(e.arith("%", v, c.p[0]), int64(0)) }),
	"lower":       spec("lower", caseTest(unicode.IsLower, unicode.IsUpper)),
	"upper":       spec("upper", caseTest(unicode.IsUpper, unicode.IsLower)),
	"in":          spec("in seq", func(e *exec, v any, c call) any { return e.contains(c.p[0], v) }),
	"sameas":      spec("sameas other", sameAs),
	"filter": spec("filter", func(e *exec, v any, _ call) any {
		s, _, ok := asString(v)
		return ok && e.lib.filters[s] != nil
	}),
	"test": spec("test", func(e *exec, v any, _ call) any {
		s, _, ok := asString(v)
		return ok && e.lib.tests[s] != nil
	}),
	"eq": compareTest("=="), "equalto": compareTest("=="), "==": compareTest("=="),
	"ne": compareTest("!="), "!=": compareTest("!="),
	"lt": compareTest("<"), "lessthan": compareTest("<"), "<": compareTest("<"),
	"le": compareTest("<="), "<=": compareTest("<="),
	"gt": compareTest(">"), "greaterthan": compareTest(">"), ">": compareTest(">"),
	"ge": compareTest(">="), ">=": compareTest(">="),
}

// typeTest is a test of the value alone. Strict names: only "defined" and "undefined" may look at what is missing.
func typeTest(name string, is func(any) bool) *builtin {
	return spec(name, func(e *exec, v any, _ call) any {
		if u, ok := v.(*undefined); ok {
			e.soft(u)
		}
		return is(v)
	})
}

func compareTest(op string) *builtin {
	return spec(op+" other", func(e *exec, v any, c call) any { return e.compareOp(op, v, c.p[0]) })
}

func isUndefined(v any) bool {
	_, ok := v.(*undefined)
	return ok
}

func isInteger(v any) bool {
	switch v.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isSequence(v any) bool {
	switch v.(type) {
	case string, *Text, []any, tuple, *record, *rangeValue, *undefined:
		return true
	}
	return isDict(v)
}

func isCallable(v any) bool {
	switch v.(type) {
	case *macro, *builtin, *method, *loop, *joiner, *undefined:
		return true
	}
	return false
}

// sameAs is Python's "is", as far as values without an identity allow: equal scalars of one type are the same.
func sameAs(e *exec, v any, c call) any {
	other := c.p[0]
	if typeName(v) != typeName(other) {
		return false
	}
	if isString(v) || isNumber(v) || v == nil {
		return e.equal(v, other)
	}
	if a, ok := v.([]any); ok {
		b := other.([]any)
		return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	if a, ok := v.(tuple); ok {
		b := other.(tuple)
		return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
	}
	return sameObject(v, other)
}
