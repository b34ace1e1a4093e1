package readers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// parquetReader yields the rows of a cut's row groups. It reads only the columns it needs, one page of each at a time.
// parquet-go owns schema, rows and writing; pages are decoded here (see parquet_decode.go for the reasons).
type parquetReader struct {
	ctx    context.Context
	f      *parquetFile
	groups []int
	want   []*leaf // in the file's order
	fields []*node
	carry  bool
	codecs *codecs

	group int // index into groups of the current one
	cols  []*columnReader
	rows  int64 // left in the current group
	row   int64 // index of the next record
	buf   parquet.Row
	ends  []int // end of each column's entries in buf
	asm   assembler
	err   error
}

func openParquet(ctx context.Context, obj Object, cut Cut, o Options) (*parquetReader, error) {
	f, err := openParquetFile(ctx, obj)
	if err != nil {
		return nil, err
	}
	r := &parquetReader{ctx: ctx, f: f, carry: o.Carry, codecs: &codecs{}, group: -1, asm: assembler{make([][]parquet.Value, len(f.leaves))}}
	if r.groups = cut.RowGroups; r.groups == nil {
		for i := range f.meta.RowGroups {
			r.groups = append(r.groups, i)
		}
	}
	for _, g := range r.groups {
		if g < 0 || g >= len(f.meta.RowGroups) {
			return nil, fmt.Errorf("read %s: there is no row group %d", obj.Name(), g)
		}
	}
	needed := map[*leaf]bool{}
	for _, n := range f.root.children {
		if slices.Contains(o.Columns, n.name) {
			r.fields = append(r.fields, n)
		}
		if o.Carry || slices.Contains(o.Columns, n.name) {
			for _, l := range f.leaves[n.lo:n.hi] {
				needed[l] = true
			}
		}
	}
	for _, l := range f.leaves {
		if needed[l] {
			r.want = append(r.want, l)
		}
	}
	return r, nil
}

func (r *parquetReader) Read() (rec *row.Record, err error) {
	if r.err != nil {
		return nil, r.err
	}
	defer func() {
		if p := recover(); p != nil {
			err = r.damaged("", fmt.Errorf("malformed: %v", p))
		}
		if err != nil {
			rec, r.err = nil, err
		}
	}()
	for r.rows == 0 {
		if err := r.nextGroup(); err != nil {
			return nil, err
		}
	}
	rec = &row.Record{Source: r.f.obj.Name(), Row: r.row, Offset: -1}
	r.buf, r.ends = r.buf[:0], r.ends[:0]
	for _, c := range r.cols {
		if r.buf, err = c.appendRow(r.buf); err != nil {
			return nil, r.inColumn(c, err)
		}
		r.ends = append(r.ends, len(r.buf))
	}
	r.rows--
	r.row++
	r.fillFields(rec)
	if r.carry {
		rec.Cells = cloneRow(r.buf)
	}
	return rec, nil
}

// nextGroup closes a row group and opens the next; io.EOF behind the last.
func (r *parquetReader) nextGroup() error {
	for _, c := range r.cols {
		if err := c.done(); err != nil {
			return r.inColumn(c, err)
		}
	}
	if err := r.closeColumns(); err != nil {
		return err
	}
	r.group++
	if r.group >= len(r.groups) {
		return io.EOF
	}
	g := r.groups[r.group]
	r.rows, r.row = r.f.meta.RowGroups[g].NumRows, r.f.first[g]
	if r.rows == 0 {
		return nil
	}
	var err error
	r.cols, err = r.f.openColumns(r.ctx, g, r.want, r.codecs)
	return err
}

func (r *parquetReader) closeColumns() error {
	var errs []error
	for _, c := range r.cols {
		errs = append(errs, c.close())
	}
	r.cols = nil
	return errors.Join(errs...)
}

func (r *parquetReader) inColumn(c *columnReader, err error) error {
	if !isDamage(err) {
		return err // the store's
	}
	return r.damaged(fmt.Sprintf(", column %s", c.l.path), err)
}

