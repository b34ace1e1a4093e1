package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// percentFormat is one "pattern % values".
type percentFormat struct {
	e       *exec
	pattern string
	i       int
	args    tuple // values by position
	used    int
	names   any // values by name, or nil
}

// percent is Python's "pattern % values": values is a tuple, a single value, or a mapping for %(name)s; kw adds names
// (the format filter). The pattern's text keeps its provenance and so do strings put in.
func (e *exec) percent(pattern string, lit []Span, values any, kw []kwarg) any {
	p := percentFormat{e: e, pattern: pattern}
	var isTuple bool
	if p.args, isTuple = values.(tuple); !isTuple {
		p.args = tuple{values}
	}
	if len(kw) > 0 {
		p.names = e.newDict(nil, kw)
	} else if isDict(values) {
		p.names = values
	}
	e.build(len(pattern))
	var b builder
	for p.i < len(pattern) {
		k := strings.IndexByte(pattern[p.i:], '%')
		if k < 0 {
			b.sub(pattern, lit, p.i, len(pattern))
			break
		}
		b.sub(pattern, lit, p.i, p.i+k)
		p.i += k + 1
		p.field(&b)
	}
	if p.used < len(p.args) && !hasItems(values) && len(kw) == 0 {
		e.fail("not all arguments converted during string formatting")
	}
	return b.value()
}

// next is the next value by position.
func (p *percentFormat) next() any {
	if p.used >= len(p.args) {
		p.e.fail("not enough arguments for format string")
	}
	p.used++
	return p.e.entry(p.args[p.used-1])
}

// skip moves over characters of a set.
func (p *percentFormat) skip(set string) (from int) {
	from = p.i
	for p.i < len(p.pattern) && strings.IndexByte(set, p.pattern[p.i]) >= 0 {
		p.i++
	}
	return from
}

// number reads a width or precision; "*" takes it from the values.
func (p *percentFormat) number() int {
	if strings.HasPrefix(p.pattern[p.i:], "*") {
		p.i++
		n := p.e.wantInt(p.next(), "* in a format")
		if n > maxPad || n < -maxPad {
			p.e.failWith(ErrLimit, "width or precision "+strconv.Itoa(n)+" is too large")
		}
		return n
	}
	from := p.skip("0123456789")
	return p.e.formatNumber(p.pattern[from:p.i])
}

// named reads "(name)" and finds its value.
func (p *percentFormat) named() any {
	n := strings.IndexByte(p.pattern[p.i:], ')')
	if n < 0 {
		p.e.fail("incomplete format key")
	}
	name := p.pattern[p.i+1 : p.i+n]
	p.i += n + 1
	if p.names == nil {
		p.e.fail("format requires a mapping")
	}
	v, ok := p.e.dictGet(p.names, name)
	if !ok {
		p.e.fail("format key " + p.e.clip(name) + " is missing")
	}
	return v
}

// field reads what stands behind a % and writes its value.
func (p *percentFormat) field(b *builder) {
	var v any
	byName := strings.HasPrefix(p.pattern[p.i:], "(")
	if byName {
		v = p.named()
	}
	f := fieldFormat{align: '>', fill: " ", precision: -1, percent: true}
	from := p.skip("-+ #0")
	for _, c := range []byte(p.pattern[from:p.i]) {
		switch c {
		case '-':
			f.align = '<'
		case '#':
			f.alt = true
		case '0':
			f.zero = true
		case '+':
			f.sign = '+'
		case ' ':
			f.sign = max(f.sign, ' ') // + wins
		}
	}
	if f.width = p.number(); f.width < 0 {
		f.align, f.width = '<', -f.width
	}
	if strings.HasPrefix(p.pattern[p.i:], ".") {
		p.i++
		f.precision = max(0, p.number())
	}
	p.skip("hlL") // sizes of C, without a meaning
	if p.i >= len(p.pattern) {
		p.e.fail("incomplete format")
	}
	f.kind = p.pattern[p.i]
	p.i++
	if f.kind == '%' {
		b.data("%")
		return
	}
	if !byName {
		v = p.next()
	}
	p.e.percentField(b, f, v)
}

