package jinja

import (
	"math"
	"math/big"

	"github.com/batchmill/batchmill/internal/ordered"
)

// library holds every built-in by name.
type library struct {
	filters, tests, globals           map[string]*builtin
	strs, lists, tuples, dicts, loops map[string]*builtin
	ints, floats, cyclers             map[string]*builtin
}

// builtins is the one library. Functions in it reach it through exec.lib.
var builtins = &library{
	filters: merge(textFilters, sequenceFilters, numberFilters),
	tests:   valueTests,
	globals: globalFunctions,
	strs:    stringMethods,
	lists:   listMethods,
	tuples:  tupleMethods,
	dicts:   dictMethods,
	loops:   loopMethods,
	ints:    intMethods,
	floats:  floatMethods,
	cyclers: cyclerMethods,
}

func merge(tables ...map[string]*builtin) map[string]*builtin {
	all := map[string]*builtin{}
	for _, t := range tables {
		for name, fn := range t {
			all[name] = fn
		}
	}
	return all
}

// methodOf finds a method of a value's type.
func (l *library) methodOf(v any, name string) *builtin {
	switch v.(type) {
	case string, *Text:
		return l.strs[name]
	case *dict, *ordered.Map:
		return l.dicts[name]
	case []any:
		return l.lists[name]
	case tuple, *record:
		return l.tuples[name]
	case int64, bool, *big.Int:
		return l.ints[name]
	case float64:
		return l.floats[name]
	case *loop:
		return l.loops[name]
	case *cycler:
		return l.cyclers[name]
	}
	return nil
}

var globalFunctions = map[string]*builtin{
	"range": spec("range stop_or_start stop= step=", rangeFn),
	"dict":  spec("dict *", func(e *exec, _ any, c call) any { return e.newDict(c.rest, c.kw) }),
	"namespace": spec("namespace *", func(e *exec, _ any, c call) any {
		return &namespace{*e.newDict(c.rest, c.kw)}
	}),
	"cycler": spec("cycler *", func(e *exec, _ any, c call) any {
		if len(c.rest) == 0 {
			e.fail("at least one item has to be provided")
		}
		e.buildCells(len(c.rest))
		return &cycler{items: append([]any{}, c.rest...)}
	}),
	"joiner": spec("joiner sep=", func(e *exec, _ any, c call) any {
		if c.has(0) {
			return &joiner{sep: c.p[0]}
		}
		return &joiner{sep: Literal(", ")}
	}),
	"raise_exception": spec("raise_exception message", func(e *exec, _ any, c call) any {
		s := e.toString(c.p[0])
		e.failWith(&Raised{s}, "the template raised: "+s)
		return nil
	}),
	"strftime_now": spec("strftime_now format", func(e *exec, _ any, c call) any {
		s := e.wantString(c.p[0], "format")
		e.build(16 * len(s)) // no directive writes more than 16 bytes a character
		return Literal(strftime(e.env.Now, s))
	}),
}

var cyclerMethods = map[string]*builtin{
	"next": spec("next", func(_ *exec, self any, _ call) any { return self.(*cycler).next() }),
	"reset": spec("reset", func(_ *exec, self any, _ call) any {
		self.(*cycler).i = 0
		return nil
	}),
}

var dictMethods = map[string]*builtin{
	"get": spec("get key default=", func(e *exec, self any, c call) any {
		if v, ok := e.dictGet(self, c.p[0]); ok {
			return v
		}
		if c.has(1) {
			return c.p[1]
		}
		return nil
	}),
	"items":  spec("items", func(_ *exec, self any, _ call) any { return &dictView{self, "items"} }),
	"keys":   spec("keys", func(_ *exec, self any, _ call) any { return &dictView{self, "keys"} }),
	"values": spec("values", func(_ *exec, self any, _ call) any { return &dictView{self, "values"} }),
	"copy":   spec("copy", func(_ *exec, self any, _ call) any { return self }),
}

var listMethods = map[string]*builtin{
	"count": spec("count value", countItems),
	"index": spec("index value start= stop=", indexItems),
	"copy":  spec("copy", func(_ *exec, self any, _ call) any { return self }),
}

var tupleMethods = map[string]*builtin{
	"count": listMethods["count"],
	"index": listMethods["index"],
}

func countItems(e *exec, self any, c call) any {
	n := int64(0)
	for _, v := range e.items(self) {
		if e.equal(e.entry(v), c.p[0]) {
			n++
		}
	}
	return n
}

func indexItems(e *exec, self any, c call) any {
	items := e.items(self)
	n := len(items)
	from, to, _ := e.bounds(n, orNone(c.p[1]), orNone(c.p[2]), nil)
	for i := from; i < to; i++ {
		if e.equal(e.entry(items[i]), c.p[0]) {
			return int64(i)
		}
	}
	e.fail(e.clip(e.print(c.p[0], true)) + " is not in list")
	return nil
}

func orNone(v any) any {
	if v == missing {
		return nil
	}
	return v
}

var intMethods = map[string]*builtin{
	"bit_length": spec("bit_length", func(_ *exec, self any, _ call) any {
		return int64(toBig(intOf(self)).BitLen())
	}),
	"is_integer": spec("is_integer", func(*exec, any, call) any { return true }),
}

var floatMethods = map[string]*builtin{
	"is_integer": spec("is_integer", func(_ *exec, self any, _ call) any {
		f := self.(float64)
		return f == math.Trunc(f) && !math.IsInf(f, 0)
	}),
}
