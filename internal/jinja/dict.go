package jinja

import (
	"math"
	"math/big"
	"strconv"

	"github.com/batchmill/batchmill/internal/ordered"
)

// dict is a dict made by a template: its keys may be of any hashable type. Dicts from outside stay *ordered.Map.
type dict struct {
	keys, values []any
	index        map[hashKey]int // built above smallDict keys
}

// smallDict is the size up to which comparing beats hashing.
const smallDict = 8

// hashKey is equal for equal keys: 1, 1.0 and True are one key, as in Python.
type hashKey struct {
	kind byte
	n    uint64
	s    string
}

// key hashes a value or fails as Python does for lists and dicts.
func (e *exec) key(v any) hashKey {
	switch v := v.(type) {
	case nil:
		return hashKey{kind: 'n'}
	case bool:
		if v {
			return hashKey{kind: 'i', n: 1}
		}
		return hashKey{kind: 'i'}
	case int64:
		return hashKey{kind: 'i', n: uint64(v)}
	case *big.Int:
		return hashKey{kind: 'b', s: string(v.Bytes()), n: uint64(v.Sign())}
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			b, _ := big.NewFloat(v).Int(nil)
			return e.key(normInt(b))
		}
		return hashKey{kind: 'f', n: math.Float64bits(v)}
	case string:
		e.scan(len(v))
		return hashKey{kind: 's', s: v}
	case *Text:
		e.scan(len(v.S))
		return hashKey{kind: 's', s: v.S}
	case tuple:
		return e.tupleKey(v)
	case *record:
		return e.tupleKey(v.tuple)
	case *undefined:
		e.soft(v)
		return hashKey{kind: 'u'}
	}
	e.fail("unhashable type: '" + typeName(v) + "'")
	return hashKey{}
}

func (e *exec) tupleKey(t tuple) hashKey {
	e.enter()
	defer e.leave()
	var b []byte
	for _, v := range t {
		e.step(1)
		k := e.key(v)
		b = append(b, k.kind)
		b = strconv.AppendUint(b, k.n, 16)
		b = append(b, ':')
		b = strconv.AppendInt(b, int64(len(k.s)), 10)
		b = append(b, ':')
		b = append(b, k.s...)
		e.build(len(k.s))
	}
	return hashKey{kind: 't', s: string(b)}
}

func (d *dict) find(e *exec, k any) int {
	if d.index == nil {
		h := e.key(k)
		for i, have := range d.keys {
			if e.key(have) == h {
				return i
			}
		}
		return -1
	}
	if i, ok := d.index[e.key(k)]; ok {
		return i
	}
	return -1
}

// set is for dicts under construction and namespaces.
func (d *dict) set(e *exec, k, v any) {
	if i := d.find(e, k); i >= 0 {
		d.values[i] = v
		return
	}
	e.buildCells(2)
	d.keys = append(d.keys, k)
	d.values = append(d.values, v)
	if d.index != nil {
		d.index[e.key(k)] = len(d.keys) - 1
	} else if len(d.keys) > smallDict {
		d.index = make(map[hashKey]int, 2*len(d.keys))
		for i, k := range d.keys {
			d.index[e.key(k)] = i
		}
	}
}

// The functions below treat both kinds of dict alike.

func dictLen(d any) int {
	switch d := d.(type) {
	case *dict:
		return len(d.keys)
	case *ordered.Map:
		return d.Len()
	}
	return 0
}

func isDict(v any) bool {
	switch v.(type) {
	case *dict, *ordered.Map:
		return true
	}
	return false
}

func (e *exec) dictAt(d any, i int) (k, v any) {
	switch d := d.(type) {
	case *dict:
		return d.keys[i], d.values[i]
	case *ordered.Map:
		k, v := d.At(i)
		return k, e.entry(v)
	}
	return nil, nil
}

func (e *exec) dictGet(d, k any) (any, bool) {
	switch d := d.(type) {
	case *dict:
		if i := d.find(e, k); i >= 0 {
			return d.values[i], true
		}
	case *ordered.Map:
		s, _, ok := asString(k)
		if !ok {
			e.key(k) // fails where Python would
			return nil, false
		}
		if v, ok := d.Get(s); ok {
			return e.entry(v), true
		}
	}
	return nil, false
}

func (e *exec) viewItems(v *dictView) []any {
	n := dictLen(v.d)
	e.buildCells(n)
	out := make([]any, n)
	for i := range out {
		k, x := e.dictAt(v.d, i)
		switch v.kind {
		case "keys":
			out[i] = k
		case "values":
			out[i] = x
		default:
			e.buildCells(2)
			out[i] = tuple{k, x}
		}
	}
	return out
}

// newDict is dict(...) and namespace(...): a mapping or pairs, then names.
func (e *exec) newDict(pos []any, kw []kwarg) *dict {
	d := &dict{}
	if len(pos) > 1 {
		e.fail("dict expected at most 1 argument")
	}
	if len(pos) == 1 {
		if isDict(pos[0]) {
			for i := range dictLen(pos[0]) {
				e.step(1)
				k, v := e.dictAt(pos[0], i)
				d.set(e, k, v)
			}
		} else {
			for _, it := range e.items(pos[0]) {
				e.step(1)
				pair := e.items(e.entry(it))
				if len(pair) != 2 {
					e.fail("dict needs pairs of a key and a value")
				}
				d.set(e, e.entry(pair[0]), e.entry(pair[1]))
			}
		}
	}
	for _, a := range kw {
		d.set(e, a.name, a.v)
	}
	return d
}
