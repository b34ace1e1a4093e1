package readers

import (
	"bytes"
	"encoding/base64"
	"io"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/go-json-experiment/json/jsontext"
)

// Keys of ours in a dead letter: the original record plus _error and _seed, or _raw_base64 with the bytes of a record
// that could not be written as JSON. They are undone on reading, so that a dead letter is valid input; Fields then holds
// the seed under SeedField, so that the row draws the same samples again.
const (
	errorKey  = "_error"
	rawKey    = "_raw_base64"
	SeedField = "_seed"
)

// rowParser checks one line of JSONL and decodes the columns that were asked for. It reuses its decoder.
type rowParser struct {
	wanted map[string]bool
	dec    *jsontext.Decoder
	visit  func(key []byte, first byte) // called for each top-level member, with its value's first byte

	members []member
}

// member is a top-level member of the line.
type member struct {
	from, to int // from the end of the member before it (so with its comma) to the value's end
	name     int // where the name starts
	ours     string
	value    [2]int
}

// parsed is a line that could be read. text aliases the line, or is a repaired copy.
type parsed struct {
	text     []byte
	fields   map[string]any
	replaced bool // lone surrogates became U+FFFD
}

func newRowParser(columns []string) *rowParser {
	p := &rowParser{wanted: map[string]bool{}, dec: jsontext.NewDecoder(bytes.NewReader(nil))}
	for _, c := range columns {
		p.wanted[c] = true
	}
	return p
}

// parse reads a line. With an error, parsed.text is the record's bytes all the same.
func (p *rowParser) parse(text []byte) (parsed, *row.Error) {
	out, err := p.parseOnce(text, 0)
	if err != nil && err.Code == row.InvalidJSON && bytes.Contains(text, []byte(`\u`)) {
		if fixed, ok := ordered.ReplaceLoneSurrogates(text); ok { // the length stays, so places do
			again, err2 := p.parseOnce(fixed, 0)
			if err2 == nil {
				again.replaced = true
				return again, nil
			}
		}
	}
	return out, err
}

func (p *rowParser) parseOnce(text []byte, depth int) (parsed, *row.Error) {
	out := parsed{text: text}
	if !utf8.Valid(text) {
		return out, row.Errorf(row.InvalidUTF8, "byte %d of the line is not valid UTF-8; convert the file with iconv -t UTF-8", invalidUTF8At(text))
	}
	p.members = p.members[:0]
	d := p.dec
	d.Reset(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	if k := d.PeekKind(); k != '{' {
		if _, err := d.ReadValue(); err != nil {
			return out, badJSON(err)
		}
		if err := atEnd(d); err != nil {
			return out, err
		}
		return out, row.Errorf(row.InvalidRowType, "the line holds a JSON %s, not an object", kindName(k))
	}
	if _, err := d.ReadToken(); err != nil {
		return out, badJSON(err)
	}
	from, ours, hasError := int(d.InputOffset()), false, false
	for d.PeekKind() != '}' {
		name, err := d.ReadValue()
		if err != nil {
			return out, badJSON(err)
		}
		m := member{from: from, name: int(d.InputOffset()) - len(name)}
		key, rerr := unquote(name)
		if rerr != nil {
			return out, rerr
		}
		wanted := p.wanted[string(key)] // no allocation
		switch string(key) {
		case errorKey, rawKey, SeedField:
			m.ours, ours = string(key), true
		}
		visited := key
		if p.visit != nil {
			visited = bytes.Clone(key) // the next read reuses its memory
		}
		var column string
		if wanted {
			column = string(key)
		}
		value, err := d.ReadValue()
		if err != nil {
			return out, badJSON(err)
		}
		m.to = int(d.InputOffset())
		m.value = [2]int{m.to - len(value), m.to}
		from = m.to
		p.members = append(p.members, m)
		hasError = hasError || m.ours == errorKey && value[0] == '{'
		if p.visit != nil && m.ours == "" {
			p.visit(visited, value[0])
		}
		if !wanted {
			continue
		}
		if _, twice := out.fields[column]; twice {
			return out, row.Errorf(row.InvalidJSON, "the key %q stands twice in the line", column)
		}
		v, err := ordered.DecodeJSON(value)
		if err != nil {
			return out, badJSON(err)
		}
		if out.fields == nil {
			out.fields = make(map[string]any, len(p.wanted))
		}
		out.fields[column] = v
	}
	if _, err := d.ReadToken(); err != nil {
		return out, badJSON(err)
	}
	if err := atEnd(d); err != nil {
		return out, err
	}
	if ours && hasError {
		return p.undoDeadLetter(out, depth)
	}
	return out, nil
}

// undoDeadLetter takes our keys out of a record that failed in an earlier run.
func (p *rowParser) undoDeadLetter(out parsed, depth int) (parsed, *row.Error) {
	text := out.text
	kept := append(make([]byte, 0, len(text)), text[:p.members[0].from]...)
	first := true
	for i, m := range p.members {
		value := text[m.value[0]:m.value[1]]
		switch {
		case m.ours == rawKey && value[0] == '"' && depth == 0:
			s, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return out, badJSON(err)
			}
			raw, err := base64.StdEncoding.DecodeString(string(s))
			if err != nil {
				return out, row.Errorf(row.InvalidJSON, "%s is not base64: %v", rawKey, err)
			}
			return p.parseOnce(raw, 1)
		case m.ours == SeedField:
			v, err := ordered.DecodeJSON(value)
			if err != nil {
				return out, badJSON(err)
			}
			if out.fields == nil {
				out.fields = map[string]any{}
			}
			out.fields[SeedField] = v
		case m.ours != "":
		case first && i > 0: // the members before it went, and its comma with them
			kept, first = append(kept, text[m.name:m.to]...), false
		default:
			kept, first = append(kept, text[m.from:m.to]...), false
		}
	}
	for _, k := range []string{errorKey, rawKey} {
		if p.wanted[k] {
			delete(out.fields, k)
		}
	}
	out.text = append(kept, text[p.members[len(p.members)-1].to:]...)
	return out, nil
}

// unquote returns a key's text; without escapes it aliases the name.
func unquote(name []byte) ([]byte, *row.Error) {
	if inner := name[1 : len(name)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	key, err := jsontext.AppendUnquote(nil, name)
	if err != nil {
		return nil, badJSON(err)
	}
	return key, nil
}

func atEnd(d *jsontext.Decoder) *row.Error {
	switch _, err := d.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return badJSON(err)
	}
	return row.Errorf(row.InvalidJSON, "there is text after the end of the JSON value; one record a line")
}

func badJSON(err error) *row.Error {
	return row.Errorf(row.InvalidJSON, "%v", err)
}

func invalidUTF8At(b []byte) int {
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(b)
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '[':
		return "array"
	case '"':
		return "string"
	case '0':
		return "number"
	case 'n':
		return "null"
	}
	return "boolean"
}
