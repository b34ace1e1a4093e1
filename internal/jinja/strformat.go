package jinja

import (
	"strings"
	"unicode/utf8"
)

// formatter is one str.format: replacement fields {name.attr[key]!r:spec}.
type formatter struct {
	e      *exec
	c      call
	auto   int  // next automatic number
	manual bool // numbers were written out
	depth  int
}

// strFormat is str.format and str.format_map. The pattern's text keeps its provenance and so do strings put in.
func strFormat(e *exec, self any, c call) any {
	s, lit := e.toText(self)
	if c.name == "format_map" {
		d := c.p[0]
		if !isDict(d) {
			e.fail("format_map needs a dict")
		}
		for i := range dictLen(d) {
			k, v := e.dictAt(d, i)
			if name, _, ok := asString(k); ok {
				c.kw = append(c.kw, kwarg{name, v})
			}
		}
	}
	f := formatter{e: e, c: c}
	var b builder
	f.run(&b, s, lit)
	return b.value()
}

// maxFieldDepth is Python's: a field inside a specification, and no further.
const maxFieldDepth = 2

func (f *formatter) run(b *builder, s string, lit []Span) {
	f.e.build(len(s))
	f.depth++
	if f.depth > maxFieldDepth {
		f.e.fail("format fields are nested too deep")
	}
	for i := 0; i < len(s); {
		k := strings.IndexAny(s[i:], "{}")
		if k < 0 {
			b.sub(s, lit, i, len(s))
			break
		}
		b.sub(s, lit, i, i+k)
		i += k
		if i+1 < len(s) && s[i+1] == s[i] {
			b.sub(s, lit, i, i+1)
			i += 2
			continue
		}
		if s[i] == '}' {
			f.e.fail("single '}' encountered in format string")
		}
		end := fieldEnd(s, i)
		if end < 0 {
			f.e.fail("expected '}' before end of string")
		}
		f.field(b, s[i+1:end])
		i = end + 1
	}
	f.depth--
}

// fieldEnd finds the brace that closes the one at i.
func fieldEnd(s string, i int) int {
	open := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return i
			}
		}
	}
	return -1
}

func (f *formatter) field(b *builder, field string) {
	e := f.e
	e.step(1)
	name, spec := field, ""
	conv := byte(0)
	square := false
	for i := range len(field) {
		switch c := field[i]; {
		case c == '[':
			square = true
		case c == ']':
			square = false
		case square || c != ':' && c != '!':
			continue
		case c == '!':
			if i+1 >= len(field) || i+2 < len(field) && field[i+2] != ':' {
				e.fail("bad conversion in format string")
			}
			name, conv = field[:i], field[i+1]
			if i+2 < len(field) {
				spec = field[i+3:]
			}
		default:
			name, spec = field[:i], field[i+1:]
		}
		if len(name) < len(field) {
			break
		}
	}
	v := f.value(name)
	switch conv {
	case 0:
	case 's':
		s, lit := e.toText(v)
		v = makeString(s, lit)
	case 'r', 'a':
		v = e.print(v, true)
	default:
		e.fail("unknown conversion !" + string(rune(conv)))
	}
	if strings.IndexByte(spec, '{') >= 0 {
		var inner builder
		f.run(&inner, spec, nil)
		spec = string(inner.buf)
	}
	f.put(b, v, spec)
}

// value resolves "0.name[key]".
func (f *formatter) value(path string) any {
	e := f.e
	n := strings.IndexAny(path, ".[")
	if n < 0 {
		n = len(path)
	}
	first, rest := path[:n], path[n:]
	var v any
	switch num, isNum := parseInt(first, 10); {
	case first == "" || isNum && isDigit(first[0]):
		i := f.auto
		if first != "" {
			i = e.wantInt(num, "field number")
			f.manual = true
		} else {
			f.auto++
		}
		if f.manual && f.auto > 0 {
			e.fail("cannot mix automatic and manual field numbers")
		}
		if i >= len(f.c.rest) {
			e.fail("replacement index out of range for positional arguments")
		}
		v = f.c.rest[i]
	default:
		found := false
		for _, k := range f.c.kw {
			if k.name == first {
				v, found = k.v, true
			}
		}
		if !found {
			e.fail("format has no argument named " + e.clip(first))
		}
	}
	for rest != "" {
		e.step(1)
		if key, ok := strings.CutPrefix(rest, "["); ok {
			n := strings.IndexByte(key, ']')
			if n < 0 {
				e.fail("missing ']' in format string")
			}
			var k any = key[:n]
			if num, ok := parseInt(key[:n], 10); ok {
				k = num
			}
			v, rest = e.getItem(v, k), key[n+1:]
			continue
		}
		rest = rest[1:]
		n := strings.IndexAny(rest, ".[")
		if n < 0 {
			n = len(rest)
		}
		v, rest = e.getAttr(v, rest[:n]), rest[n:]
	}
	return v
}

