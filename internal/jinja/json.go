package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
)

// tojson writes a value as Python's json.dumps does: ", " and ": " between, "," alone at line ends when indented, no
// HTML escapes. A string of a literal is literal, everything else is data.
func tojson(e *exec, v any, c call) any {
	w := jsonWriter{e: e, item: ", ", colon: ": "}
	w.ascii = c.flag(e, 0, false)
	if c.has(1) && c.p[1] != nil {
		w.indented = true
		if s, _, ok := asString(c.p[1]); ok {
			w.indent = s
		} else {
			n := max(0, c.num(e, 1, 0))
			if n > maxPad {
				e.build(-1)
			}
			w.indent = strings.Repeat(" ", n)
		}
		w.item = ","
	}
	if c.has(2) && c.p[2] != nil {
		sep := e.items(c.p[2])
		if len(sep) != 2 {
			e.fail("tojson needs two separators")
		}
		w.item, w.colon = e.wantString(sep[0], "separator"), e.wantString(sep[1], "separator")
	}
	w.sort = c.flag(e, 3, false)
	w.value(v)
	t, isText := v.(*Text)
	return likeWhole(string(w.buf), isText && t.IsLiteral())
}

// maxPad bounds widths and indents.
const maxPad = 1 << 20

type jsonWriter struct {
	e           *exec
	buf         []byte
	item, colon string
	indented    bool
	indent      string
	level       int
	ascii, sort bool
}

func (w *jsonWriter) put(s string) {
	w.e.build(len(s))
	w.buf = append(w.buf, s...)
}

func (w *jsonWriter) value(v any) {
	w.e.step(1)
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64:
		w.put(w.scalar(v))
	case string:
		w.str(v)
	case *Text:
		w.str(v.S)
	case []any:
		w.list(v)
	case tuple:
		w.list(v)
	case *record:
		w.list(v.tuple)
	case *dict, *ordered.Map:
		w.dict(v)
	case *undefined:
		w.e.undefinedUse(v)
	default:
		w.e.fail("object of type " + typeName(v) + " is not JSON serializable")
	}
}

func (w *jsonWriter) scalar(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "true"
		}
		return "false"
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return w.e.intText(v)
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "Infinity"
		case math.IsInf(v, -1):
			return "-Infinity"
		}
		return floatText(v)
	}
	return "null"
}

// newline starts a line of indented output.
func (w *jsonWriter) newline() {
	if !w.indented {
		return
	}
	w.put("\n")
	if w.indent != "" {
		for range w.level {
			w.put(w.indent)
		}
	}
}

func (w *jsonWriter) list(items []any) {
	if len(items) == 0 {
		w.put("[]")
		return
	}
	w.e.enter()
	w.put("[")
	w.level++
	for i, v := range items {
		if i > 0 {
			w.put(w.item)
		}
		w.newline()
		w.value(w.e.entry(v))
	}
	w.level--
	w.newline()
	w.put("]")
	w.e.leave()
}

func (w *jsonWriter) dict(d any) {
	n := dictLen(d)
	if n == 0 {
		w.put("{}")
		return
	}
	w.e.enter()
	w.put("{")
	w.level++
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if w.sort {
		w.e.step(8 * n)
		slices.SortStableFunc(order, func(i, j int) int {
			a, _ := w.e.dictAt(d, i)
			b, _ := w.e.dictAt(d, j)
			c, ok := w.e.order(a, b)
			if !ok {
				return 0
			}
			return cmp.Compare(c, 0)
		})
	}
	for i, at := range order {
		if i > 0 {
			w.put(w.item)
		}
		w.newline()
		k, v := w.e.dictAt(d, at)
		if s, _, ok := asString(k); ok {
			w.str(s)
		} else if _, isU := k.(*undefined); isU || k != nil && !isNumber(k) {
			w.e.fail("keys must be str, int, float, bool or None, not " + typeName(k))
		} else {
			w.put(`"` + w.scalar(k) + `"`)
		}
		w.put(w.colon)
		w.value(v)
	}
	w.level--
	w.newline()
	w.put("}")
	w.e.leave()
}

func (w *jsonWriter) str(s string) {
	w.e.build(len(s) + 2)
	before := len(w.buf)
	w.buf = append(w.buf, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			w.buf = append(w.buf, s[from:i]...)
			w.buf = appendEscape(w.buf, c)
			i++
			from = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if w.ascii {
			w.buf = append(w.buf, s[from:i]...)
			if r > 0xffff {
				w.buf = appendU(w.buf, 0xd800+(r-0x10000)>>10)
				r = 0xdc00 + (r-0x10000)&0x3ff
			}
			w.buf = appendU(w.buf, r)
			from = i + n
		}
		i += n
	}
	w.buf = append(w.buf, s[from:]...)
	w.buf = append(w.buf, '"')
	w.e.build(len(w.buf) - before - len(s) - 2) // what the escapes came to; at most sixfold
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, `\n`...)
	case '\r':
		return append(b, `\r`...)
	case '\t':
		return append(b, `\t`...)
	case '\b':
		return append(b, `\b`...)
	case '\f':
		return append(b, `\f`...)
	}
	return appendU(b, rune(c))
}

func appendU(b []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}
