package writers

import (
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding"
)

// orderedGroup is a root whose columns keep their order; the library's own Group is a map and sorts them by name.
type orderedGroup struct {
	parquet.Group
	fields []parquet.Field
}

func (g orderedGroup) Fields() []parquet.Field { return g.fields }

// schema needs the Group's map filled only where Go types are derived from it, which nothing here asks for.
func (g orderedGroup) schema(name string) *parquet.Schema {
	g.Group = parquet.Group{}
	for _, f := range g.fields {
		g.Group[f.Name()] = f
	}
	return parquet.NewSchema(name, g)
}

// sourceField is a column of the source under an encoding that is always right to write. The library reports the first
// encoding that a chunk's footer lists, which may be the RLE of its levels; writing under that fails.
// Dictionaries stay dictionaries; everything else is plain and left to zstd.
type sourceField struct{ parquet.Field }

func (f sourceField) Encoding() encoding.Encoding {
	if !f.Leaf() {
		return nil
	}
	if e := f.Field.Encoding(); e != nil && isDictionary(e) && f.Type().Kind() > parquet.Boolean {
		return &parquet.RLEDictionary
	}
	return &parquet.Plain
}

// Compression leaves the choice to the writer, whatever the source had.
func (f sourceField) Compression() compress.Codec { return nil }

func isDictionary(e encoding.Encoding) bool {
	switch e.Encoding() {
	case parquet.RLEDictionary.Encoding(), parquet.PlainDictionary.Encoding():
		return true
	}
	return false
}

func (f sourceField) Fields() []parquet.Field {
	fields := f.Field.Fields()
	out := make([]parquet.Field, len(fields))
	for i, c := range fields {
		out[i] = sourceField{c}
	}
	return out
}

func namedField(name string, n parquet.Node) parquet.Field {
	return parquet.Group{name: n}.Fields()[0]
}

// parquetField is the column's place in the schema: one leaf, optional where the column is nullable.
func (c *Column) parquetField(prefix string) parquet.Field {
	var n parquet.Node
	switch c.Type {
	case String:
		n = parquet.String()
	case JSON:
		n = parquet.JSON()
	case Int64:
		n = parquet.Int(64)
	case Int32:
		n = parquet.Int(32)
	case Double:
		n = parquet.Leaf(parquet.DoubleType)
	case Int32List:
		n = parquet.List(parquet.Encoded(parquet.Int(32), &parquet.Plain))
	}
	switch {
	case c.dict:
		n = parquet.Encoded(n, &parquet.RLEDictionary)
	case n.Leaf():
		n = parquet.Encoded(n, &parquet.Plain)
	}
	if c.Nullable {
		n = parquet.Optional(n)
	}
	return namedField(prefix+c.Name, n)
}
