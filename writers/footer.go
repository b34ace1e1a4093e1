package writers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Keys of ours in a Parquet footer. Those of a source that was written by us are not copied: they speak of that file.
const (
	FooterPrefix       = "batchmill."
	FooterModel        = FooterPrefix + "model"
	FooterModelDigest  = FooterPrefix + "model_digest"
	FooterRunID        = FooterPrefix + "run_id"
	FooterRows         = FooterPrefix + "rows"
	FooterOK           = FooterPrefix + "ok"
	FooterErrors       = FooterPrefix + "errors"
	FooterSkipped      = FooterPrefix + "skipped"
	FooterResultDigest = FooterPrefix + "result_digest"
)

// maxStatistic bounds a column chunk's min and max in the footer. Without a bound a column of documents puts two whole
// documents there for every row group.
const maxStatistic = 256

// setMetadata writes the source's pairs, those that list the columns extended by ours, then the provenance.
func (p *parquetWriter) setMetadata() error {
	if p.tree != nil {
		for _, kv := range p.cfg.Source.Metadata {
			switch {
			case strings.HasPrefix(kv.Key, FooterPrefix):
			case kv.Key == arrowSchemaKey:
				if p.tree.arrow == nil {
					continue // it names other columns, or cannot be read: readers would refuse the file over it
				}
				value, err := p.tree.arrow.extend(p.cfg.carries, p.cfg.Prefix, p.own)
				if err != nil {
					return err
				}
				p.pw.SetKeyValueMetadata(kv.Key, value)
			case kv.Key == sparkSchemaKey:
				if value, ok := extendSparkSchema(kv.Value, p.cfg.carries, p.cfg.Prefix, p.own); ok {
					p.pw.SetKeyValueMetadata(kv.Key, value)
				}
			default:
				p.pw.SetKeyValueMetadata(kv.Key, kv.Value)
			}
		}
	}
	from := p.cfg.Provenance
	for _, kv := range []row.KeyValue{{Key: FooterModel, Value: from.Model}, {Key: FooterModelDigest, Value: from.ModelDigest}, {Key: FooterRunID, Value: from.RunID}} {
		if kv.Value != "" {
			p.pw.SetKeyValueMetadata(kv.Key, kv.Value)
		}
	}
	for _, kv := range p.cfg.Footer {
		p.pw.SetKeyValueMetadata(kv.Key, kv.Value)
	}
	return nil
}

func (p *parquetWriter) Close(footer ...row.KeyValue) (stats Stats, err error) {
	if p.closed {
		return p.stats, errors.New("parquet writer is closed")
	}
	p.closed = true
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("finish Parquet output: %v", r)
		}
	}()
	p.stats.ResultDigest = p.digest.sum()
	for _, kv := range []row.KeyValue{
		{Key: FooterRows, Value: strconv.FormatInt(p.stats.Rows, 10)},
		{Key: FooterOK, Value: strconv.FormatInt(p.stats.OK, 10)},
		{Key: FooterErrors, Value: strconv.FormatInt(p.stats.Errors, 10)},
		{Key: FooterSkipped, Value: strconv.FormatInt(p.stats.Skipped, 10)},
		{Key: FooterResultDigest, Value: p.stats.ResultDigest},
	} {
		p.pw.SetKeyValueMetadata(kv.Key, kv.Value)
	}
	for _, kv := range footer {
		p.pw.SetKeyValueMetadata(kv.Key, kv.Value)
	}
	if err := p.pw.Flush(); err != nil {
		return p.stats, fmt.Errorf("write row group: %w", err)
	}
	p.tail.hold = true
	if err := p.pw.Close(); err != nil {
		return p.stats, fmt.Errorf("write footer: %w", err)
	}
	if err := p.writeTail(p.tail.held, p.pw.File().Metadata()); err != nil {
		return p.stats, fmt.Errorf("write footer: %w", err)
	}
	if err := p.out.Flush(); err != nil {
		return p.stats, fmt.Errorf("write output: %w", err)
	}
	return p.stats, nil
}

// writeTail writes the page index and, in place of the library's footer, one with what it cannot say. All that the library
// wrote after the last row group is in held.
func (p *parquetWriter) writeTail(held []byte, meta *format.FileMetaData) error {
	const trailer = 8 // footer length, PAR1
	if len(held) < trailer {
		return io.ErrUnexpectedEOF
	}
	size := int(binary.LittleEndian.Uint32(held[len(held)-trailer:]))
	tail := held[:max(0, len(held)-trailer-size)]
	p.restoreSchema(meta)
	p.trimStatistics(meta)
	if len(meta.RowGroups) > 0 { // else there is no index, and the tail is the file's magic
		tail = compactIndexes(tail, p.tail.passed, meta)
	}
	footer := bytes.NewBuffer(tail)
	if err := thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(footer)).Encode(meta); err != nil {
		return err
	}
	size = footer.Len() - len(tail)
	footer.Write(binary.LittleEndian.AppendUint32(nil, uint32(size)))
	footer.WriteString("PAR1")
	_, err := p.out.Write(footer.Bytes())
	return err
}

