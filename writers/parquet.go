package writers

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// Sizes of a Parquet part. They bound what the writer holds and are what readers prune and parallelise by.
const (
	// RowGroupBytes ends a row group: so many bytes of values, before encoding and compression, are held (compressed)
	// until the group is complete.
	RowGroupBytes = 64 << 20
	// pageBytes is a page's target, and pageBytesWide where there are so many columns that one page of each would
	// exceed a row group's memory.
	pageBytes     = 256 << 10
	pageBytesWide = 16 << 10
	wideColumns   = 256
	// dictionaryBytes ends dictionary encoding for the rest of a row group: a larger dictionary no longer saves anything.
	dictionaryBytes = 1 << 20
)

// parquetWriter writes Parquet with zstd pages and a page index.
type parquetWriter struct {
	cfg    Config
	own    []*Column
	out    *bufio.Writer
	tail   *tailWriter
	pw     *parquet.GenericWriter[any]
	leaf   int // first leaf column of ours
	digest *digester
	stats  Stats
	unit   unit
	row    parquet.Row
	closed bool

	// A Parquet source: the carried columns, where each leaf of the source goes (-1: not carried), and the row of nulls
	// for units without cells.
	tree  *tree
	kept  []*node
	moves []int
	nulls parquet.Row

	cells *jsonCells // a JSONL source

	groupBytes, groupLimit int64   // bytes of values in the open row group, and where it ends
	pageBytes              []int64 // per leaf: the same since we last ended its page
}

func newParquet(w io.Writer, cfg Config) (*parquetWriter, error) {
	own, err := ownColumns(cfg)
	if err != nil {
		return nil, err
	}
	p := &parquetWriter{cfg: cfg, own: own, unit: unit{from: cfg.Provenance}, digest: newDigester("parquet", own), groupLimit: RowGroupBytes}
	root, name := orderedGroup{}, "schema"
	if cfg.parquetSource() {
		if p.tree, err = newTree(cfg.Source); err != nil {
			return nil, err
		}
		p.kept, name = p.tree.keep(cfg.carries), p.tree.name
		p.moves = make([]int, len(p.tree.leaves))
		for i := range p.moves {
			p.moves[i] = -1
		}
		for _, n := range p.kept {
			root.fields = append(root.fields, sourceField{n.field})
			for i := n.first; i < n.last; i++ {
				p.moves[i] = p.leaf
				p.nulls = append(p.nulls, parquet.NullValue().Level(0, 0, p.leaf))
				p.leaf++
			}
		}
	} else {
		p.cells = newJSONCells(cfg)
		for _, c := range p.cells.columns {
			root.fields = append(root.fields, c.parquetField())
		}
		p.leaf = len(root.fields)
	}
	for _, c := range own {
		root.fields = append(root.fields, c.parquetField(cfg.Prefix))
	}
	if len(root.fields) == 0 {
		return nil, errors.New("the output has no columns: name some with --columns or --output-columns")
	}
	p.pageBytes = make([]int64, p.leaf+len(own))
	page := pageBytes
	if p.leaf > wideColumns {
		page = pageBytesWide
	}
	p.out = bufio.NewWriterSize(w, writeBufferBytes)
	p.tail = &tailWriter{w: p.out}
	options := []parquet.WriterOption{
		root.schema(name),
		parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("batchmill", createdByVersion, "parquet-go"),
		parquet.DataPageVersion(1),        // every reader knows it
		parquet.DataPageStatistics(false), // the page index has them, cut to a bounded length
		parquet.DictionaryMaxBytes(dictionaryBytes),
		parquet.PageBufferSize(page),
		parquet.WriteBufferSize(0), // none, so that tailWriter sees where the last row group ends
	}
	if _, err := parquet.NewWriterConfig(options...); err != nil { // NewGenericWriter would panic
		return nil, fmt.Errorf("configure Parquet output: %w", err)
	}
	// The options again, not that config: merged as one option, its false and 0 would turn into defaults.
	p.pw = parquet.NewGenericWriter[any](p.tail, options...)
	return p, p.setMetadata()
}

// createdByVersion goes into the footer's created_by, whose form readers parse: they work around faults by it.
const createdByVersion = "1.0.0"

func (p *parquetWriter) Write(rec *row.Record, res *row.Result) error {
	if err := p.write(rec, res); err != nil {
		return fmt.Errorf("write row %d of %s: %w", res.Key.Row, res.Key.Source, err)
	}
	p.stats.count(res.Status)
	return nil
}

