package writers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
)

// Digest computes the counts and the result digest of a written part again, from its rows: next gives a part's records
// with their cells, as a reader that carries does, and io.EOF after the last. cfg must have the Format, Prefix, Own,
// Logprobs and TokenIDs that the part was written with, and part must describe the part itself. The counts but Rows need
// the column status.
func Digest(cfg Config, part *row.Schema, next func() (*row.Record, error)) (Stats, error) {
	own, err := ownColumns(cfg)
	if err != nil {
		return Stats{}, err
	}
	a := &auditor{own: own, cells: make([]cell, len(own)), index: make(map[string]int)}
	for i, c := range own {
		a.index[cfg.Prefix+c.Name] = i
	}
	switch cfg.Format {
	case JSONL:
		a.digest = newDigester("json", own)
	case Parquet:
		a.digest = newDigester("parquet", own)
		if part == nil {
			return Stats{}, errors.New("read part: its schema is missing")
		}
		schema, ok := part.Parquet.(*parquet.Schema)
		if !ok {
			return Stats{}, fmt.Errorf("read part: its schema is a %T, want *parquet.Schema", part.Parquet)
		}
		a.leaves(schema)
	default:
		return Stats{}, fmt.Errorf("format %q does not hold all result columns", cfg.Format)
	}
	for {
		rec, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = a.row(rec)
		}
		if err != nil {
			return a.stats, fmt.Errorf("read row %d of part: %w", a.stats.Rows, err)
		}
	}
	a.stats.ResultDigest = a.digest.sum()
	return a.stats, nil
}

type auditor struct {
	own    []*Column
	index  map[string]int // our columns by their name in the part
	digest *digester
	stats  Stats
	cells  []cell
	leaf   []int // Parquet: the column of ours that a leaf holds, or -1

	members, carried []member
	name             []byte
	values           parquet.Row
}

func (a *auditor) leaves(schema *parquet.Schema) {
	for _, path := range schema.Columns() {
		i, ok := a.index[path[0]]
		if !ok {
			i = -1
		}
		a.leaf = append(a.leaf, i)
	}
}

var errNoCell = errors.New("a column of ours is missing or has another type")

func (a *auditor) row(rec *row.Record) error {
	if rec.Err != nil {
		return rec.Err
	}
	for i := range a.cells {
		a.cells[i] = cell{null: true, n: -1} // n: not found yet
	}
	var err error
	switch cells := rec.Cells.(type) {
	case row.JSON:
		err = a.jsonRow(cells)
	case parquet.Row:
		err = a.parquetRow(cells)
	default:
		err = fmt.Errorf("carried cells are %T", cells)
	}
	if err != nil {
		return err
	}
	status := row.OK
	for i, c := range a.own {
		if a.cells[i].null && (a.cells[i].n < 0 || !c.Nullable) {
			return fmt.Errorf("column %q: %w", c.Name, errNoCell)
		}
		if c.Name == "status" {
			status = row.Status(a.cells[i].s)
		}
		a.digest.cell(c, a.cells[i])
	}
	a.digest.endRow()
	a.stats.count(status)
	return nil
}

func (a *auditor) jsonRow(text []byte) error {
	if a.leaf != nil {
		return errNoCell
	}
	members, _, err := scanMembers(text, a.members[:0])
	if a.members = members; err != nil {
		return err
	}
	a.carried = a.carried[:0]
	for _, m := range members {
		var name []byte
		name, a.name = memberName(text, m, a.name)
		i, ours := a.index[string(name)]
		if !ours {
			a.carried = append(a.carried, m)
			continue
		}
		if a.cells[i], err = parseCell(a.own[i].Type, text[m.value:m.end]); err != nil {
			return fmt.Errorf("column %q: %w", a.own[i].Name, err)
		}
	}
	a.digest.members(text, a.carried, &a.name)
	return nil
}

// parseCell reads a value that appendCell wrote.
func parseCell(t Type, text []byte) (c cell, err error) {
	if string(text) == "null" {
		return null, nil
	}
	switch t {
	case String:
		b, err := jsontext.AppendUnquote(nil, text)
		return cell{s: string(b)}, err
	case Int64, Int32:
		c.n, err = strconv.ParseInt(string(text), 10, 64)
	case Double:
		c.f, err = strconv.ParseFloat(string(text), 64)
	case JSON:
		c.json = text
	case Int32List:
		if len(text) < 2 || text[0] != '[' {
			return c, errNoCell
		}
		c.ids = []int32{}
		for _, n := range bytes.FieldsFunc(text[1:len(text)-1], func(r rune) bool { return r == ',' || r == ' ' }) {
			id, err := strconv.ParseInt(string(n), 10, 32)
			if err != nil {
				return c, err
			}
			c.ids = append(c.ids, int32(id))
		}
	}
	return c, err
}

func (a *auditor) parquetRow(values parquet.Row) error {
	a.values = a.values[:0]
	for _, v := range values {
		column := v.Column()
		if column < 0 || column >= len(a.leaf) {
			return errNoCell
		}
		i := a.leaf[column]
		if i < 0 {
			a.values = append(a.values, v)
			continue
		}
		c := &a.cells[i]
		switch t := a.own[i].Type; {
		case t == Int32List && v.DefinitionLevel() > 0:
			c.null = false
			if !v.IsNull() {
				c.ids = append(c.ids, v.Int32())
			}
		case v.IsNull():
			c.n = 0
		case t == String && v.Kind() == parquet.ByteArray:
			*c = cell{s: string(v.ByteArray())}
		case t == JSON && v.Kind() == parquet.ByteArray:
			*c = cell{json: v.ByteArray()}
		case t == Int64 && v.Kind() == parquet.Int64:
			*c = cell{n: v.Int64()}
		case t == Int32 && v.Kind() == parquet.Int32:
			*c = cell{n: int64(v.Int32())}
		case t == Double && v.Kind() == parquet.Double:
			*c = cell{f: v.Double()}
		default:
			return errNoCell
		}
	}
	a.digest.leaves(a.values)
	return nil
}
