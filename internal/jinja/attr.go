package jinja

import (
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
)

// unsafeMethods change a list or dict in place. The usual sandbox for chat templates forbids them, and so do we: two
// rows must not share state.
var unsafeMethods = map[string]bool{
	"append": true, "clear": true, "extend": true, "insert": true, "pop": true, "popitem": true, "remove": true,
	"reverse": true, "setdefault": true, "sort": true, "update": true,
}

// getAttr is v.name: an attribute or method, else an item.
func (e *exec) getAttr(v any, name string) any {
	if r, ok := e.attribute(v, name); ok {
		return r
	}
	if isDict(v) {
		if r, ok := e.dictGet(v, name); ok {
			return r
		}
	}
	return e.noAttr(v, name)
}

// getItem is v[key]: an item, else, for a string key, an attribute or method.
func (e *exec) getItem(v, key any) any {
	switch v := v.(type) {
	case *dict, *ordered.Map:
		if r, ok := e.dictGet(v, key); ok {
			return r
		}
	case *undefined:
		e.undefinedUse(v)
	case *namespace:
		// only by attribute
	default:
		if i, ok := intOf(key).(int64); ok {
			if r, ok := e.element(v, i); ok {
				return r
			}
		}
	}
	if s, _, ok := asString(key); ok {
		if r, ok := e.attribute(v, s); ok {
			return r
		}
		return e.noAttr(v, s)
	}
	if u, ok := key.(*undefined); ok {
		e.soft(u)
	}
	return &undefined{msg: "'" + typeName(v) + " object' has no element " + e.clip(e.print(key, true))}
}

// clip keeps messages short.
func (e *exec) clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

func (e *exec) noAttr(v any, name string) any {
	if u, ok := v.(*undefined); ok {
		e.undefinedUse(u)
	}
	if unsafeMethods[name] {
		switch v.(type) {
		case []any, *dict, *ordered.Map:
			e.fail(typeName(v) + "." + name + " is not allowed: lists and dicts cannot be changed, build a new one (a + [x], dict(a, k=v)) or use namespace()")
		}
	}
	return &undefined{msg: "'" + typeName(v) + " object' has no attribute '" + e.clip(name) + "'"}
}

// attribute finds attributes proper and methods.
func (e *exec) attribute(v any, name string) (any, bool) {
	switch v := v.(type) {
	case *namespace:
		if i := v.d.find(e, name); i >= 0 {
			return v.d.values[i], true
		}
		return nil, false
	case *loop:
		return v.attr(e, name)
	case *macro:
		return v.attr(name)
	case *cycler:
		if name == "current" {
			return v.items[v.i], true
		}
	case *record:
		for i, n := range v.names {
			if n == name {
				return v.tuple[i], true
			}
		}
	case *rangeValue:
		switch name {
		case "start":
			return v.start, true
		case "stop":
			return v.stop, true
		case "step":
			return v.step, true
		}
	}
	if fn := e.lib.methodOf(v, name); fn != nil {
		return &method{v, fn}, true
	}
	return nil, false
}

// element is v[i] of a sequence.
func (e *exec) element(v any, i int64) (any, bool) {
	var items []any
	switch v := v.(type) {
	case []any:
		items = v
	case tuple:
		items = v
	case *record:
		items = v.tuple
	case *rangeValue:
		if i < 0 {
			i += int64(v.n)
		}
		if i < 0 || i >= int64(v.n) {
			return nil, false
		}
		return v.at(int(i)), true
	case string:
		return e.char(v, nil, i)
	case *Text:
		return e.char(v.S, v.Literal, i)
	}
	n := int64(len(items))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	return e.entry(items[i]), true
}