// compactIndexes closes the gaps that dropped column indexes leave, since readers fetch the whole section by the sum of
// its lengths. held starts at the file's offset base and holds all indexes.
func compactIndexes(held []byte, base int64, meta *format.FileMetaData) []byte {
	var out []byte
	move := func(offset *int64, length int32) {
		if length > 0 {
			at := *offset - base
			*offset = base + int64(len(out))
			out = append(out, held[at:at+int64(length)]...)
		}
	}
	for g := range meta.RowGroups {
		for i := range meta.RowGroups[g].Columns {
			move(&meta.RowGroups[g].Columns[i].ColumnIndexOffset, meta.RowGroups[g].Columns[i].ColumnIndexLength)
		}
	}
	for g := range meta.RowGroups {
		for i := range meta.RowGroups[g].Columns {
			move(&meta.RowGroups[g].Columns[i].OffsetIndexOffset, meta.RowGroups[g].Columns[i].OffsetIndexLength)
		}
	}
	return out
}

// restoreSchema gives the carried columns the source's own schema elements, or at least FLOAT16 its annotation, which the
// library drops on reading.
func (p *parquetWriter) restoreSchema(meta *format.FileMetaData) {
	for i := range meta.Schema {
		if e := &meta.Schema[i]; e.Type.V != format.FixedLenByteArray {
			e.TypeLength.Valid = false // the library writes the width of integers in bits
		}
	}
	if p.tree == nil {
		return
	}
	var source []format.SchemaElement // of the kept columns
	for i, at := 0, 0; i < len(p.tree.top) && p.tree.elements != nil; i++ {
		n := p.tree.top[i]
		size := n.elements()
		if slices.Contains(p.kept, n) {
			source = append(source, p.tree.elements[at:at+size]...)
		}
		at += size
	}
	if source != nil {
		copy(meta.Schema[1:], source)
		return
	}
	at := 1
	for _, n := range p.kept {
		n.walk(func(n *node) {
			if _, ok := n.logical.(*format.Float16Type); ok {
				meta.Schema[at].LogicalType = format.LogicalType{Value: n.logical}
			}
			at++
		})
	}
}

// elements counts the schema elements of the node and all below.
func (n *node) elements() (count int) {
	n.walk(func(*node) { count++ })
	return count
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, c := range n.children {
		c.walk(visit)
	}
}

// trimStatistics drops min and max where the library orders values in another way than the format does, so that a reader
// which prunes by them would lose rows: decimals, half floats and intervals in bytes, INT96. It also drops long ones, and
// gives chunks of null columns the physical type that their schema says.
func (p *parquetWriter) trimStatistics(meta *format.FileMetaData) {
	var leaves []*node
	for _, n := range p.kept {
		leaves = append(leaves, p.tree.leaves[n.first:n.last]...)
	}
	var types []format.Type
	for i := range meta.Schema {
		if e := &meta.Schema[i]; e.Type.Valid {
			types = append(types, e.Type.V)
		}
	}
	for g := range meta.RowGroups {
		columns := meta.RowGroups[g].Columns
		for i := range columns {
			chunk := &columns[i].MetaData
			chunk.Type = types[i]
			unordered := i < len(leaves) && !leaves[i].ordered()
			if unordered {
				columns[i].ColumnIndexOffset, columns[i].ColumnIndexLength = 0, 0
			}
			if s := &chunk.Statistics; unordered || len(s.MinValue) > maxStatistic || len(s.MaxValue) > maxStatistic {
				s.Min, s.Max, s.MinValue, s.MaxValue = nil, nil, nil, nil
			}
		}
	}
}

// ordered tells whether comparing plain bytes, which the library does, is the format's order for the leaf's type.
func (n *node) ordered() bool {
	switch n.field.Type().Kind() {
	case parquet.Int96:
		return false
	case parquet.ByteArray, parquet.FixedLenByteArray:
		switch n.logical.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType, *format.BsonType, *format.UUIDType:
			return true
		case nil:
			return n.converted == nil || *n.converted == deprecated.UTF8 || *n.converted == deprecated.Enum ||
				*n.converted == deprecated.Json || *n.converted == deprecated.Bson
		}
		return false
	}
	return true
}
