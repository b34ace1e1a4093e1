package jinja

import (
	"slices"
	"strings"
)

// keyOf is the sort key of a filter with case_sensitive and attribute.
func (e *exec) keyOf(attribute any, caseSensitive bool) func(any) any {
	get := func(v any) any { return v }
	if attribute != missing && attribute != nil {
		get = e.getter(attribute)
	}
	if caseSensitive {
		return get
	}
	return func(v any) any { return e.foldCase(get(v)) }
}

func (e *exec) foldCase(v any) any {
	if s, _, ok := asString(v); ok {
		e.build(len(s))
		return lower(s)
	}
	return v
}

// sorted sorts items by key, stably; equal ones keep their order also in reverse.
func (e *exec) sorted(items []any, key func(any) any, reverse bool) []any {
	type pair struct{ k, v any }
	e.buildCells(3 * len(items))
	pairs := make([]pair, len(items))
	for i, v := range items {
		v = e.entry(v)
		pairs[i] = pair{key(v), v}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c, ok := e.order(a.k, b.k)
		if !ok {
			return 0
		}
		if reverse {
			return -c
		}
		return c
	})
	out := make([]any, len(items))
	for i, p := range pairs {
		out[i] = p.v
	}
	return out
}

// sortFilter compares lists of keys, as Jinja2 does: items that all lack an attribute are equal, not an error.
func sortFilter(e *exec, v any, c call) any {
	caseSensitive := c.flag(e, 1, false)
	paths := []any{c.p[2]}
	if s, _, ok := asString(orNone(c.p[2])); ok && strings.Contains(s, ",") { // several attributes
		paths = paths[:0]
		for _, part := range strings.Split(s, ",") {
			paths = append(paths, part)
		}
	}
	e.buildCells(len(paths))
	keys := make([]func(any) any, len(paths))
	for i, path := range paths {
		keys[i] = e.keyOf(path, caseSensitive)
	}
	key := func(v any) any {
		e.buildCells(2 + len(keys))
		t := make(tuple, len(keys))
		for i, k := range keys {
			t[i] = k(v)
		}
		return t
	}
	return e.sorted(e.items(v), key, c.flag(e, 0, false))
}

func dictSort(e *exec, v any, c call) any {
	if !isDict(v) {
		e.fail("dictsort needs a dict, not '" + typeName(v) + "'")
	}
	at := int64(0)
	switch by := c.str(e, 1, "key"); by {
	case "key":
	case "value":
		at = 1
	default:
		e.fail("you can only sort by either 'key' or 'value'")
	}
	return e.sorted(e.viewItems(&dictView{v, "items"}), e.keyOf(at, c.flag(e, 0, false)), c.flag(e, 2, false))
}

func extreme(sign int) func(e *exec, v any, c call) any {
	return func(e *exec, v any, c call) any {
		key := e.keyOf(c.p[1], c.flag(e, 0, false))
		var best, bestKey any
		items := e.items(v)
		if len(items) == 0 {
			return &undefined{msg: "no aggregated item, sequence was empty"}
		}
		for i, it := range items {
			it = e.entry(it)
			k := key(it)
			if i > 0 {
				if o, ok := e.order(k, bestKey); !ok || o*sign <= 0 {
					continue
				}
			}
			best, bestKey = it, k
		}
		return best
	}
}

func unique(e *exec, v any, c call) any {
	key := e.keyOf(c.p[1], c.flag(e, 0, false))
	seen := map[hashKey]bool{}
	var out []any
	for _, it := range e.items(v) {
		e.step(1)
		it = e.entry(it)
		if k := e.key(key(it)); !seen[k] {
			e.buildCells(4)
			seen[k] = true
			out = append(out, it)
		}
	}
	return &stream{out, "generator"}
}

func groupBy(e *exec, v any, c call) any {
	get := e.getter(c.p[0])
	if c.has(1) && c.p[1] != nil {
		plain, def := get, c.p[1]
		get = func(v any) any {
			r := plain(v)
			if _, ok := r.(*undefined); ok {
				return def
			}
			return r
		}
	}
	key := get
	if !c.flag(e, 2, false) {
		key = func(v any) any { return e.foldCase(get(v)) }
	}
	groups := []any{}
	var last any
	var current []any
	for _, it := range e.sorted(e.items(v), key, false) {
		k := key(it)
		if len(current) == 0 || !e.equal(k, last) {
			if len(current) > 0 {
				groups = append(groups, newGroup(get(current[0]), current))
			}
			e.buildCells(6)
			last, current = k, nil
		}
		e.buildCells(1)
		current = append(current, it)
	}
	if len(current) > 0 {
		groups = append(groups, newGroup(get(current[0]), current))
	}
	return groups
}

func newGroup(key any, items []any) any {
	return &record{tuple{key, items}, []string{"grouper", "list"}}
}
