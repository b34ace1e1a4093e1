package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/internal/ordered"
)

// A value is one of: nil (None), bool, int64, *big.Int (only where int64 does not suffice), float64, string (data),
// *Text, []any (list), tuple, *ordered.Map (a dict from outside), *dict, *dictView, *rangeValue, *stream, *undefined,
// *namespace, *loop, *macro, *method, *builtin, *cycler, *joiner. Strings, lists, tuples and dicts never change.

type tuple []any

// record is a tuple with named fields, such as groupby yields.
type record struct {
	tuple
	names []string
}

// stream is what a generator is in Python: it can be read once and has no length.
type stream struct {
	items []any
	name  string
}

// rangeValue is range(start, stop, step) with n elements.
type rangeValue struct {
	start, stop, step int64
	n                 int
}

func (r *rangeValue) at(i int) int64 { return r.start + int64(i)*r.step }

// undefined is the value of a name, attribute or item that is not there.
type undefined struct {
	msg   string
	quiet bool // printing it is no error even in strict mode
}

// namespace is the only value that can be changed.
type namespace struct{ d dict }

// dictView is what items(), keys() and values() return.
type dictView struct {
	d    any // *dict or *ordered.Map
	kind string
}

// method is a built-in function with the value it was taken from.
type method struct {
	self any
	fn   *builtin
}

// missing marks a parameter that a call left out.
type missingType struct{}

var missing any = missingType{}

// entry accepts a value from the variables.
func (e *exec) entry(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, []any, *ordered.Map:
		return v
	case *Text:
		if v == nil {
			return nil
		}
		if !v.valid() {
			e.fail("variable has spans outside of its text")
		}
		return v
	case Text:
		if !v.valid() {
			e.fail("variable has spans outside of its text")
		}
		return &v
	case *big.Int:
		return normInt(v)
	case int:
		return int64(v)
	case tuple, *record, *stream, *rangeValue, *undefined, *namespace, *dict, *dictView, *method, *builtin, *loop, *macro, *cycler, *joiner:
		return v // of our own lists
	}
	e.fail(fmt.Sprintf("variable has the unsupported Go type %T", v))
	return nil
}

// typeName is Python's name of a value's type, for messages.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string, *Text:
		return "str"
	case []any:
		return "list"
	case tuple, *record:
		return "tuple"
	case *dict, *ordered.Map:
		return "dict"
	case *dictView:
		return "dict_" + v.kind
	case *rangeValue:
		return "range"
	case *stream:
		return v.name
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

// undefinedUse fails where an undefined value is used as Python's Undefined cannot be.
func (e *exec) undefinedUse(u *undefined) { e.failWith(ErrUndefined, u.msg) }

// soft is called where an undefined value is printed or looked at: an error in strict mode, else fine.
func (e *exec) soft(u *undefined) {
	if e.t.opts.Strict && !u.quiet {
		e.undefinedUse(u)
	}
}

// truth is Python's bool(v).
func (e *exec) truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case *big.Int:
		return true
	case float64:
		return v != 0
	case string:
		return v != ""
	case *Text:
		return v.S != ""
	case []any:
		return len(v) > 0
	case tuple:
		return len(v) > 0
	case *dict:
		return len(v.keys) > 0
	case *ordered.Map:
		return v.Len() > 0
	case *dictView:
		return dictLen(v.d) > 0
	case *rangeValue:
		return v.n > 0
	case *undefined:
		e.soft(v)
		return false
	}
	return true
}

// length is Python's len(v); ok is false for values without one.
func (e *exec) length(v any) (n int, ok bool) {
	switch v := v.(type) {
	case string:
		return e.runes(v), true
	case *Text:
		return e.runes(v.S), true
	case []any:
		return len(v), true
	case tuple:
		return len(v), true
	case *record:
		return len(v.tuple), true
	case *dict, *ordered.Map:
		return dictLen(v), true
	case *dictView:
		return dictLen(v.d), true
	case *rangeValue:
		return v.n, true
	case *loop:
		return v.n, true
	case *undefined:
		e.soft(v)
		return 0, true
	}
	return 0, false
}

// items lists what iterating over v yields. The slice must not be changed: it may be the value itself.
func (e *exec) items(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case tuple:
		return v
	case *record:
		return v.tuple
	case string, *Text:
		s, lit, _ := asString(v)
		return e.chars(s, lit)
	case *dict:
		return v.keys
	case *ordered.Map:
		e.buildCells(v.Len())
		out := make([]any, v.Len())
		for i := range out {
			out[i], _ = v.At(i)
		}
		return out
	case *dictView:
		return e.viewItems(v)
	case *rangeValue:
		e.buildCells(v.n)
		out := make([]any, v.n)
		for i := range out {
			out[i] = v.at(i)
		}
		return out
	case *stream:
		out := v.items
		v.items = nil
		return out
	case *undefined:
		e.soft(v)
		return nil
	}
	e.fail("'" + typeName(v) + "' object is not iterable")
	return nil
}

func iterable(v any) bool {
	switch v.(type) {
	case string, *Text, []any, tuple, *record, *dict, *ordered.Map, *dictView, *rangeValue, *stream, *undefined, *loop:
		return true
	}
	return false
}

// chars is the list of a string's characters.
func (e *exec) chars(s string, lit []Span) []any {
	e.buildCells(len(s))
	e.step(len(s))
	out := make([]any, 0, len(s))
	for i := 0; i < len(s); {
		n := runeLen(s[i:])
		out = append(out, substring(s, lit, i, i+n))
		i += n
	}
	return out
}

// toText is Python's str(v) with the provenance of strings kept.
func (e *exec) toText(v any) (string, []Span) {
	switch v := v.(type) {
	case string:
		return v, nil
	case *Text:
		return v.S, v.Literal
	case int64:
		return strconv.FormatInt(v, 10), nil
	case *undefined:
		e.soft(v)
		return "", nil
	}
	return e.print(v, false), nil
}

func (e *exec) toString(v any) string {
	s, _ := e.toText(v)
	return s
}

// want reads a string argument.
func (e *exec) wantString(v any, what string) string {
	s, _, ok := asString(v)
	if !ok {
		if u, isU := v.(*undefined); isU {
			e.undefinedUse(u)
		}
		if v == nil && e.t.opts.Strict {
			e.failWith(ErrNull, what+" must be a string, not null")
		}
		e.fail(what + " must be a string, not '" + typeName(v) + "'")
	}
	return s
}

func (e *exec) wantInt(v any, what string) int {
	switch n := v.(type) {
	case int64:
		if n > maxSize {
			return maxSize
		}
		return int(max(n, -maxSize))
	case bool:
		if n {
			return 1
		}
		return 0
	case *big.Int:
		return maxSize * n.Sign()
	case *undefined:
		e.undefinedUse(n)
	}
	e.fail(what + " must be an integer, not '" + typeName(v) + "'")
	return 0
}

// maxSize stands for every count and index that no limit allows anyway; sums of a few of them do not overflow.
const maxSize = 1 << 40

// repeat is s * n for strings.
func (e *exec) repeat(s string, lit []Span, n int) any {
	if n <= 0 || s == "" {
		return ""
	}
	if n > maxSize/len(s) {
		e.build(-1)
	}
	e.build(n * len(s))
	if len(lit) == 0 {
		return strings.Repeat(s, n)
	}
	if wholly(s, lit) {
		return Literal(strings.Repeat(s, n))
	}
	e.buildCells(n * len(lit))
	var b builder
	for range n {
		b.add(s, lit)
	}
	return b.value()
}
