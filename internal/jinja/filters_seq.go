package jinja

import (
	"slices"
	"strings"
)

// sequenceFilters are the filters on lists, dicts and other iterables, and tojson.
var sequenceFilters = map[string]*builtin{
	"attr":       spec("attr name", func(e *exec, v any, c call) any { return onlyAttr(e, v, e.wantString(c.p[0], "name")) }),
	"batch":      spec("batch linecount fill_with=", batch),
	"count":      spec("count", lengthFilter),
	"d":          spec("d default_value= boolean=", defaultFilter),
	"default":    spec("default default_value= boolean=", defaultFilter),
	"dictsort":   spec("dictsort case_sensitive= by= reverse=", dictSort),
	"first":      spec("first", firstItem),
	"groupby":    spec("groupby attribute default= case_sensitive=", groupBy),
	"items":      spec("items", itemsFilter),
	"join":       spec("join d= attribute=", joinFilter),
	"last":       spec("last", lastItem),
	"length":     spec("length", lengthFilter),
	"list":       spec("list", listFilter),
	"map":        spec("map *", mapFilter),
	"max":        spec("max case_sensitive= attribute=", extreme(1)),
	"min":        spec("min case_sensitive= attribute=", extreme(-1)),
	"reject":     spec("reject *", selectFilter(false, false)),
	"rejectattr": spec("rejectattr *", selectFilter(false, true)),
	"reverse":    spec("reverse", reverseFilter),
	"select":     spec("select *", selectFilter(true, false)),
	"selectattr": spec("selectattr *", selectFilter(true, true)),
	"slice":      spec("slice slices fill_with=", sliceFilter),
	"sort":       spec("sort reverse= case_sensitive= attribute=", sortFilter),
	"sum":        spec("sum attribute= start=", sumFilter),
	"tojson":     spec("tojson ensure_ascii= indent= separators= sort_keys=", tojson),
	"unique":     spec("unique case_sensitive= attribute=", unique),
}

func onlyAttr(e *exec, v any, name string) any {
	if r, ok := e.attribute(v, name); ok {
		return r
	}
	return e.noAttr(v, name)
}

func defaultFilter(e *exec, v any, c call) any {
	_, undef := v.(*undefined)
	if undef || c.flag(e, 1, false) && !e.truth(v) {
		if c.has(0) {
			return c.p[0]
		}
		return ""
	}
	return v
}

func lengthFilter(e *exec, v any, c call) any {
	n, ok := e.length(v)
	if !ok {
		e.fail("object of type '" + typeName(v) + "' has no length: turn it into a list first")
	}
	return int64(n)
}

func firstItem(e *exec, v any, _ call) any {
	if s, ok := v.(*stream); ok && len(s.items) > 0 {
		first := s.items[0]
		s.items = s.items[1:]
		return e.entry(first)
	}
	if r, ok := e.element(v, 0); ok {
		return r
	}
	if items := e.items(v); len(items) > 0 {
		return e.entry(items[0])
	}
	return &undefined{msg: "no first item, sequence was empty"}
}

func lastItem(e *exec, v any, _ call) any {
	if _, ok := v.(*stream); ok {
		e.fail("'" + typeName(v) + "' object is not reversible: turn it into a list first")
	}
	if r, ok := e.element(v, -1); ok {
		return r
	}
	if items := e.items(v); len(items) > 0 {
		return e.entry(items[len(items)-1])
	}
	return &undefined{msg: "no last item, sequence was empty"}
}

func listFilter(e *exec, v any, _ call) any {
	items := e.items(v)
	if items == nil {
		return []any{}
	}
	return items
}

func itemsFilter(e *exec, v any, _ call) any {
	if u, ok := v.(*undefined); ok {
		e.soft(u)
		return &stream{name: "generator"}
	}
	if !isDict(v) {
		e.fail("can only get item pairs from a mapping, not '" + typeName(v) + "'")
	}
	return &stream{e.viewItems(&dictView{v, "items"}), "generator"}
}

func reverseFilter(e *exec, v any, _ call) any {
	if isString(v) {
		return e.slice(v, nil, nil, int64(-1))
	}
	items := e.items(v)
	e.buildCells(len(items))
	out := slices.Clone(items)
	slices.Reverse(out)
	if _, ok := v.(*stream); ok {
		return out
	}
	return &stream{out, "list_reverseiterator"}
}

func joinFilter(e *exec, v any, c call) any {
	sep, lit := "", []Span(nil)
	if c.has(0) {
		sep, lit = e.toText(c.p[0])
	}
	items := e.items(v)
	if c.has(1) && c.p[1] != nil {
		get := e.getter(c.p[1])
		e.buildCells(len(items))
		out := make([]any, len(items))
		for i, it := range items {
			out[i] = get(e.entry(it))
		}
		items = out
	}
	return e.joinAll(items, sep, lit)
}