func (p *parquetWriter) write(rec *row.Record, res *row.Result) (err error) {
	defer func() {
		if r := recover(); r != nil { // values come from a stranger's file, through a library that panics
			err = fmt.Errorf("encode row: %v", r)
		}
	}()
	p.row = p.row[:0]
	if err := p.carry(rec); err != nil {
		return err
	}
	p.digest.leaves(p.row)
	p.unit.res = res
	leaf := p.leaf
	for _, c := range p.own {
		v := c.value(&p.unit)
		p.row = appendOwn(p.row, c, v, leaf)
		p.digest.cell(c, v)
		leaf++
	}
	if _, err := p.pw.WriteRows([]parquet.Row{p.row}); err != nil {
		return err
	}
	p.digest.endRow()
	return p.endRow()
}

// endRow counts the row's bytes, and ends pages and row groups that are large enough.
func (p *parquetWriter) endRow() error {
	for i := range p.row {
		v := &p.row[i]
		size := int64(8)
		if k := v.Kind(); k == parquet.ByteArray || k == parquet.FixedLenByteArray {
			size += int64(len(v.ByteArray()))
		}
		p.groupBytes += size
		// A page of dictionary indexes is full after 65,536 values only, and the library looks at the dictionary's size
		// when it ends a page: end one for every dictionaryBytes of values, so that a column of documents is not one
		// dictionary as large as the row group.
		c := v.Column()
		if p.pageBytes[c] += size; p.pageBytes[c] >= dictionaryBytes {
			p.pageBytes[c] = 0
			if err := p.pw.ColumnWriters()[c].Flush(); err != nil {
				return err
			}
		}
	}
	clear(p.row) // the values point into the record
	if p.groupBytes >= p.groupLimit {
		p.groupBytes = 0
		clear(p.pageBytes)
		return p.pw.Flush()
	}
	return nil
}

// carry appends the carried leaves.
func (p *parquetWriter) carry(rec *row.Record) (err error) {
	var cells any
	if rec != nil {
		cells = rec.Cells
	}
	switch cells := cells.(type) {
	case nil:
		if p.cells != nil {
			p.row = p.cells.appendNulls(p.row)
			return nil
		}
		for _, n := range p.kept {
			for _, leaf := range p.tree.leaves[n.first:n.last] {
				if leaf.def == 0 {
					return fmt.Errorf("the record is missing, and column %q cannot be null", n.name)
				}
			}
		}
		p.row = append(p.row, p.nulls...)
		return nil
	case row.JSON:
		if p.cells != nil {
			p.row, err = p.cells.append(p.row, cells)
			return err
		}
	case parquet.Row:
		if p.tree == nil {
			break
		}
		if err := p.tree.check(cells); err != nil {
			return err
		}
		for _, v := range cells {
			if to := p.moves[v.Column()]; to >= 0 {
				p.row = append(p.row, v.Level(v.RepetitionLevel(), v.DefinitionLevel(), to))
			}
		}
		return nil
	}
	return fmt.Errorf("carried cells are %T, not what the source's format has", cells)
}

// appendOwn appends a value of ours: one leaf column, whose levels follow from parquetField.
func appendOwn(dst parquet.Row, c *Column, v cell, leaf int) parquet.Row {
	if v.null {
		return append(dst, parquet.NullValue().Level(0, 0, leaf))
	}
	def := 0
	if c.Nullable {
		def = 1
	}
	switch c.Type {
	case String:
		return append(dst, parquet.ValueOf(v.s).Level(0, def, leaf))
	case JSON:
		return append(dst, parquet.ByteArrayValue(v.json).Level(0, def, leaf))
	case Int64:
		return append(dst, parquet.Int64Value(v.n).Level(0, def, leaf))
	case Int32:
		return append(dst, parquet.Int32Value(int32(v.n)).Level(0, def, leaf))
	case Double:
		return append(dst, parquet.DoubleValue(v.f).Level(0, def, leaf))
	}
	if len(v.ids) == 0 {
		return append(dst, parquet.NullValue().Level(0, def, leaf))
	}
	for i, id := range v.ids {
		dst = append(dst, parquet.Int32Value(id).Level(min(i, 1), def+1, leaf))
	}
	return dst
}

// tailWriter passes bytes through, and counts them, until hold is set; then it keeps them.
type tailWriter struct {
	w      io.Writer
	passed int64
	held   []byte
	hold   bool
}

func (t *tailWriter) Write(b []byte) (int, error) {
	if t.hold {
		t.held = append(t.held, b...)
		return len(b), nil
	}
	n, err := t.w.Write(b)
	t.passed += int64(n)
	return n, err
}
