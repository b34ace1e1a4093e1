package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
)

// print is Python's str(v), or repr(v).
func (e *exec) print(v any, repr bool) string {
	if v == nil && !repr {
		e.nullText(e.from)
	}
	p := printer{e: e}
	p.value(v, repr)
	return string(p.buf)
}

type printer struct {
	e   *exec
	buf []byte
}

func (p *printer) put(s string) {
	p.e.build(len(s))
	p.buf = append(p.buf, s...)
}

func (p *printer) value(v any, repr bool) {
	p.e.step(1)
	switch v := v.(type) {
	case nil:
		p.put("None")
	case bool:
		if v {
			p.put("True")
		} else {
			p.put("False")
		}
	case int64:
		p.put(strconv.FormatInt(v, 10))
	case *big.Int:
		p.put(p.e.intText(v))
	case float64:
		p.put(floatText(v))
	case string:
		p.str(v, repr)
	case *Text:
		p.str(v.S, repr)
	case []any:
		p.list("[", v, "]")
	case tuple:
		p.tuple(v)
	case *record:
		p.tuple(v.tuple)
	case *dict, *ordered.Map:
		p.dict(v)
	case *dictView:
		p.put("dict_" + v.kind + "(")
		p.list("[", p.e.viewItems(v), "]")
		p.put(")")
	case *rangeValue:
		p.put(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			p.put(fmt.Sprintf(", %d", v.step))
		}
		p.put(")")
	case *undefined:
		p.e.soft(v)
		if repr {
			p.put("Undefined")
		}
	case *namespace:
		p.e.enter()
		p.put("<Namespace ")
		p.dict(&v.d)
		p.put(">")
		p.e.leave()
	case *macro:
		p.put("<Macro '" + v.def.name + "'>")
	case *loop:
		p.put(fmt.Sprintf("<LoopContext %d/%d>", v.i+1, v.n))
	case *stream:
		p.put("<" + v.name + " object>")
	default:
		p.put("<" + typeName(v) + ">")
	}
}

func (p *printer) str(s string, repr bool) {
	if !repr {
		p.put(s)
		return
	}
	p.e.build(len(s))
	p.e.step(len(s) / charsPerStep)
	before := len(p.buf)
	p.buf = appendRepr(p.buf, s)
	p.e.build(len(p.buf) - before - len(s)) // what the escapes came to; at most fourfold
}

func (p *printer) list(open string, items []any, end string) {
	p.e.enter()
	p.put(open)
	for i, v := range items {
		if i > 0 {
			p.put(", ")
		}
		p.value(p.e.entry(v), true)
	}
	p.put(end)
	p.e.leave()
}

func (p *printer) tuple(t tuple) {
	if len(t) == 1 {
		p.list("(", t, ",)")
		return
	}
	p.list("(", t, ")")
}

func (p *printer) dict(d any) {
	p.e.enter()
	p.put("{")
	for i := range dictLen(d) {
		if i > 0 {
			p.put(", ")
		}
		k, v := p.e.dictAt(d, i)
		p.value(k, true)
		p.put(": ")
		p.value(v, true)
	}
	p.put("}")
	p.e.leave()
}

// appendRepr is Python's repr of a string.
func appendRepr(b []byte, s string) []byte {
	quote := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		quote = '"'
	}
	b = append(b, quote)
	for i, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < utf8.RuneSelf && r >= ' ' && r != 0x7f, r >= utf8.RuneSelf && unicode.IsPrint(r):
			b = append(b, s[i:i+runeLen(s[i:])]...)
		case r < 0x100:
			b = fmt.Appendf(b, `\x%02x`, r)
		case r < 0x10000:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = fmt.Appendf(b, `\U%08x`, r)
		}
	}
	return append(b, quote)
}
