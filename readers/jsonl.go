package readers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/row"
)

// jsonlReader yields the lines of a cut as records.
type jsonlReader struct {
	obj      Object
	body     io.ReadCloser
	lines    *lineScanner
	parser   *rowParser
	carry    bool
	base     int64 // file offset of the stream's start; -1 where compressed
	line     int64 // lines before the stream's start
	row      int64 // index of the next record
	replaced int64
	err      error
}

func openJSONL(ctx context.Context, obj Object, d detected, cut Cut, o Options) (*jsonlReader, error) {
	r := &jsonlReader{obj: obj, parser: newRowParser(o.Columns), carry: o.Carry, base: cut.Start, row: cut.FirstRow, line: max(cut.FirstLine-1, 0)}
	if d.compression != "" {
		if cut.Start != 0 || cut.End != 0 {
			return nil, fmt.Errorf("read %s: a compressed file cannot be read from the middle", obj.Name())
		}
		r.base = -1
	}
	n := int64(-1)
	if cut.End > 0 {
		n = cut.End - cut.Start
		if n < 0 || cut.Start < 0 || cut.End > obj.Size() {
			return nil, fmt.Errorf("read %s: the range [%d, %d) does not lie in its %d bytes", obj.Name(), cut.Start, cut.End, obj.Size())
		}
	}
	var err error
	if r.body, err = decompress(obj.NewReader(ctx, cut.Start, n), d.compression); err != nil {
		return nil, err
	}
	r.lines = newLineScanner(r.body, o.MaxLineBytes)
	if cut.Start == 0 {
		r.lines.skipBOM()
	}
	return r, nil
}

func (r *jsonlReader) Read() (*row.Record, error) {
	for r.err == nil {
		l, err := r.lines.next()
		if err != nil {
			if err != io.EOF {
				err = fileError(r.obj, fmt.Sprintf("after line %d", r.line+r.lines.line), err)
			}
			r.err = err
			break
		}
		if !l.long && isBlank(l.text) {
			continue
		}
		rec := &row.Record{Source: r.obj.Name(), Row: r.row, Line: r.line + l.number, Offset: -1}
		if r.base >= 0 {
			rec.Offset = r.base + l.offset
		}
		r.row++
		if l.long {
			rec.Raw = bytes.Clone(l.text)
			rec.Err = r.at(rec, row.Errorf(row.LineTooLong, "the line has more than %d bytes; raise the limit or split the record", r.lines.max))
			return rec, nil
		}
		r.fill(rec, l.text)
		return rec, nil
	}
	return nil, r.err
}

// fill parses a line into its record.
func (r *jsonlReader) fill(rec *row.Record, text []byte) {
	p, rerr := r.parser.parse(text)
	if rerr != nil {
		rec.Raw, rec.Err = bytes.Clone(p.text), r.at(rec, rerr)
		return
	}
	if p.replaced {
		r.replaced++
	}
	rec.Fields = p.fields
	if r.carry {
		rec.Cells = row.JSON(bytes.Clone(p.text))
	}
}

// at adds the place to a row's error.
func (r *jsonlReader) at(rec *row.Record, e *row.Error) *row.Error {
	place := fmt.Sprintf("%s line %d", rec.Source, rec.Line)
	if rec.Offset >= 0 {
		place += fmt.Sprintf(" (byte %d)", rec.Offset)
	}
	return row.Errorf(e.Code, "%s: %s", place, e.Message)
}

func (r *jsonlReader) Replaced() int64 { return r.replaced }

func (r *jsonlReader) Close() error {
	if r.err == nil {
		r.err = io.ErrClosedPipe
	}
	return r.body.Close()
}

// jsonlSchema lists the keys of the first sample records. A column is a "string" if no value of it is anything but a
// string or null, and one is a string; else it is "json".
func jsonlSchema(ctx context.Context, obj Object, d detected, o Options, sample int) (*row.Schema, error) {
	o.Columns, o.Carry = nil, false
	r, err := openJSONL(ctx, obj, d, Cut{}, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	type kind struct{ str, other bool }
	s := &row.Schema{Format: JSONL}
	kinds := map[string]*kind{}
	r.parser.visit = func(key []byte, first byte) {
		k := kinds[string(key)]
		if k == nil {
			k = &kind{}
			kinds[string(key)] = k
			s.Columns = append(s.Columns, row.Column{Name: string(key)})
		}
		k.str = k.str || first == '"'
		k.other = k.other || first != '"' && first != 'n'
	}
	for range sample {
		_, err := r.Read()
		var fe *FileError
		if err == io.EOF || errors.As(err, &fe) && fe.Truncated { // whoever reads the rows learns that the end is missing
			break
		}
		if err != nil {
			return nil, err
		}
	}
	for i, c := range s.Columns {
		s.Columns[i].Type = "json"
		if k := kinds[c.Name]; k.str && !k.other {
			s.Columns[i].Type = "string"
		}
	}
	return s, nil
}

// jsonlCuts counts the lines that are records and cuts plain files after about splitBytes.
func jsonlCuts(ctx context.Context, obj Object, d detected, o Options, splitBytes int64) ([]Cut, int64, error) {
	body, err := decompress(obj.NewReader(ctx, 0, -1), d.compression)
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	s := newLineScanner(body, o.MaxLineBytes)
	s.skipBOM()
	var cuts []Cut
	cut := Cut{FirstLine: 1}
	rows := int64(0)
	for {
		l, err := s.next()
		if err != nil {
			cut.Rows = rows - cut.FirstRow
			if d.compression == "" && len(cuts) > 0 {
				cut.End = obj.Size()
			}
			cuts = append(cuts, cut)
			if err == io.EOF {
				err = nil
			}
			return cuts, rows, fileError(obj, fmt.Sprintf("after line %d", s.line), err)
		}
		if d.compression == "" && splitBytes > 0 && l.offset-cut.Start >= splitBytes {
			cut.End, cut.Rows = l.offset, rows-cut.FirstRow
			cuts = append(cuts, cut)
			cut = Cut{FirstRow: rows, FirstLine: l.number, Start: l.offset}
		}
		if l.long || !isBlank(l.text) {
			rows++
		}
	}
}
