package writers

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// arrowSchemaKey is the footer key under which Arrow's own writers keep the schema that they were given: base64 of an
// IPC schema message. Readers built on Arrow take from it what Parquet's types cannot say (large_string, dictionaries,
// fixed_size_list, time zones), but only if it names exactly the file's columns.
const arrowSchemaKey = "ARROW:schema"

type arrowSchema struct {
	*arrow.Schema
	narrow map[decimalPlace]uint32 // decimals of 32 and 64 bits, which the library does not know and holds as 256
}

const wideDecimal = 256

// decodeArrowSchema returns nil for what is not a schema, or has types that the library does not know: readers then see
// Parquet's types, which hold the same values.
func decodeArrowSchema(value string) (s *arrowSchema) {
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil
	}
	narrow := make(map[decimalPlace]uint32)
	if err := walkSchemaMessage(raw, func(place decimalPlace, width []byte) {
		if n := binary.LittleEndian.Uint32(width); n == 32 || n == 64 {
			narrow[place] = n
			binary.LittleEndian.PutUint32(width, wideDecimal)
		}
	}); err != nil {
		return nil
	}
	defer func() {
		if recover() != nil { // foreign bytes: the decoder indexes without asking
			s = nil
		}
	}()
	r, err := ipc.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	defer r.Release()
	if r.Schema() == nil {
		return nil
	}
	return &arrowSchema{r.Schema(), narrow}
}

// fits tells whether the schema names the given columns, in their order.
func (s *arrowSchema) fits(top []*node) bool {
	if s.NumFields() != len(top) {
		return false
	}
	for i, n := range top {
		if s.Field(i).Name != n.name {
			return false
		}
	}
	return true
}

// annotate marks the leaves that are FLOAT16, where leaves match one to one.
func (s *arrowSchema) annotate(leaves []*node) {
	var types []arrow.DataType
	for _, f := range s.Fields() {
		types = appendLeafTypes(types, f.Type)
	}
	if len(types) != len(leaves) {
		return
	}
	for i, n := range leaves {
		if t := n.field.Type(); types[i].ID() == arrow.FLOAT16 && t.Kind() == parquet.FixedLenByteArray && t.Length() == 2 {
			n.logical = &format.Float16Type{}
		}
	}
}

func appendLeafTypes(dst []arrow.DataType, t arrow.DataType) []arrow.DataType {
	switch t := t.(type) {
	case arrow.ExtensionType:
		return appendLeafTypes(dst, t.StorageType())
	case *arrow.DictionaryType:
		return appendLeafTypes(dst, t.ValueType)
	case arrow.NestedType:
		for _, f := range t.Fields() {
			dst = appendLeafTypes(dst, f.Type)
		}
		return dst
	}
	return append(dst, t)
}

// extend encodes the schema again, with the columns that are kept and then ours. It fails where the library cannot
// write what it has read.
func (s *arrowSchema) extend(keep func(string) bool, prefix string, own []*Column) (value string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("encode Arrow schema: %v", r)
		}
	}()
	var fields []arrow.Field
	var from []int // the source's columns that they are
	for i, f := range s.Fields() {
		if keep(f.Name) {
			fields, from = append(fields, f), append(from, i)
		}
	}
	for _, c := range own {
		fields = append(fields, arrow.Field{Name: prefix + c.Name, Type: c.Type.arrow(), Nullable: c.Nullable})
	}
	meta := s.Metadata()
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(arrow.NewSchema(fields, &meta)))
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("encode Arrow schema: %w", err)
	}
	err = walkSchemaMessage(buf.Bytes(), func(place decimalPlace, width []byte) {
		if place.column < len(from) {
			place.column = from[place.column]
			if n, ok := s.narrow[place]; ok && binary.LittleEndian.Uint32(width) == wideDecimal {
				binary.LittleEndian.PutUint32(width, n)
			}
		}
	})
	if err != nil {
		return "", fmt.Errorf("encode Arrow schema: %w", err)
	}
	return base64.StdEncoding.EncodeToString(buf.Bytes()), nil
}

func (t Type) arrow() arrow.DataType {
	switch t {
	case Int64:
		return arrow.PrimitiveTypes.Int64
	case Int32:
		return arrow.PrimitiveTypes.Int32
	case Double:
		return arrow.PrimitiveTypes.Float64
	case Int32List:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: arrow.PrimitiveTypes.Int32})
	}
	return arrow.BinaryTypes.String
}