// hasItems tells whether Python takes the right side of % for a mapping, which may go unused.
func hasItems(v any) bool {
	switch v.(type) {
	case []any, *undefined, *rangeValue:
		return true
	}
	return isDict(v)
}

func (e *exec) formatNumber(digits string) int {
	if digits == "" {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n > maxPad {
		e.failWith(ErrLimit, "width or precision "+e.clip(digits)+" is too large")
	}
	return n
}

func (e *exec) percentField(b *builder, f fieldFormat, v any) {
	switch f.kind {
	case 's':
		s, lit := e.toText(v)
		f.zero = false
		e.putField(b, f, s, lit)
		return
	case 'r', 'a':
		f.zero = false
		e.putField(b, f, e.print(v, true), nil)
		return
	case 'c':
		if !isString(v) {
			v = e.runeOf(v)
		}
		s, lit := e.toText(v)
		if utf8.RuneCountInString(s) != 1 {
			e.fail("%c requires an int or a single character")
		}
		e.putField(b, f, s, lit)
		return
	}
	n := intOf(v)
	if !isNumber(n) {
		if u, ok := n.(*undefined); ok {
			e.undefinedUse(u)
		}
		e.fail("%" + string(rune(f.kind)) + " format: a number is required, not " + typeName(v))
	}
	switch f.kind {
	case 'd', 'i', 'u':
		f.kind = 'd'
		if x, ok := n.(float64); ok {
			n = e.truncate(x)
		}
	case 'o', 'x', 'X':
		if _, ok := n.(float64); ok {
			e.fail("%" + string(rune(f.kind)) + " format: an integer is required, not float")
		}
	case 'e', 'E', 'f', 'F', 'g', 'G':
	default:
		e.fail("unsupported format character '" + string(rune(f.kind)) + "'")
	}
	if f.zero && f.align == '>' {
		f.align, f.fill = '=', "0"
	}
	e.formatNumeric(b, f, n)
}

func (e *exec) runeOf(v any) any {
	n, ok := intOf(v).(int64)
	if !ok || n < 0 || n > utf8.MaxRune || n >= 0xd800 && n < 0xe000 {
		e.fail("a character must be a string of one or a valid code point")
	}
	return string(rune(n))
}

// truncate is int(f).
func (e *exec) truncate(f float64) any {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		e.fail("cannot convert float " + floatText(f) + " to integer")
	}
	n, _ := big.NewFloat(f).Int(nil)
	return normInt(n)
}

// fieldFormat is a parsed format specification.
type fieldFormat struct {
	fill      string
	align     byte // '<' '>' '^' '=' or 0
	sign      byte // '+', ' ' or 0
	alt, zero bool
	width     int
	group     byte // ',' or '_' or 0
	precision int  // -1: none
	kind      byte // 0: none
	percent   bool // of the % operator rather than of format()
}

// putField writes a text padded to the width and, for strings, cut to the precision.
func (e *exec) putField(b *builder, f fieldFormat, s string, lit []Span) {
	if f.precision >= 0 && e.runes(s) > f.precision {
		cut, cutLit, _ := asString(substring(s, lit, 0, e.byteAt(s, f.precision)))
		s, lit = cut, cutLit
	}
	n := f.width - e.runes(s)
	left := 0
	if n > 0 {
		e.build(n * len(f.fill))
		switch f.align {
		case '>', '=':
			left = n
		case '^':
			left = n / 2
		}
		b.data(strings.Repeat(f.fill, left))
	}
	e.build(len(s))
	b.add(s, lit)
	if n > left {
		b.data(strings.Repeat(f.fill, n-left))
	}
}

// formatNumeric writes an int or float.
func (e *exec) formatNumeric(b *builder, f fieldFormat, v any) {
	digits, negative := e.digits(f, v)
	sign := ""
	if negative {
		sign = "-"
	} else if f.sign != 0 {
		sign = string(rune(f.sign))
	}
	if f.alt {
		switch f.kind {
		case 'x', 'X', 'o', 'b':
			sign += "0" + string(rune(f.kind))
		}
	}
	f.precision = -1
	if f.align == '=' {
		if n := f.width - len(sign) - len(digits); n > 0 {
			e.build(n)
			digits = strings.Repeat(f.fill, n) + digits
		}
		f.width = 0
	}
	e.putField(b, f, sign+digits, nil)
}

