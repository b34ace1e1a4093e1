package readers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

const (
	tailBytes      = 128 << 10 // read first; holds most footers
	maxFooterBytes = 64 << 20  // 100,000 column chunks come to about 10 MiB
	// footerItem bounds what a footer's structures may come to in memory: on average a real one takes far more bytes in the
	// file than this.
	footerItem      = 8
	maxSchemaDepth  = 64
	maxSchemaLeaves = 20_000
)

// parquetFile is an opened footer: checked, but nothing of the pages is.
type parquetFile struct {
	obj    Object
	meta   format.FileMetaData
	schema *parquet.Schema
	root   *node
	leaves []*leaf
	first  []int64 // row index of each row group's first row
}

// leaf is a primitive column.
type leaf struct {
	index          int
	path           string
	physical       format.Type
	length         int // of FIXED_LEN_BYTE_ARRAY
	maxRep, maxDef int
	element        *format.SchemaElement
}

// node is a column or a group of the schema's tree.
type node struct {
	name     string
	repeated bool
	optional bool
	rep, def int // levels at which an entry of it is there
	children []*node
	leaf     *leaf
	lo, hi   int // range of its leaves
	element  *format.SchemaElement
}

// openParquetFile reads and checks the footer.
func openParquetFile(ctx context.Context, obj Object) (f *parquetFile, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, brokenf(obj, "footer", "", "malformed: %v", p)
		}
	}()
	footer, err := readFooter(ctx, obj)
	if err != nil {
		return nil, err
	}
	f = &parquetFile{obj: obj}
	if err := f.parse(footer); err != nil {
		return nil, brokenf(obj, "footer", "", "%w", err)
	}
	pf, err := parquet.OpenFile(&footerAt{footer, obj.Size()}, obj.Size(), parquet.OptimisticRead(true), parquet.ReadBufferSize(len(footer)+8),
		parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, brokenf(obj, "footer", "", "%w", err)
	}
	f.schema = pf.Schema()
	if n := len(f.schema.Columns()); n != len(f.leaves) {
		return nil, brokenf(obj, "footer", "", "a schema of %d columns is read as %d", len(f.leaves), n)
	}
	return f, nil
}

// readFooter returns the footer's bytes, of which only the length is checked.
func readFooter(ctx context.Context, obj Object) ([]byte, error) {
	size := obj.Size()
	if size < 12 {
		return nil, brokenf(obj, "", "", "a Parquet file has at least 12 bytes, this one %d", size)
	}
	tail, err := fetch(ctx, obj, max(0, size-tailBytes), size)
	if err != nil {
		return nil, err
	}
	end := len(tail) - 8
	switch magic := string(tail[end+4:]); magic {
	case "PAR1":
	case "PARE":
		return nil, brokenf(obj, "", "", "Parquet with an encrypted footer is not supported")
	default:
		return nil, &FileError{URL: obj.Name(), Truncated: true, Hint: "copy it again", Err: errors.New("it does not end with PAR1")}
	}
	n := int64(leUint32(tail[end:]))
	if n > size-12 {
		return nil, brokenf(obj, "footer", "", "it claims %d bytes in a file of %d", n, size)
	}
	if n > maxFooterBytes {
		return nil, brokenf(obj, "footer", "", "it has %d bytes, more than the limit of %d", n, maxFooterBytes)
	}
	if n > int64(end) {
		return fetch(ctx, obj, size-8-n, size-8)
	}
	return tail[int64(end)-n : end], nil
}

// fetch reads the bytes [from, to).
func fetch(ctx context.Context, obj Object, from, to int64) ([]byte, error) {
	r := obj.NewReader(ctx, from, to-from)
	defer r.Close()
	b := make([]byte, to-from)
	_, err := io.ReadFull(r, b)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = brokenf(obj, "", "", "it ends before byte %d", to)
	}
	return b, err
}

// footerAt serves the footer, and the magic at the start, as if it were the file.
type footerAt struct {
	footer []byte
	size   int64
}

func (f *footerAt) ReadAt(p []byte, off int64) (int, error) {
	if off == 0 && len(p) <= 4 {
		return copy(p, "PAR1"), nil
	}
	start := f.size - 8 - int64(len(f.footer))
	if off < start {
		return 0, fmt.Errorf("read at %d, before the footer", off)
	}
	tail := append(f.footer[:len(f.footer):len(f.footer)], byte(len(f.footer)), byte(len(f.footer)>>8), byte(len(f.footer)>>16), byte(len(f.footer)>>24), 'P', 'A', 'R', '1')
	return bytes.NewReader(tail).ReadAt(p, off-start)
}

