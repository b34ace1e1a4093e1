package ordered

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrTrailing reports text after the end of the JSON value.
var ErrTrailing = errors.New("text after the end of the JSON value")

// MaxDepth bounds the nesting of decoded values: each level costs stack, and no real message or template variable
// comes near it.
const MaxDepth = 500

// DecodeJSON decodes exactly one JSON value. It refuses invalid UTF-8 and nesting beyond MaxDepth. Of duplicate keys
// the last wins, in the place of the first, as in Python; a lone surrogate becomes U+FFFD.
func DecodeJSON(data []byte) (any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	v, err := decodeValue(d, 0)
	if err != nil && bytes.Contains(data, []byte(`\u`)) { // perhaps a lone surrogate: accept it, but nothing else that is invalid
		if fixed, ok := replaceLoneSurrogates(data); ok {
			return DecodeJSON(fixed)
		}
	}
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF { // the decoder reads a stream: "01" would be two values
		if err == nil {
			err = ErrTrailing
		}
		return nil, err
	}
	return v, nil
}

func decodeValue(d *jsontext.Decoder, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d", MaxDepth)
	}
	switch d.PeekKind() {
	case '{':
		return decodeObject(d, depth)
	case '[':
		if _, err := d.ReadToken(); err != nil {
			return nil, err
		}
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	}
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case 'n':
		return nil, nil
	case 't':
		return true, nil
	case 'f':
		return false, nil
	case '"':
		return t.String(), nil
	case '0':
		return parseNumber(t.String())
	}
	return nil, fmt.Errorf("unexpected JSON token %q", t.String())
}

func decodeObject(d *jsontext.Decoder, depth int) (any, error) {
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	m := &Map{}
	for d.PeekKind() != '}' {
		k, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := k.String() // before the next read, which reuses the buffer
		v, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		m.Set(key, v)
	}
	_, err := d.ReadToken()
	return m, err
}

// parseNumber keeps integers exact, of any size; everything with a fraction or an exponent is a float64, infinite
// where it overflows, as Python reads it.
func parseNumber(s string) (any, error) {
	integer := true
	for i := range len(s) {
		if c := s[i]; c == '.' || c == 'e' || c == 'E' {
			integer = false
			break
		}
	}
	if integer {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, nil
		}
		n, ok := new(big.Int).SetString(s, 10)
		if !ok {
			return nil, fmt.Errorf("malformed JSON number %q", s)
		}
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return nil, err
	}
	return f, nil
}

// ReplaceLoneSurrogates returns a copy of JSON text in which \uD800..\uDFFF escapes without a partner are \ufffd, so
// that every parser takes it; the length stays. ok is false, and the copy of no use, where there was none.
func ReplaceLoneSurrogates(data []byte) (fixed []byte, ok bool) { return replaceLoneSurrogates(data) }

// replaceLoneSurrogates rewrites \uD800..\uDFFF escapes without a partner to \ufffd. It reports whether there was one.
func replaceLoneSurrogates(data []byte) ([]byte, bool) {
	out, changed := bytes.Clone(data), false
	for i := 0; i+1 < len(out); i++ {
		if out[i] != '\\' {
			continue
		}
		if out[i+1] != 'u' {
			i++
			continue
		}
		hi, ok := hex4(out, i+2)
		if !ok {
			return nil, false
		}
		if hi < 0xd800 || hi > 0xdfff {
			i += 5
			continue
		}
		if lo, ok := hex4(out, i+8); hi < 0xdc00 && ok && out[i+6] == '\\' && out[i+7] == 'u' && lo >= 0xdc00 && lo <= 0xdfff {
			i += 11
			continue
		}
		copy(out[i+2:], "fffd")
		changed = true
		i += 5
	}
	return out, changed
}

func hex4(b []byte, at int) (uint32, bool) {
	if at+4 > len(b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[at:at+4]), 16, 32)
	return uint32(n), err == nil
}