// put writes a value by its specification: [[fill]align][sign][#][0][width][,][.precision][type].
func (f *formatter) put(b *builder, v any, spec string) {
	e := f.e
	if spec == "" {
		s, lit := e.toText(v)
		e.build(len(s))
		b.add(s, lit)
		return
	}
	ff := fieldFormat{fill: " ", precision: -1}
	rest := spec
	const aligns = "<>^="
	if n := runeLen(rest); n < len(rest) && strings.IndexByte(aligns, rest[n]) >= 0 {
		ff.fill, ff.align, rest = rest[:n], rest[n], rest[n+1:]
	} else if strings.IndexByte(aligns, rest[0]) >= 0 {
		ff.align, rest = rest[0], rest[1:]
	}
	eat := func(set string) byte {
		if rest != "" && strings.IndexByte(set, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	digits := func() string {
		n := 0
		for n < len(rest) && isDigit(rest[n]) {
			n++
		}
		d := rest[:n]
		rest = rest[n:]
		return d
	}
	if ff.sign = eat("+- "); ff.sign == '-' {
		ff.sign = 0
	}
	ff.alt = eat("#") != 0
	if eat("0") != 0 && ff.align == 0 {
		ff.align, ff.fill = '=', "0"
		if isString(v) {
			ff.align = '<'
		}
	}
	ff.width = e.formatNumber(digits())
	ff.group = eat(",_")
	if eat(".") != 0 {
		d := digits()
		if d == "" {
			e.fail("format specifier misses its precision")
		}
		ff.precision = e.formatNumber(d)
	}
	if rest != "" {
		ff.kind = rest[0]
		if len(rest) > 1 {
			e.fail("invalid format specifier '" + e.clip(spec) + "'")
		}
	}
	f.apply(b, v, ff)
}

func (f *formatter) apply(b *builder, v any, ff fieldFormat) {
	e := f.e
	if s, lit, ok := asString(v); ok {
		if ff.kind != 0 && ff.kind != 's' || ff.align == '=' || ff.group != 0 || ff.sign != 0 {
			e.fail("format specifier does not fit a string")
		}
		e.putField(b, ff, s, lit)
		return
	}
	if _, isBool := v.(bool); isBool && ff.kind == 0 {
		e.putField(b, ff, e.print(v, false), nil)
		return
	}
	n := intOf(v)
	if !isNumber(n) {
		if u, ok := v.(*undefined); ok {
			e.undefinedUse(u)
		}
		e.fail("unsupported format string passed to " + typeName(v))
	}
	if ff.align == 0 {
		ff.align = '>'
	}
	kinds := "\x00bcdoxXneEfFgG%"
	if _, isFloat := n.(float64); isFloat {
		kinds = "\x00neEfFgG%"
	} else if ff.precision >= 0 && strings.IndexByte("eEfFgG%", ff.kind) < 0 {
		e.fail("precision not allowed in integer format specifier")
	}
	if strings.IndexByte(kinds, ff.kind) < 0 {
		e.fail("unknown format code '" + string(rune(ff.kind)) + "' for '" + typeName(v) + "'")
	}
	switch ff.kind {
	case 'c':
		s, _ := e.toText(e.runeOf(v))
		if utf8.RuneCountInString(s) == 1 {
			ff.precision = -1
			e.putField(b, ff, s, nil)
		}
		return
	case 'n':
		ff.kind = 'd'
		if _, isFloat := n.(float64); isFloat {
			ff.kind = 'g'
		}
	}
	e.formatNumeric(b, ff, n)
}