// parse decodes the footer after a walk that bounds what decoding can allocate.
func (f *parquetFile) parse(footer []byte) error {
	w := &thriftWalk{r: bufio.NewReader(bytes.NewReader(footer)), left: int64(len(footer))}
	if err := w.skip(thriftStruct, 0); err != nil {
		return err
	}
	if w.items*footerItem > int64(len(footer))+64<<10 {
		return fmt.Errorf("%w: %d structures in %d bytes", errThrift, w.items, len(footer))
	}
	if w.left == 28 {
		return errors.New("a signed footer of an encrypted file is not supported")
	}
	if w.left != 0 {
		return fmt.Errorf("%w: %d bytes behind it", errThrift, w.left)
	}
	if err := thrift.Unmarshal(new(thrift.CompactProtocol), footer, &f.meta); err != nil {
		return err
	}
	if f.meta.EncryptionAlgorithm.Value != nil {
		return errors.New("encrypted columns are not supported")
	}
	if err := f.parseSchema(); err != nil {
		return err
	}
	return f.checkGroups()
}

func (f *parquetFile) parseSchema() error {
	if len(f.meta.Schema) == 0 {
		return errors.New("the schema is empty")
	}
	at := 0
	root, err := f.parseNode(&at, 0, 0, 0, "")
	if err != nil {
		return err
	}
	if at != len(f.meta.Schema) {
		return fmt.Errorf("the schema has %d elements, its tree %d", len(f.meta.Schema), at)
	}
	if root.leaf != nil {
		return errors.New("the schema's root is a column")
	}
	seen := map[string]bool{}
	for _, c := range root.children {
		if seen[c.name] {
			return fmt.Errorf("two columns are named %q", c.name)
		}
		seen[c.name] = true
	}
	f.root = root
	return nil
}

func (f *parquetFile) parseNode(at *int, depth, rep, def int, path string) (*node, error) {
	if *at >= len(f.meta.Schema) {
		return nil, errors.New("the schema's tree is larger than its list")
	}
	if depth > maxSchemaDepth {
		return nil, fmt.Errorf("the schema is nested deeper than %d", maxSchemaDepth)
	}
	e := &f.meta.Schema[*at]
	*at++
	n := &node{name: e.Name, element: e, lo: len(f.leaves)}
	if depth > 0 { // the root's own repetition means nothing
		r, ok := e.RepetitionType.Get()
		if !ok {
			return nil, fmt.Errorf("column %q has no repetition type", e.Name)
		}
		switch r {
		case format.Required:
		case format.Optional:
			n.optional = true
			def++
		case format.Repeated:
			n.repeated = true
			def++
			rep++
		default:
			return nil, fmt.Errorf("column %q has the repetition type %d", e.Name, r)
		}
		path = strings.TrimPrefix(path+"."+e.Name, ".")
	}
	n.rep, n.def = rep, def
	children, _ := e.NumChildren.Get()
	if typ, ok := e.Type.Get(); ok && children == 0 {
		length, _ := e.TypeLength.Get()
		if typ < format.Boolean || typ > format.FixedLenByteArray || typ == format.FixedLenByteArray && (length <= 0 || length > maxPageBytes) {
			return nil, fmt.Errorf("column %q has the type %d of length %d", path, typ, length)
		}
		if len(f.leaves) >= maxSchemaLeaves {
			return nil, fmt.Errorf("the schema has more than %d columns", maxSchemaLeaves)
		}
		n.leaf = &leaf{index: len(f.leaves), path: path, physical: typ, length: int(length), maxRep: rep, maxDef: def, element: e}
		f.leaves = append(f.leaves, n.leaf)
		n.hi = len(f.leaves)
		return n, nil
	}
	if children < 0 {
		return nil, fmt.Errorf("group %q has %d children", path, children)
	}
	for range children {
		c, err := f.parseNode(at, depth+1, rep, def, path)
		if err != nil {
			return nil, err
		}
		n.children = append(n.children, c)
	}
	if n.hi = len(f.leaves); n.lo == n.hi && depth > 0 {
		return nil, fmt.Errorf("group %q has no columns", path)
	}
	return n, nil
}