// getter reads a path such as "a.b.0" from an item.
func (e *exec) getter(attribute any) func(any) any {
	var path []any
	if s, _, ok := asString(attribute); ok {
		for _, part := range strings.Split(s, ".") {
			if n, ok := parseInt(part, 10); ok && part[0] != '-' && part[0] != '+' {
				path = append(path, n)
			} else {
				path = append(path, part)
			}
		}
	} else {
		path = []any{attribute}
	}
	e.buildCells(len(path))
	return func(v any) any {
		for _, part := range path {
			e.step(1)
			v = e.getItem(v, part)
		}
		return v
	}
}

func sumFilter(e *exec, v any, c call) any {
	var total any = int64(0)
	if c.has(1) {
		total = c.p[1]
	}
	get := func(v any) any { return v }
	if c.has(0) && c.p[0] != nil {
		get = e.getter(c.p[0])
	}
	for _, it := range e.items(v) {
		e.step(1)
		x := get(e.entry(it))
		if isString(x) || isString(total) {
			e.fail("sum cannot add strings: use join")
		}
		total = e.add(total, x)
	}
	return total
}

func batch(e *exec, v any, c call) any {
	n := e.wantInt(c.p[0], "linecount")
	items := e.items(v)
	var out []any
	for i := 0; i < len(items) && n > 0; i += n {
		row := items[i:min(i+n, len(items)):min(i+n, len(items))]
		if missing := n - len(row); missing > 0 && c.has(1) && c.p[1] != nil {
			e.buildCells(n)
			row = append(slices.Clone(row), slices.Repeat([]any{c.p[1]}, missing)...)
		}
		e.buildCells(2)
		out = append(out, row)
	}
	if n <= 0 && len(items) > 0 {
		e.fail("batch needs a linecount above 0")
	}
	return &stream{out, "generator"}
}

func sliceFilter(e *exec, v any, c call) any {
	n := e.wantInt(c.p[0], "slices")
	if n <= 0 {
		e.fail("slice needs a count above 0")
	}
	items := e.items(v)
	e.buildCells(3 * n)
	per, extra := len(items)/n, len(items)%n
	out := make([]any, n)
	at := 0
	for i := range n {
		size := per
		if i < extra {
			size++
		}
		row := items[at : at+size : at+size]
		at += size
		if c.has(1) && c.p[1] != nil && i >= extra {
			e.buildCells(size + 1)
			row = append(slices.Clone(row), c.p[1])
		}
		out[i] = row
	}
	return &stream{out, "generator"}
}

// mapFilter is map(attribute=...) or map('filter', args...).
func mapFilter(e *exec, v any, c call) any {
	var f func(any) any
	if len(c.rest) == 0 {
		var attribute, def any = nil, missing
		for _, k := range c.kw {
			switch k.name {
			case "attribute":
				attribute = k.v
			case "default":
				def = k.v
			default:
				e.fail("map takes no argument named " + k.name)
			}
		}
		if attribute == nil {
			e.fail("map requires a filter argument")
		}
		get := e.getter(attribute)
		f = func(v any) any {
			r := get(v)
			if _, ok := r.(*undefined); ok && def != missing {
				return def
			}
			return r
		}
	} else {
		name := e.wantString(c.rest[0], "name of a filter")
		fn := e.lib.filters[name]
		if fn == nil {
			e.fail("no filter named " + e.clip(name))
		}
		args := arguments{c.rest[1:], c.kw}
		f = func(v any) any { return e.invoke(fn, v, args) }
	}
	items := e.items(v)
	e.buildCells(len(items))
	out := make([]any, len(items))
	for i, it := range items {
		e.step(1)
		out[i] = f(e.entry(it))
	}
	return &stream{out, "generator"}
}

// selectFilter is select, reject, selectattr and rejectattr.
func selectFilter(keep, byAttr bool) func(e *exec, v any, c call) any {
	return func(e *exec, v any, c call) any {
		args := c.rest
		get := func(v any) any { return v }
		if byAttr {
			if len(args) == 0 {
				e.fail(c.name + " needs the name of an attribute")
			}
			get = e.getter(args[0])
			args = args[1:]
		}
		test := func(v any) bool { return e.truth(v) }
		if len(args) > 0 {
			name := e.wantString(args[0], "name of a test")
			fn := e.lib.tests[name]
			if fn == nil {
				e.fail("no test named " + e.clip(name))
			}
			a := arguments{args[1:], c.kw}
			test = func(v any) bool { return e.invoke(fn, v, a).(bool) }
		}
		items := e.items(v)
		var out []any
		for _, it := range items {
			e.step(1)
			it = e.entry(it)
			if test(get(it)) == keep {
				e.buildCells(1)
				out = append(out, it)
			}
		}
		return &stream{out, "generator"}
	}
}
