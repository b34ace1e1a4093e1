package writers

import (
	"github.com/batchmill/batchmill/internal/row"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
)

// jsonCells turns the text of a JSONL record into Parquet values. The columns are those that the plan saw: text where all
// values of its sample were strings, else the value's JSON text. What does not fit (a key that the plan did not see, a
// number in a text column, an earlier one of doubled keys) goes whole into _extra, so nothing is lost. A JSON null is a
// null, like an absent key.
type jsonCells struct {
	columns []jsonColumn // the last is _extra
	index   map[string]int
	carries func(string) bool

	members []member
	set     []member // per column; end 0: absent
	extra   []member
	name    []byte
	text    []byte // unquoted strings and _extra of the row
}

type jsonColumn struct {
	name string
	text bool
}

func newJSONCells(cfg Config) *jsonCells {
	c := &jsonCells{index: make(map[string]int), carries: cfg.carries}
	if cfg.Source != nil {
		for _, col := range cfg.Source.Columns {
			if _, ok := c.index[col.Name]; ok || !cfg.carries(col.Name) {
				continue
			}
			c.index[col.Name] = len(c.columns)
			c.columns = append(c.columns, jsonColumn{col.Name, col.Type == "string"})
		}
	}
	c.columns = append(c.columns, jsonColumn{cfg.Prefix + extraName, false})
	c.set = make([]member, len(c.columns)-1)
	return c
}

func (c jsonColumn) parquetField() parquet.Field {
	n := parquet.JSON()
	if c.text {
		n = parquet.String()
	}
	return namedField(c.name, parquet.Optional(parquet.Encoded(n, &parquet.Plain)))
}

func (c *jsonCells) appendNulls(dst parquet.Row) parquet.Row {
	for i := range c.columns {
		dst = append(dst, parquet.NullValue().Level(0, 0, i))
	}
	return dst
}

// append appends one value per column. The values point into text and into scratch that the next call reuses.
func (c *jsonCells) append(dst parquet.Row, text row.JSON) (parquet.Row, error) {
	members, _, err := scanMembers(text, c.members[:0])
	if c.members = members; err != nil {
		return dst, err
	}
	clear(c.set)
	c.extra = c.extra[:0]
	for _, m := range members {
		var name []byte
		name, c.name = memberName(text, m, c.name)
		i, known := c.index[string(name)]
		switch {
		case !known && !c.carries(string(name)):
		case !known || c.columns[i].text && text[m.value] != '"' && !isNull(text, m):
			c.extra = append(c.extra, m)
		default:
			if c.set[i].end > 0 {
				c.extra = append(c.extra, c.set[i])
			}
			c.set[i] = m
		}
	}
	c.text = shrink(c.text)
	for i, m := range c.set {
		switch {
		case m.end == 0 || isNull(text, m):
			dst = append(dst, parquet.NullValue().Level(0, 0, i))
		case c.columns[i].text:
			at := len(c.text)
			c.text, _ = jsontext.AppendUnquote(c.text, text[m.value:m.end]) // a lone surrogate becomes U+FFFD
			dst = append(dst, parquet.ByteArrayValue(c.text[at:]).Level(0, 1, i))
		default:
			dst = append(dst, parquet.ByteArrayValue(text[m.value:m.end]).Level(0, 1, i))
		}
	}
	last := len(c.columns) - 1
	if len(c.extra) == 0 {
		return append(dst, parquet.NullValue().Level(0, 0, last)), nil
	}
	at := len(c.text)
	c.text = appendObject(c.text, text, c.extra)
	return append(dst, parquet.ByteArrayValue(c.text[at:]).Level(0, 1, last)), nil
}

func isNull(text []byte, m member) bool { return string(text[m.value:m.end]) == "null" }
