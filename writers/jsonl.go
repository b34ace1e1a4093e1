package writers

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// writeBufferBytes is how much goes to the io.Writer at once: object stores like large writes.
const writeBufferBytes = 256 << 10

// jsonlWriter writes one JSON object and one LF a unit.
type jsonlWriter struct {
	cfg    Config
	out    *bufio.Writer
	own    []*Column
	names  map[string]bool // ours, with the prefix
	keys   [][]byte        // ours, as `"name":`
	tree   *tree           // of a Parquet source; nil for JSON sources
	rows   *rowJSON        // turns its rows into members
	digest *digester
	stats  Stats

	line    []byte
	members []member // of the source's text
	carried []member // of line
	moved   []member // of the source's text
	name    []byte
	unit    unit
}

func newJSONL(w io.Writer, cfg Config) (*jsonlWriter, error) {
	own, err := ownColumns(cfg)
	if err != nil {
		return nil, err
	}
	j := &jsonlWriter{cfg: cfg, out: bufio.NewWriterSize(w, writeBufferBytes), own: own,
		names: make(map[string]bool), digest: newDigester("json", own), unit: unit{from: cfg.Provenance}}
	for _, c := range own {
		j.names[cfg.Prefix+c.Name] = true
		j.keys = append(j.keys, append(appendString(nil, cfg.Prefix+c.Name), ':'))
	}
	if cfg.parquetSource() {
		if j.tree, err = newTree(cfg.Source); err != nil {
			return nil, err
		}
		j.rows = newRowJSON(j.tree.keep(cfg.carries))
	}
	return j, nil
}

func (j *jsonlWriter) Write(rec *row.Record, res *row.Result) error {
	j.line, j.carried = shrink(j.line), j.carried[:0]
	if err := j.carry(rec); err != nil {
		return fmt.Errorf("write row %d of %s: %w", res.Key.Row, res.Key.Source, err)
	}
	j.digest.members(j.line, j.carried, &j.name)
	j.unit.res = res
	for i, c := range j.own {
		if i > 0 || len(j.carried) > 0 {
			j.line = append(j.line, ',')
		}
		v := c.value(&j.unit)
		j.line = appendCell(append(j.line, j.keys[i]...), c.Type, v)
		j.digest.cell(c, v)
	}
	j.line = append(j.line, '}', '\n')
	if _, err := j.out.Write(j.line); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	j.digest.endRow()
	j.stats.count(res.Status)
	return nil
}

// carry starts the line with the opening brace and the carried members.
func (j *jsonlWriter) carry(rec *row.Record) error {
	var cells any
	if rec != nil {
		cells = rec.Cells
	}
	switch cells := cells.(type) {
	case nil:
		j.line = append(j.line, '{')
		return nil
	case row.JSON:
		if j.rows == nil {
			return j.splice(cells)
		}
	case parquet.Row:
		if j.rows != nil {
			err := j.tree.check(cells)
			if err != nil {
				return err
			}
			j.line, j.carried, err = j.rows.appendMembers(append(j.line, '{'), cells, j.carried)
			return err
		}
	}
	return fmt.Errorf("carried cells are %T, not what the source's format has", cells)
}

// splice copies the source's text up to the closing brace, or the spans of those members that are carried. Members that
// the plan did not know, and that have the name of one of ours, go whole into _extra.
func (j *jsonlWriter) splice(text []byte) error {
	members, closing, err := scanMembers(text, j.members[:0])
	if j.members = members; err != nil {
		return err
	}
	collision := false
	var name []byte
	for _, m := range members {
		name, j.name = memberName(text, m, j.name)
		collision = collision || j.names[string(name)] && j.cfg.carries(string(name))
	}
	if j.cfg.Carry == nil && !collision {
		at := len(j.line)
		j.line = append(j.line, text[:closing]...)
		oneLine(j.line[at:])
		for _, m := range members {
			j.carried = append(j.carried, shift(m, at))
		}
		return nil
	}
	extra := j.cfg.Prefix + extraName
	j.line, j.moved = append(j.line, '{'), j.moved[:0]
	for _, m := range members {
		name, j.name = memberName(text, m, j.name)
		switch {
		case !j.cfg.carries(string(name)):
		case j.names[string(name)] || collision && string(name) == extra: // two members _extra would hide one another
			j.moved = append(j.moved, m)
		default:
			j.line = j.appendMember(j.line, text, m)
		}
	}
	if len(j.moved) == 0 {
		return nil
	}
	if len(j.carried) > 0 {
		j.line = append(j.line, ',')
	}
	m := member{name: len(j.line)}
	j.line = appendString(j.line, extra)
	m.nameEnd = len(j.line)
	j.line = append(j.line, ':')
	m.value = len(j.line)
	j.line = appendObject(j.line, text, j.moved)
	oneLine(j.line[m.value:])
	m.end = len(j.line)
	j.carried = append(j.carried, m)
	return nil
}

// appendMember copies one member's span, the space around its colon included.
func (j *jsonlWriter) appendMember(line, text []byte, m member) []byte {
	if len(j.carried) > 0 {
		line = append(line, ',')
	}
	at := len(line)
	line = append(line, text[m.name:m.end]...)
	oneLine(line[at:])
	j.carried = append(j.carried, shift(m, at-m.name))
	return line
}

func shift(m member, by int) member {
	return member{name: m.name + by, nameEnd: m.nameEnd + by, value: m.value + by, end: m.end + by}
}

// appendObject writes an object of members of text.
func appendObject(dst, text []byte, members []member) []byte {
	dst = append(dst, '{')
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, text[m.name:m.nameEnd]...)
		dst = append(dst, ':')
		dst = append(dst, text[m.value:m.end]...)
	}
	return append(dst, '}')
}

// oneLine replaces line feeds by spaces. In valid JSON they stand between tokens only; a line of JSONL has none.
func oneLine(text []byte) {
	for i := bytes.IndexByte(text, '\n'); i >= 0; i = bytes.IndexByte(text, '\n') {
		text[i] = ' '
		text = text[i+1:]
	}
}

func (j *jsonlWriter) Close(...row.KeyValue) (Stats, error) {
	if err := j.out.Flush(); err != nil {
		return j.stats, fmt.Errorf("write output: %w", err)
	}
	j.stats.ResultDigest = j.digest.sum()
	return j.stats, nil
}