// checkGroups checks every column chunk's place and kind.
func (f *parquetFile) checkGroups() error {
	total := int64(0)
	for i := range f.meta.RowGroups {
		g := &f.meta.RowGroups[i]
		f.first = append(f.first, total)
		if g.NumRows < 0 || total+g.NumRows < total {
			return fmt.Errorf("row group %d has %d rows", i, g.NumRows)
		}
		total += g.NumRows
		if len(g.Columns) != len(f.leaves) {
			return fmt.Errorf("row group %d has %d columns, the schema %d", i, len(g.Columns), len(f.leaves))
		}
		for j := range g.Columns {
			if err := f.checkChunk(&g.Columns[j], f.leaves[j], g.NumRows); err != nil {
				return fmt.Errorf("row group %d, column %s: %w", i, f.leaves[j].path, err)
			}
		}
	}
	if total != f.meta.NumRows {
		return fmt.Errorf("it says %d rows, its row groups %d", f.meta.NumRows, total)
	}
	return nil
}

func (f *parquetFile) checkChunk(c *format.ColumnChunk, l *leaf, rows int64) error {
	m := &c.MetaData
	from, size := chunkRange(m)
	switch {
	case c.FilePath != "":
		return fmt.Errorf("its data lie in another file, %q, which is not supported", c.FilePath)
	case c.CryptoMetadata.Value != nil || len(c.EncryptedColumnMetadata) > 0:
		return errors.New("encrypted columns are not supported")
	case m.Type != l.physical:
		return fmt.Errorf("it holds %s, the schema says %s", m.Type, l.physical)
	case m.NumValues < rows && l.maxRep > 0 || m.NumValues != rows && l.maxRep == 0:
		return fmt.Errorf("it has %d values in %d rows", m.NumValues, rows)
	case rows == 0 && m.NumValues == 0: // writers leave the place of an empty chunk unset
	case size < 0 || from < 4 && size > 0 || from > f.obj.Size()-8 || size > f.obj.Size()-8-from:
		return fmt.Errorf("its %d bytes from %d do not lie in the file's %d", size, from, f.obj.Size())
	}
	return supported(m.Codec)
}

// chunkRange is where a chunk's pages lie.
func chunkRange(m *format.ColumnMetaData) (from, size int64) {
	from = m.DataPageOffset
	if d := m.DictionaryPageOffset; d > 0 && d < from {
		from = d
	}
	return from, m.TotalCompressedSize
}

// levelBits is the width of levels up to max.
func levelBits(max int) uint { return uint(bits.Len(uint(max))) }

// typeName is a column's type in words.
func (n *node) typeName() string {
	s := ""
	switch {
	case n.leaf != nil:
		s = leafTypeName(n.leaf)
	case n.listElement() != nil:
		return "list<" + n.listElement().typeName() + ">"
	case n.mapEntry() != nil:
		e := n.mapEntry()
		return "map<" + e.children[0].typeName() + ", " + e.children[1].typeName() + ">"
	default:
		parts := make([]string, len(n.children))
		for i, c := range n.children {
			parts[i] = c.name + ": " + c.typeName()
		}
		s = "struct<" + strings.Join(parts, ", ") + ">"
	}
	if n.repeated {
		return "list<" + s + ">"
	}
	return s
}

// annotated tells whether a group carries a logical or converted type.
func (n *node) annotated(logical string, converted ...deprecated.ConvertedType) bool {
	if v := n.element.LogicalType.Value; v != nil {
		return v.String() == logical
	}
	c, ok := n.element.ConvertedType.Get()
	for _, want := range converted {
		if ok && c == want {
			return true
		}
	}
	return false
}

// listElement is the element of a LIST group, by the format's rules for old writers too; nil for other nodes. The repeated
// node around it (its parent, or itself) is n.children[0].
func (n *node) listElement() *node {
	if n.leaf != nil || len(n.children) != 1 || !n.children[0].repeated || !n.annotated("LIST", deprecated.List) {
		return nil
	}
	r := n.children[0]
	if r.leaf != nil || len(r.children) != 1 || r.name == "array" || r.name == n.name+"_tuple" || r.children[0].repeated {
		return r
	}
	return r.children[0]
}

// mapEntry is the repeated key_value group of a MAP; nil for other nodes.
func (n *node) mapEntry() *node {
	if n.leaf != nil || len(n.children) != 1 || !n.children[0].repeated || len(n.children[0].children) != 2 ||
		!n.annotated("MAP", deprecated.Map, deprecated.MapKeyValue) {
		return nil
	}
	return n.children[0]
}