func (e *exec) char(s string, lit []Span, i int64) (any, bool) {
	n := int64(e.runes(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	from := e.byteAt(s, int(i))
	return substring(s, lit, from, from+runeLen(s[from:])), true
}

// Strings are counted in characters, as in Python.

func (e *exec) runes(s string) int {
	e.scan(len(s))
	return utf8.RuneCountInString(s)
}

// byteAt is the byte offset of the i-th character, or the length.
func (e *exec) byteAt(s string, i int) int {
	e.step(min(i, len(s)) / charsPerStep)
	return byteAt(s, i)
}

func byteAt(s string, i int) int {
	at := 0
	for ; i > 0 && at < len(s); i-- {
		if s[at] < utf8.RuneSelf {
			at++
		} else {
			at += runeLen(s[at:])
		}
	}
	return at
}

func runeLen(s string) int {
	_, n := utf8.DecodeRuneInString(s)
	return n
}

// bounds resolves slice bounds for a sequence of n, as Python does.
func (e *exec) bounds(n int, lo, hi, step any) (from, to, by int) {
	by = 1
	if step != nil {
		if by = e.wantInt(step, "slice step"); by == 0 {
			e.fail("slice step cannot be zero")
		}
	}
	first, last := 0, n // where a left-out bound lies, and where bounds are cut off
	low, high := 0, n
	if by < 0 {
		first, last, low, high = n-1, -1, -1, n-1
	}
	bound := func(v any, def int) int {
		if v == nil {
			return def
		}
		i := e.wantInt(v, "slice bound")
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	return bound(lo, first), bound(hi, last), by
}

func (e *exec) slice(v, lo, hi, step any) any {
	switch v := v.(type) {
	case []any:
		return e.sliceItems(v, lo, hi, step)
	case tuple:
		return tuple(e.sliceItems(v, lo, hi, step))
	case *record:
		return tuple(e.sliceItems(v.tuple, lo, hi, step))
	case *rangeValue:
		from, to, by := e.bounds(v.n, lo, hi, step)
		return newRange(v.at(from), v.at(to), v.step*int64(by))
	case string, *Text:
		s, lit, _ := asString(v)
		n := e.runes(s)
		from, to, by := e.bounds(n, lo, hi, step)
		if by == 1 {
			i, j := from, max(from, to)
			if n != len(s) {
				i = e.byteAt(s, from)
				j = i + e.byteAt(s[i:], max(0, to-from))
			}
			return substring(s, lit, i, j)
		}
		return e.join(e.sliceItems(e.chars(s, lit), lo, hi, step))
	case *undefined:
		e.undefinedUse(v)
	}
	e.fail("'" + typeName(v) + "' object cannot be sliced")
	return nil
}

func (e *exec) sliceItems(items []any, lo, hi, step any) []any {
	from, to, by := e.bounds(len(items), lo, hi, step)
	if by == 1 {
		return items[from:max(from, to):max(from, to)]
	}
	out := []any{}
	for i := from; by > 0 && i < to || by < 0 && i > to; i += by {
		e.step(1)
		e.buildCells(1)
		out = append(out, items[i])
	}
	return out
}

// maxRange is the sandbox's limit for range().
const maxRange = 100_000

// newRange counts the elements; all three numbers are within maxSize.
func newRange(start, stop, step int64) *rangeValue {
	n := int64(0)
	if step > 0 && stop > start {
		n = (stop - start + step - 1) / step
	} else if step < 0 && stop < start {
		n = (start - stop - step - 1) / -step
	}
	return &rangeValue{start, stop, step, int(n)}
}

func rangeFn(e *exec, _ any, c call) any {
	var a [3]int64
	for i := range a {
		if c.has(i) {
			if _, big := c.p[i].(*big.Int); big {
				e.fail("range is too large")
			}
			a[i] = int64(e.wantInt(c.p[i], "argument of range"))
		}
	}
	start, stop, step := int64(0), a[0], int64(1)
	if c.has(1) {
		start, stop = a[0], a[1]
	}
	if c.has(2) {
		if step = a[2]; step == 0 {
			e.fail("range step must not be zero")
		}
	}
	r := newRange(start, stop, step)
	if r.n > maxRange {
		e.failWith(ErrLimit, fmt.Sprintf("range of %d elements is longer than the %d allowed", r.n, maxRange))
	}
	return r
}