func (r *parquetReader) damaged(where string, err error) error {
	if r.group >= 0 && r.group < len(r.groups) {
		where = fmt.Sprintf("row group %d, row %d%s", r.groups[r.group], r.row, where)
	}
	return &FileError{URL: r.f.obj.Name(), Where: where, Err: err, Hint: "copy it again, or write it anew; the rows before are good"}
}

func (r *parquetReader) fillFields(rec *row.Record) {
	if len(r.fields) == 0 {
		return
	}
	from := 0
	for i, l := range r.want {
		r.asm.cur[l.index] = r.buf[from:r.ends[i]]
		from = r.ends[i]
	}
	rec.Fields = make(map[string]any, len(r.fields))
	for _, n := range r.fields {
		v, err := r.asm.value(n)
		if err != nil {
			rec.Err = row.Errorf(err.Code, "%s row %d: %s", rec.Source, rec.Row, err.Message)
			rec.Fields = nil
			return
		}
		rec.Fields[n.name] = v
	}
}

// cloneRow copies a row out of its pages, with one allocation for all its bytes.
func cloneRow(in parquet.Row) parquet.Row {
	size := 0
	for i := range in {
		if k := in[i].Kind(); k == parquet.ByteArray || k == parquet.FixedLenByteArray {
			size += len(in[i].ByteArray())
		}
	}
	out, arena := slices.Clone(in), make([]byte, 0, size)
	for i, v := range out {
		k := v.Kind()
		if k != parquet.ByteArray && k != parquet.FixedLenByteArray {
			continue
		}
		from := len(arena)
		arena = append(arena, v.ByteArray()...)
		b := arena[from:len(arena):len(arena)]
		w := parquet.ByteArrayValue(b)
		if k == parquet.FixedLenByteArray {
			w = parquet.FixedLenByteArrayValue(b)
		}
		out[i] = w.Level(v.RepetitionLevel(), v.DefinitionLevel(), v.Column())
	}
	return out
}

func (r *parquetReader) Replaced() int64 { return 0 }

func (r *parquetReader) Close() error {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	r.codecs.close()
	return r.closeColumns()
}

func parquetSchema(ctx context.Context, obj Object) (*row.Schema, error) {
	f, err := openParquetFile(ctx, obj)
	if err != nil {
		return nil, err
	}
	s := &row.Schema{Format: Parquet, Parquet: f.schema}
	for _, n := range f.root.children {
		s.Columns = append(s.Columns, row.Column{Name: n.name, Type: n.typeName()})
	}
	for _, kv := range f.meta.KeyValueMetadata {
		s.Metadata = append(s.Metadata, row.KeyValue{Key: kv.Key, Value: kv.Value})
	}
	return s, nil
}

// parquetCuts groups row groups into cuts of about splitBytes; rows are the footer's.
func parquetCuts(ctx context.Context, obj Object, splitBytes int64) ([]Cut, int64, error) {
	f, err := openParquetFile(ctx, obj)
	if err != nil {
		return nil, 0, err
	}
	if splitBytes <= 0 || len(f.meta.RowGroups) == 0 {
		return []Cut{{Rows: f.meta.NumRows}}, f.meta.NumRows, nil
	}
	var cuts []Cut
	size := int64(0)
	for i := range f.meta.RowGroups {
		g := &f.meta.RowGroups[i]
		if len(cuts) == 0 || size >= splitBytes {
			cuts = append(cuts, Cut{FirstRow: f.first[i]})
			size = 0
		}
		c := &cuts[len(cuts)-1]
		c.RowGroups = append(c.RowGroups, i)
		c.Rows += g.NumRows
		size += groupBytes(g)
	}
	return cuts, f.meta.NumRows, nil
}

func groupBytes(g *format.RowGroup) (n int64) {
	for i := range g.Columns {
		n += g.Columns[i].MetaData.TotalCompressedSize
	}
	return n
}