// digits are the digits of a number without its sign.
func (e *exec) digits(f fieldFormat, v any) (digits string, negative bool) {
	if x, ok := v.(float64); ok || strings.IndexByte("eEfFgG%", f.kind) >= 0 && f.kind != 0 {
		if !ok {
			x = e.toFloat(v)
		}
		return e.floatDigits(f, x)
	}
	n := toBig(v)
	negative = n.Sign() < 0
	base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'b': 2}[f.kind]
	if base == 0 {
		base = 10
		e.intText(n) // refuses what is too long
	}
	e.step(n.BitLen() / 8)
	digits = new(big.Int).Abs(n).Text(base)
	if f.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if f.percent && f.precision > len(digits) {
		e.build(f.precision)
		digits = strings.Repeat("0", f.precision-len(digits)) + digits
	}
	return e.grouped(f, digits), negative
}

// grouped puts separators between the digits in front of the point.
func (e *exec) grouped(f fieldFormat, digits string) string {
	if f.group == 0 {
		return digits
	}
	size := 3
	if f.kind == 'x' || f.kind == 'X' || f.kind == 'b' || f.kind == 'o' {
		size = 4
	}
	whole := len(digits)
	if i := strings.IndexAny(digits, ".e"); i >= 0 {
		whole = i
	}
	var b strings.Builder
	for i := range whole {
		if i > 0 && (whole-i)%size == 0 {
			b.WriteByte(f.group)
		}
		b.WriteByte(digits[i])
	}
	return b.String() + digits[whole:]
}

func (e *exec) floatDigits(f fieldFormat, x float64) (string, bool) {
	negative := math.Signbit(x) && !math.IsNaN(x)
	x = math.Abs(x)
	kind, precision := f.kind, f.precision
	suffix := ""
	if kind == '%' {
		x, kind, suffix = x*100, 'f', "%"
	}
	if math.IsInf(x, 0) || math.IsNaN(x) {
		s := floatText(x) + suffix
		if f.kind == 'F' || f.kind == 'G' || f.kind == 'E' {
			s = strings.ToUpper(s)
		}
		return s, negative
	}
	if kind == 0 && precision < 0 {
		return e.grouped(f, floatText(x)), negative
	}
	if precision < 0 {
		precision = 6
	}
	e.build(precision + 400) // a float has at most 309 digits before the point
	var s string
	switch kind | 32 {
	case 'e':
		s = strconv.FormatFloat(x, 'e', precision, 64)
	case 'f':
		s = strconv.FormatFloat(x, 'f', precision, 64)
	default: // g, and no kind with a precision
		s = generalDigits(x, max(1, precision), f.alt, kind == 0)
	}
	if f.alt && precision == 0 && !strings.Contains(s, ".") {
		s += "."
	}
	if kind >= 'A' && kind <= 'Z' {
		s = strings.ToUpper(s)
	}
	return e.grouped(f, s) + suffix, negative
}

// generalDigits is the g format: the shorter of fixed and exponent notation with so many significant digits.
func generalDigits(x float64, precision int, keepZeros, bare bool) string {
	s := strconv.FormatFloat(x, 'e', precision-1, 64)
	mant, exp, _ := strings.Cut(s, "e")
	n, _ := strconv.Atoi(exp)
	limit := precision
	if bare {
		limit-- // format(x, ".3"): one digit must remain behind the point
	}
	if n >= -4 && n < limit || n >= -4 && n < precision && !bare {
		s = strconv.FormatFloat(x, 'f', precision-1-n, 64)
		if !keepZeros && strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		if bare && !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	if !keepZeros && strings.Contains(mant, ".") {
		mant = strings.TrimRight(strings.TrimRight(mant, "0"), ".")
	}
	return mant + "e" + exp
}
