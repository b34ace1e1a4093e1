// Package readers turns source files into records: JSONL (plain, gzip, zstd) and Parquet, by range, in bounded memory.
//
// A reader yields every record of its cut with its identity (row.Record.Row), in order. A record that is broken comes
// with Err set and costs only itself; a broken file ends the reader with a *FileError, after all records before the
// fault. Carried cells come out as they stand in the file. Nothing that a file claims (line, page or footer lengths,
// counts) is allocated before it is checked against the file and a limit.
package readers

import (
	"context"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/row"
)

// Formats that can be read.
const (
	JSONL   = "jsonl"
	Parquet = "parquet"
)

// Object is an immutable version of a stored file; *objstore.Object is one.
type Object interface {
	io.ReaderAt
	Size() int64
	Name() string // its URL
	NewReader(ctx context.Context, off, n int64) io.ReadCloser
}

// Options say what is read of each record.
type Options struct {
	Format string // JSONL or Parquet; "" detects it
	// Columns are decoded into Record.Fields. In JSONL a second occurrence of one of them in a line is that row's error.
	Columns []string
	Carry   bool // set Record.Cells
	// MaxLineBytes bounds a JSONL line; a longer one is a row error. 0 is DefaultMaxLineBytes.
	MaxLineBytes int64
}

// DefaultMaxLineBytes is far above any prompt that a context window takes and still small beside a machine's memory.
const DefaultMaxLineBytes = 64 << 20

func (o Options) withDefaults() Options {
	if o.MaxLineBytes <= 0 {
		o.MaxLineBytes = DefaultMaxLineBytes
	}
	return o
}

// Cut is a part of a file that is read on its own. The zero Cut is the whole file.
type Cut struct {
	FirstRow  int64 `json:"first_row"`  // row index of its first record
	FirstLine int64 `json:"first_line"` // 1-based line at Start; JSONL
	Rows      int64 `json:"rows"`       // records in it, as counted or as the footer says
	Start     int64 `json:"start"`      // byte range of plain JSONL
	End       int64 `json:"end"`        // 0: to the end of the file
	RowGroups []int `json:"row_groups,omitempty"`
}

// Reader yields the records of a cut in order.
type Reader interface {
	// Read returns the next record, io.EOF at the end, a *FileError where the file is broken, or the store's error. After
	// an error it returns the same error again. The record is the caller's.
	Read() (*row.Record, error)
	// Replaced counts lone surrogates' rows so far: rows in which \ud800 and the like were read as U+FFFD.
	Replaced() int64
	Close() error
}

// FileError says that a file cannot be read, or not beyond some point.
type FileError struct {
	URL       string
	Truncated bool   // the end is missing; what came before is good
	Where     string // "after line 12", "row group 3, column text", ...; may be empty
	Hint      string // what to do; may be empty
	Err       error
}

func (e *FileError) Error() string {
	s := "read " + e.URL
	if e.Where != "" {
		s += " (" + e.Where + ")"
	}
	if e.Truncated {
		s += ": the file is truncated"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *FileError) Unwrap() error { return e.Err }

// Open starts reading a cut. The context ends it.
func Open(ctx context.Context, obj Object, cut Cut, o Options) (Reader, error) {
	o = o.withDefaults()
	d, err := detect(ctx, obj, o)
	if err != nil {
		return nil, err
	}
	if d.format == Parquet {
		return openParquet(ctx, obj, cut, o)
	}
	return openJSONL(ctx, obj, d, cut, o)
}

// Schema describes the columns of a file. For JSONL they are those of the first sample records, in the order in which
// they are met; for Parquet the file's own.
func Schema(ctx context.Context, obj Object, o Options, sample int) (*row.Schema, error) {
	o = o.withDefaults()
	d, err := detect(ctx, obj, o)
	if err != nil {
		return nil, err
	}
	if d.format == Parquet {
		return parquetSchema(ctx, obj)
	}
	return jsonlSchema(ctx, obj, d, o, sample)
}

// Cuts counts a file's records and cuts it: plain JSONL into byte ranges and Parquet into runs of row groups of about
// splitBytes; compressed files and splitBytes <= 0 give one cut. An empty file has one cut without rows. A file that is
// broken on the way gives its cuts and rows up to there beside the *FileError.
func Cuts(ctx context.Context, obj Object, o Options, splitBytes int64) (cuts []Cut, rows int64, err error) {
	o = o.withDefaults()
	d, err := detect(ctx, obj, o)
	if err != nil {
		return nil, 0, err
	}
	if d.format == Parquet {
		return parquetCuts(ctx, obj, splitBytes)
	}
	return jsonlCuts(ctx, obj, d, o, splitBytes)
}

// Count is the number of records of a file.
func Count(ctx context.Context, obj Object, o Options) (int64, error) {
	_, rows, err := Cuts(ctx, obj, o, 0)
	return rows, err
}

func brokenf(obj Object, where, hint, format string, args ...any) *FileError {
	return &FileError{URL: obj.Name(), Where: where, Hint: hint, Err: fmt.Errorf(format, args...)}
}
