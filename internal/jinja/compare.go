package jinja

import (
	"math"
	"math/big"
	"strings"

	"github.com/batchmill/batchmill/internal/ordered"
)

func (e *exec) compareOp(op string, a, b any) bool {
	switch op {
	case "==":
		return e.equal(a, b)
	case "!=":
		return !e.equal(a, b)
	case "in":
		return e.contains(b, a)
	case "not in":
		return !e.contains(b, a)
	}
	c, ok := e.order(a, b)
	switch op {
	case "<":
		return ok && c < 0
	case "<=":
		return ok && c <= 0
	case ">":
		return ok && c > 0
	}
	return ok && c >= 0
}

// equal is Python's ==, which never fails but for values nested too deep.
func (e *exec) equal(a, b any) bool {
	e.step(1)
	if s, _, ok := asString(a); ok {
		t, _, ok := asString(b)
		if u, isU := b.(*undefined); isU {
			e.soft(u)
		}
		if len(s) != len(t) {
			return false
		}
		e.scan(len(s))
		return ok && s == t
	}
	a, b = intOf(a), intOf(b)
	for _, v := range [2]any{a, b} {
		if u, ok := v.(*undefined); ok {
			e.soft(u)
			_, x := a.(*undefined)
			_, y := b.(*undefined)
			return x && y
		}
	}
	if isNumber(a) {
		return isNumber(b) && compareNumbers(a, b) == 0
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case []any:
		y, ok := b.([]any)
		return ok && e.equalItems(x, y)
	case tuple, *record:
		switch b.(type) {
		case tuple, *record:
			return e.equalItems(e.items(a), e.items(b))
		}
		return false
	case *dict, *ordered.Map:
		return isDict(b) && e.equalDicts(x, b)
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step))
	case *method:
		y, ok := b.(*method)
		return ok && x.fn == y.fn && e.equal(x.self, y.self)
	}
	return sameObject(a, b)
}

// sameObject compares pointers; all that are left here are pointers.
func sameObject(a, b any) bool {
	switch a.(type) {
	case []any, tuple:
		return false
	}
	switch b.(type) {
	case []any, tuple:
		return false
	}
	return a == b
}

func (e *exec) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	e.enter()
	defer e.leave()
	for i := range a {
		if !e.equal(e.entry(a[i]), e.entry(b[i])) {
			return false
		}
	}
	return true
}

func (e *exec) equalDicts(a, b any) bool {
	if dictLen(a) != dictLen(b) {
		return false
	}
	e.enter()
	defer e.leave()
	for i := range dictLen(a) {
		k, v := e.dictAt(a, i)
		w, ok := e.dictGet(b, k)
		if !ok || !e.equal(v, w) {
			return false
		}
	}
	return true
}

// compareNumbers orders ints and floats exactly; NaN is unequal to and not ordered against anything, given as 2.
func compareNumbers(a, b any) int {
	x, aSmall := a.(int64)
	y, bSmall := b.(int64)
	if aSmall && bSmall {
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	}
	f, aFloat := a.(float64)
	g, bFloat := b.(float64)
	switch {
	case aFloat && math.IsNaN(f), bFloat && math.IsNaN(g):
		return 2
	case aFloat && bFloat:
		switch {
		case f < g:
			return -1
		case f > g:
			return 1
		}
		return 0
	case !aFloat && !bFloat:
		return toBig(a).Cmp(toBig(b))
	}
	return exact(a).Cmp(exact(b))
}

// exact is a number without any rounding: a float has 53 bits, an int at most maxBits.
func exact(v any) *big.Float {
	if f, ok := v.(float64); ok {
		return big.NewFloat(f)
	}
	n := toBig(v)
	return new(big.Float).SetPrec(uint(max(64, n.BitLen()))).SetInt(n)
}

// order is <, = or > as -1, 0 or 1; ok is false where all comparisons are false (NaN).
func (e *exec) order(a, b any) (c int, ok bool) {
	e.step(1)
	if s, _, isS := asString(a); isS {
		if t, _, isS := asString(b); isS {
			e.scan(min(len(s), len(t)))
			return strings.Compare(s, t), true
		}
	}
	x, y := intOf(a), intOf(b)
	if isNumber(x) && isNumber(y) {
		c := compareNumbers(x, y)
		return c, c != 2
	}
	for _, v := range [2]any{a, b} {
		if u, isU := v.(*undefined); isU {
			e.undefinedUse(u)
		}
	}
	switch a.(type) {
	case []any:
		if _, isL := b.([]any); isL {
			return e.orderItems(a.([]any), b.([]any))
		}
	case tuple, *record:
		switch b.(type) {
		case tuple, *record:
			return e.orderItems(e.items(a), e.items(b))
		}
	}
	e.fail("'" + typeName(a) + "' and '" + typeName(b) + "' cannot be ordered")
	return 0, false
}

func (e *exec) orderItems(a, b []any) (int, bool) {
	e.enter()
	defer e.leave()
	for i := range min(len(a), len(b)) {
		x, y := e.entry(a[i]), e.entry(b[i])
		if !e.equal(x, y) {
			return e.order(x, y)
		}
	}
	return len(a) - len(b), true
}

// contains is "needle in hay".
func (e *exec) contains(hay, needle any) bool {
	switch h := hay.(type) {
	case string, *Text:
		s, _, _ := asString(h)
		t, _, ok := asString(needle)
		if !ok {
			if u, isU := needle.(*undefined); isU {
				e.undefinedUse(u)
			}
			e.fail("'in <string>' requires string as left operand, not " + typeName(needle))
		}
		e.scan(len(s))
		return strings.Contains(s, t)
	case *dict, *ordered.Map:
		_, ok := e.dictGet(h, needle)
		return ok
	case *dictView:
		if h.kind == "keys" {
			_, ok := e.dictGet(h.d, needle)
			return ok
		}
	case *rangeValue:
		n, ok := intOf(needle).(int64)
		if ok && h.n > 0 {
			lo, hi := h.at(0), h.at(h.n-1)
			return n >= min(lo, hi) && n <= max(lo, hi) && (n-h.start)%h.step == 0
		}
	}
	if !iterable(hay) {
		e.fail("argument of type '" + typeName(hay) + "' is not iterable")
	}
	for _, v := range e.items(hay) {
		if e.equal(e.entry(v), needle) {
			return true
		}
	}
	return false
}
