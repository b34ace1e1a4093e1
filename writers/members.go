package writers

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// member is one member of a JSON object: half-open byte ranges of the object's text.
type member struct {
	name       int // where the name's opening quote stands
	nameEnd    int // behind its closing quote
	value, end int // the value, without the space around it
}

var errNotObject = errors.New("carried record is not one JSON object")

// scanMembers finds the members of the object that text is, appends them to dst, and returns where the closing brace
// stands. It walks brackets and strings only: a text that is valid JSON, as readers make sure, is split rightly; any
// other gives some split or an error, never a range outside the text.
func scanMembers(text []byte, dst []member) (members []member, closing int, err error) {
	i := skipSpace(text, 0)
	if i >= len(text) || text[i] != '{' {
		return dst, 0, errNotObject
	}
	if i = skipSpace(text, i+1); i < len(text) && text[i] == '}' {
		return dst, i, onlySpace(text, i+1)
	}
	for {
		var m member
		if m.name = i; i >= len(text) || text[i] != '"' {
			return dst, 0, errNotObject
		}
		m.nameEnd = skipString(text, i)
		if i = skipSpace(text, m.nameEnd); i >= len(text) || text[i] != ':' {
			return dst, 0, errNotObject
		}
		m.value = skipSpace(text, i+1)
		if m.end = skipValue(text, m.value); m.end <= m.value {
			return dst, 0, errNotObject
		}
		dst = append(dst, m)
		if i = skipSpace(text, m.end); i >= len(text) {
			return dst, 0, errNotObject
		}
		switch text[i] {
		case ',':
			i = skipSpace(text, i+1)
		case '}':
			return dst, i, onlySpace(text, i+1)
		default:
			return dst, 0, errNotObject
		}
	}
}

func onlySpace(text []byte, i int) error {
	if skipSpace(text, i) < len(text) {
		return errNotObject
	}
	return nil
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\n' || text[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the position behind the string that opens at i, or the text's end.
func skipString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(text)
}

// skipValue returns the position behind the value that starts at i.
func skipValue(text []byte, i int) int {
	if i >= len(text) {
		return i
	}
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		for depth := 0; i < len(text); {
			switch text[i] {
			case '"':
				i = skipString(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return i
	}
	for i < len(text) {
		switch text[i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// memberName returns a member's name without quotes and escapes. It is a part of text where there was nothing to
// unescape; else it lies in scratch, which is returned for the next call.
func memberName(text []byte, m member, scratch []byte) (name, newScratch []byte) {
	raw := text[m.name:m.nameEnd]
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1:max(1, len(raw)-1)], scratch
	}
	scratch, _ = jsontext.AppendUnquote(scratch[:0], raw) // a lone surrogate is U+FFFD here
	return scratch, scratch
}
