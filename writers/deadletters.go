package writers

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// deadLetters writes one line for each unit that failed, and nothing for others: the original record, whole, with
// "_error" and "_seed" behind its members, so that the file is the input of another run as it is. A record that could
// not be parsed, that has members of these names itself, or that holds bytes which JSON cannot, becomes {"_raw_base64",
// "_error"}: the record's own bytes, or for a Parquet row its JSON text with bytes as base64.
type deadLetters struct {
	out    *bufio.Writer
	openai bool
	tree   *tree // of a Parquet source
	rows   *rowJSON
	binary []bool // leaves of the source whose values are bytes
	wrap   bool   // the source has columns with reserved names
	stats  Stats

	line    []byte
	members []member
	name    []byte
}

// NewDeadLetters starts an errors file. Of cfg only Source counts, and Format where it is OpenAI: then the lines have the
// shape of an OpenAI batch's errors. Close's Stats count the lines written; they have no digest.
func NewDeadLetters(w io.Writer, cfg Config) (Writer, error) {
	d := &deadLetters{out: bufio.NewWriterSize(w, writeBufferBytes), openai: cfg.Format == OpenAI}
	if !cfg.parquetSource() {
		return d, nil
	}
	if _, ok := cfg.Source.Parquet.(*parquet.Schema); !ok {
		return nil, fmt.Errorf("source schema is a %T, want *parquet.Schema", cfg.Source.Parquet)
	}
	var err error
	if d.tree, err = newTree(cfg.Source); err != nil {
		return nil, err
	}
	d.rows = newRowJSON(d.tree.top)
	d.wrap = slices.ContainsFunc(d.tree.top, func(n *node) bool { return reserved(n.name) })
	for _, n := range d.tree.leaves {
		d.binary = append(d.binary, leafTextOf(n).binary)
	}
	return d, nil
}

func (d *deadLetters) Write(rec *row.Record, res *row.Result) error {
	if res.Status != row.Failed {
		return nil
	}
	d.line = shrink(d.line)
	if d.openai {
		d.line = appendOpenAIError(d.line, res)
	} else if err := d.letter(rec, res); err != nil {
		return fmt.Errorf("write dead letter for row %d of %s: %w", res.Key.Row, res.Key.Source, err)
	}
	d.line = append(d.line, '\n')
	if _, err := d.out.Write(d.line); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	d.stats.count(res.Status)
	return nil
}

func (d *deadLetters) letter(rec *row.Record, res *row.Result) error {
	var cells any
	var raw []byte
	if rec != nil {
		cells, raw = rec.Cells, rec.Raw
	}
	switch cells := cells.(type) {
	case row.JSON:
		if d.splice(cells) {
			d.errorAndSeed(res)
			return nil
		}
		raw = cells
	case parquet.Row:
		if d.rows == nil {
			return fmt.Errorf("carried cells are a Parquet row, but the source's schema is missing")
		}
		err := d.tree.check(cells)
		if err != nil {
			return err
		}
		d.line, d.members, err = d.rows.appendMembers(append(d.line, '{'), cells, d.members[:0])
		if err != nil {
			return err
		}
		if !d.wrap && !d.holdsBytes(cells) {
			d.errorAndSeed(res)
			return nil
		}
		raw = append([]byte(nil), append(d.line, '}')...)
		d.line = d.line[:0]
	case nil:
	default:
		return fmt.Errorf("carried cells are %T", cells)
	}
	d.line = base64.StdEncoding.AppendEncode(append(d.line, `{"_raw_base64":"`...), raw)
	d.line = appendError(append(d.line, `","_error":`...), res)
	d.line = append(d.line, '}')
	return nil
}

// splice copies the record up to its closing brace. It reports false for what is not an object, or has a reserved member.
func (d *deadLetters) splice(text []byte) bool {
	members, closing, err := scanMembers(text, d.members[:0])
	if d.members = members; err != nil {
		return false
	}
	for _, m := range members {
		var name []byte
		if name, d.name = memberName(text, m, d.name); reserved(string(name)) {
			return false
		}
	}
	d.line = append(d.line, text[:closing]...)
	oneLine(d.line)
	return true
}

// errorAndSeed ends a line that holds the record's members.
func (d *deadLetters) errorAndSeed(res *row.Result) {
	if len(d.members) > 0 {
		d.line = append(d.line, ',')
	}
	d.line = appendError(append(d.line, `"_error":`...), res)
	d.line = strconv.AppendInt(append(d.line, `,"_seed":`...), res.Seed, 10)
	d.line = append(d.line, '}')
}

func (d *deadLetters) holdsBytes(values parquet.Row) bool {
	for i := range values {
		v := &values[i]
		if c := v.Column(); !v.IsNull() && c >= 0 && c < len(d.binary) && d.binary[c] {
			return true
		}
	}
	return false
}

func (d *deadLetters) Close(...row.KeyValue) (Stats, error) {
	if err := d.out.Flush(); err != nil {
		return d.stats, fmt.Errorf("write dead letters: %w", err)
	}
	return d.stats, nil
}
