package writers

import (
	"bytes"
	"errors"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// rowJSON turns Parquet rows into members of a JSON object: groups become objects, lists arrays, maps objects (of equal
// keys the last counts, as the format says), leaves what leafJSON says. Its scratch makes it unfit for concurrent use.
type rowJSON struct {
	columns []*jsonNode
	values  [][]parquet.Value // per leaf of the source
	bad     bool              // the row's levels contradict each other
}

type shape uint8

const (
	leafShape shape = iota
	groupShape
	listShape // children[0] is the repeated node, element its content
	mapShape  // children[0] is the repeated node with key and value
)

type jsonNode struct {
	*node
	key      []byte // `"name":`
	shape    shape
	children []*jsonNode
	element  *jsonNode
	text     leafText
	sub      [][]parquet.Value // scratch: the columns of one element
	at       []int             // scratch: where the next element starts in each column
}

var errLevels = errors.New("carried row has contradictory levels")

func newRowJSON(top []*node) *rowJSON {
	r := &rowJSON{}
	for _, n := range top {
		r.columns = append(r.columns, newJSONNode(n))
		r.values = append(r.values, make([][]parquet.Value, max(0, n.last-len(r.values)))...)
	}
	return r
}

func newJSONNode(n *node) *jsonNode {
	j := &jsonNode{node: n, key: append(appendString(nil, n.name), ':'), shape: groupShape,
		sub: make([][]parquet.Value, n.last-n.first), at: make([]int, n.last-n.first)}
	if n.leaf() {
		j.shape, j.text = leafShape, leafTextOf(n)
		return j
	}
	for _, c := range n.children {
		j.children = append(j.children, newJSONNode(c))
	}
	if len(n.children) != 1 || !n.children[0].repeated {
		return j
	}
	switch r := j.children[0]; {
	case n.isMap() && !r.leaf() && len(r.children) == 2:
		j.shape = mapShape
	case n.isList():
		j.shape, j.element = listShape, r
		// Backward compatibility rules of LogicalTypes.md: these layouts repeat the element itself.
		if !r.leaf() && len(r.children) == 1 && r.name != "array" && r.name != n.name+"_tuple" {
			j.element = r.children[0]
		}
	}
	return j
}

func (n *node) isList() bool {
	_, ok := n.logical.(*format.ListType)
	return ok || n.logical == nil && n.converted != nil && *n.converted == deprecated.List
}

func (n *node) isMap() bool {
	_, ok := n.logical.(*format.MapType)
	return ok || n.logical == nil && n.converted != nil && (*n.converted == deprecated.Map || *n.converted == deprecated.MapKeyValue)
}

// appendMembers writes the row's columns as members, separated by commas, and appends where they stand to list.
func (r *rowJSON) appendMembers(dst []byte, values parquet.Row, list []member) ([]byte, []member, error) {
	clear(r.values)
	for i := 0; i < len(values); {
		j, column := i+1, values[i].Column()
		for j < len(values) && values[j].Column() == column {
			j++
		}
		if column < 0 {
			return dst, list, errLevels
		}
		if column < len(r.values) {
			r.values[column] = values[i:j]
		}
		i = j
	}
	r.bad = false
	for i, n := range r.columns {
		if i > 0 {
			dst = append(dst, ',')
		}
		m := member{name: len(dst)}
		dst = append(dst, n.key...)
		m.nameEnd, m.value = len(dst)-1, len(dst)
		dst = r.append(dst, n, r.values[n.first:n.last])
		m.end = len(dst)
		list = append(list, m)
	}
	if r.bad {
		return dst, list, errLevels
	}
	return dst, list, nil
}

// append writes the value of n; columns are its leaves' values, cut to this one instance.
func (r *rowJSON) append(dst []byte, n *jsonNode, columns [][]parquet.Value) []byte {
	for _, c := range columns {
		if len(c) == 0 {
			r.bad = true
			return append(dst, "null"...)
		}
	}
	switch {
	case n.repeated: // a repeated field outside of a list is a list of itself
		return r.appendElements(dst, n, n, columns)
	case len(columns) == 0:
		return append(dst, "{}"...)
	case n.optional && columns[0][0].DefinitionLevel() < n.def:
		return append(dst, "null"...)
	}
	return r.appendPresent(dst, n, columns)
}

func (r *rowJSON) appendPresent(dst []byte, n *jsonNode, columns [][]parquet.Value) []byte {
	switch n.shape {
	case leafShape:
		if columns[0][0].IsNull() {
			return append(dst, "null"...)
		}
		return n.text.append(dst, columns[0][0])
	case listShape:
		return r.appendElements(dst, n.children[0], n.element, columns)
	case mapShape:
		return r.appendMap(dst, n.children[0], columns)
	}
	dst = append(dst, '{')
	for i, c := range n.children {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = r.append(append(dst, c.key...), c, columns[c.first-n.first:c.last-n.first])
	}
	return append(dst, '}')
}

// appendElements writes the array of what the repeated node holds; element is the node itself or its only child.
func (r *rowJSON) appendElements(dst []byte, repeated, element *jsonNode, columns [][]parquet.Value) []byte {
	dst = append(dst, '[')
	for i := 0; r.next(repeated, columns, i); i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		if element == repeated {
			dst = r.appendPresent(dst, element, repeated.sub)
		} else {
			dst = r.append(dst, element, repeated.sub)
		}
	}
	return append(dst, ']')
}

// next cuts the i-th element of a repeated node into its sub; false after the last.
func (r *rowJSON) next(n *jsonNode, columns [][]parquet.Value, i int) bool {
	if i == 0 {
		if columns[0][0].DefinitionLevel() < n.def {
			return false
		}
		clear(n.at)
	}
	more := n.at[0] < len(columns[0])
	for c, values := range columns {
		start := n.at[c]
		if start < len(values) != more {
			r.bad = true
			return false
		}
		if !more {
			continue
		}
		end := start + 1
		for end < len(values) && values[end].RepetitionLevel() > n.rep {
			end++
		}
		n.sub[c], n.at[c] = values[start:end], end
	}
	return more
}

func (r *rowJSON) appendMap(dst []byte, entries *jsonNode, columns [][]parquet.Value) []byte {
	key, value := entries.children[0], entries.children[1]
	var seen map[string]int // key -> its place among the spans
	type span struct{ start, keyEnd, end int }
	var spans []span
	start, doubled := len(dst), false
	for i := 0; r.next(entries, columns, i); i++ {
		s := span{start: len(dst)}
		dst = r.append(dst, key, entries.sub[:key.last-key.first])
		if k := dst[s.start:]; len(k) == 0 || k[0] != '"' {
			quoted := appendString(nil, bytes.Clone(k))
			dst = append(dst[:s.start], quoted...)
		}
		s.keyEnd = len(dst)
		dst = r.append(append(dst, ':'), value, entries.sub[value.first-entries.first:])
		s.end = len(dst)
		if seen == nil {
			seen = make(map[string]int)
		}
		name := string(dst[s.start:s.keyEnd])
		if at, ok := seen[name]; ok {
			spans[at].end, doubled = spans[at].start, true // emptied
		}
		seen[name] = len(spans)
		spans = append(spans, s)
	}
	text := bytes.Clone(dst[start:])
	dst = append(dst[:start], '{')
	first := true
	for _, s := range spans {
		if doubled && s.end == s.start {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(dst, text[s.start-start:s.end-start]...)
	}
	return append(dst, '}')
}
