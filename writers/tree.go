package writers

import (
	"fmt"
	"slices"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// node is one column or group of a Parquet schema, with what is needed to check, move and print the values of a row.
type node struct {
	name      string
	field     parquet.Field
	logical   format.LogicalTypeValue   // nil where the source annotates nothing
	converted *deprecated.ConvertedType // the older annotation
	optional  bool
	repeated  bool
	rep, def  int // levels of a value that is present here
	first     int // leaf columns [first, last) lie below
	last      int
	children  []*node
}

func (n *node) leaf() bool { return n.field.Leaf() }

// tree is the schema of a Parquet source.
type tree struct {
	name   string // of the root
	top    []*node
	leaves []*node
	// elements is the source's own schema in depth-first order, the root left out, where it was given and fits.
	elements []format.SchemaElement
	arrow    *arrowSchema // the decoded ARROW:schema; nil where there is none that fits
}

// newTree reads the source's schema. Annotations come from the footer's elements where the reader gave them; without
// them FLOAT16 is known from ARROW:schema alone.
func newTree(s *row.Schema) (*tree, error) {
	schema := s.Parquet.(*parquet.Schema) // Check has looked
	t := &tree{name: schema.Name()}
	for _, f := range schema.Fields() {
		t.top = append(t.top, t.add(f, 0, 0))
	}
	if len(t.leaves) == 0 {
		return nil, fmt.Errorf("parquet source has no columns")
	}
	if all, ok := s.ParquetElements.([]format.SchemaElement); ok && len(all) > 0 {
		rest := all[1:]
		if t.fits(t.top, &rest) && len(rest) == 0 {
			t.elements = all[1:]
			rest = all[1:]
			annotate(t.top, &rest)
		}
	}
	for _, kv := range s.Metadata {
		if kv.Key == arrowSchemaKey {
			t.arrow = decodeArrowSchema(kv.Value)
		}
	}
	if t.arrow != nil && !t.arrow.fits(t.top) {
		t.arrow = nil
	}
	if t.elements == nil && t.arrow != nil {
		t.arrow.annotate(t.leaves)
	}
	return t, nil
}

func (t *tree) add(f parquet.Field, rep, def int) *node {
	n := &node{name: f.Name(), field: f, optional: f.Optional(), repeated: f.Repeated(), first: len(t.leaves)}
	if n.repeated {
		rep++
	}
	if n.repeated || n.optional {
		def++
	}
	n.rep, n.def = rep, def
	if lt := f.Type().LogicalType(); lt != nil {
		n.logical = lt.Value
	}
	n.converted = f.Type().ConvertedType()
	if f.Leaf() {
		t.leaves = append(t.leaves, n)
	} else {
		for _, c := range f.Fields() {
			n.children = append(n.children, t.add(c, rep, def))
		}
	}
	n.last = len(t.leaves)
	return n
}

// fits tells whether the elements spell the same tree, and takes what it walked off their front.
func (t *tree) fits(nodes []*node, elements *[]format.SchemaElement) bool {
	for _, n := range nodes {
		if len(*elements) == 0 {
			return false
		}
		e := &(*elements)[0]
		*elements = (*elements)[1:]
		if e.Name != n.name || e.Type.Valid != n.leaf() || int(e.NumChildren.V) != len(n.children) || !t.fits(n.children, elements) {
			return false
		}
	}
	return true
}

func annotate(nodes []*node, elements *[]format.SchemaElement) {
	for _, n := range nodes {
		e := &(*elements)[0]
		*elements = (*elements)[1:]
		if e.LogicalType.Value != nil {
			n.logical = e.LogicalType.Value
		}
		if e.ConvertedType.Valid {
			n.converted = &e.ConvertedType.V
		}
		annotate(n.children, elements)
	}
}

// keep is the tree's top-level columns that are carried, in order.
func (t *tree) keep(carries func(string) bool) []*node {
	return slices.DeleteFunc(slices.Clone(t.top), func(n *node) bool { return !carries(n.name) })
}

// check makes sure that values are one whole row of the tree: what a wrong row would do inside the Parquet library is a
// file that nobody can read, or a crash.
func (t *tree) check(values parquet.Row) error {
	column := -1
	for i := range values {
		v := &values[i]
		if c := v.Column(); c != column {
			if column++; c != column || c >= len(t.leaves) || v.RepetitionLevel() != 0 {
				return fmt.Errorf("carried row is not in the schema's order at value %d", i)
			}
		}
		n := t.leaves[column]
		kind := n.field.Type().Kind()
		switch {
		case v.RepetitionLevel() > n.rep || v.DefinitionLevel() > n.def:
		case v.IsNull() && (v.DefinitionLevel() < n.def || kind < 0):
			continue
		case !v.IsNull() && v.DefinitionLevel() == n.def && v.Kind() == kind:
			continue
		}
		return fmt.Errorf("carried row has a value in column %q that does not fit its type", n.name)
	}
	if column != len(t.leaves)-1 {
		return fmt.Errorf("carried row has %d of %d columns", column+1, len(t.leaves))
	}
	return nil
}
