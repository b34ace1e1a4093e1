package jinja

import (
	"sort"
	"strings"
)

// Span is a half-open range of bytes.
type Span struct{ Start, End int }

// Text is a string that knows its provenance. Literal holds the byte ranges of S that come from template text, sorted,
// disjoint and maximal; everything else is data.
type Text struct {
	S       string
	Literal []Span
}

// Literal returns s as a text that is template text throughout.
func Literal(s string) *Text {
	if s == "" {
		return &Text{}
	}
	return &Text{S: s, Literal: []Span{{0, len(s)}}}
}

// IsLiteral tells whether every byte is template text.
func (t *Text) IsLiteral() bool { return wholly(t.S, t.Literal) }

func wholly(s string, lit []Span) bool {
	return len(s) == 0 || len(lit) == 1 && lit[0].Start == 0 && lit[0].End == len(s)
}

// valid tells whether the spans are sorted, disjoint, not empty and inside the string.
func (t *Text) valid() bool {
	at := 0
	for _, s := range t.Literal {
		if s.Start < at || s.End <= s.Start || s.End > len(t.S) {
			return false
		}
		at = s.End
	}
	return true
}

// asString reads a string value. Inside the engine a string is either a Go string (all data) or a *Text.
func asString(v any) (s string, lit []Span, ok bool) {
	switch v := v.(type) {
	case string:
		return v, nil, true
	case *Text:
		return v.S, v.Literal, true
	}
	return "", nil, false
}

func isString(v any) bool {
	switch v.(type) {
	case string, *Text:
		return true
	}
	return false
}

// makeString is the value for a string with these spans.
func makeString(s string, lit []Span) any {
	if len(lit) == 0 {
		return s
	}
	return &Text{S: s, Literal: lit}
}

// likeWhole is the value for a string made by an operation that keeps no positions: literal where all that went in
// was literal, else data.
func likeWhole(s string, literal bool) any {
	if literal && s != "" {
		return Literal(s)
	}
	return s
}

// substring is s[i:j] (bytes) with the spans that fall into it.
func substring(s string, lit []Span, i, j int) any {
	if i == 0 && j == len(s) {
		return makeString(s, lit)
	}
	if i >= j {
		return ""
	}
	if len(lit) == 0 {
		return s[i:j]
	}
	if wholly(s, lit) {
		return Literal(s[i:j])
	}
	var out []Span
	for _, sp := range lit[firstBehind(lit, i):] {
		if sp.Start >= j {
			break
		}
		out = append(out, Span{max(sp.Start, i) - i, min(sp.End, j) - i})
	}
	return makeString(s[i:j], out)
}

// firstBehind is the index of the first span that ends behind byte i.
func firstBehind(lit []Span, i int) int {
	return sort.Search(len(lit), func(k int) bool { return lit[k].End > i })
}

// builder collects pieces of text with their provenance.
type builder struct {
	buf []byte
	lit []Span
}

func (b *builder) literal(s string) {
	if s == "" {
		return
	}
	b.mark(len(b.buf), len(b.buf)+len(s))
	b.buf = append(b.buf, s...)
}

func (b *builder) data(s string) { b.buf = append(b.buf, s...) }

// mark notes a literal range, merging it with the one that ends where it starts.
func (b *builder) mark(start, end int) {
	if n := len(b.lit); n > 0 && b.lit[n-1].End == start {
		b.lit[n-1].End = end
		return
	}
	b.lit = append(b.lit, Span{start, end})
}

func (b *builder) add(s string, lit []Span) {
	at := len(b.buf)
	b.buf = append(b.buf, s...)
	for _, sp := range lit {
		b.mark(at+sp.Start, at+sp.End)
	}
}

// sub adds s[i:j] of a string with spans.
func (b *builder) sub(s string, lit []Span, i, j int) {
	at := len(b.buf) - i
	b.buf = append(b.buf, s[i:j]...)
	if i >= j || len(lit) == 0 {
		return
	}
	for _, sp := range lit[firstBehind(lit, i):] {
		if sp.Start >= j {
			return
		}
		b.mark(at+max(sp.Start, i), at+min(sp.End, j))
	}
}

func (b *builder) reset() { b.buf, b.lit = b.buf[:0], b.lit[:0] }

// text copies what was collected.
func (b *builder) text() Text {
	t := Text{S: string(b.buf)}
	if len(b.lit) > 0 {
		t.Literal = append(make([]Span, 0, len(b.lit)), b.lit...)
	}
	return t
}

func (b *builder) value() any {
	t := b.text()
	if len(t.Literal) == 0 {
		return t.S
	}
	return &t
}

// mapped applies f to every stretch of one provenance. It serves case mapping and the like, where a stretch's result
// hardly depends on its neighbours.
func mapped(s string, lit []Span, f func(string) string) any {
	if len(lit) == 0 {
		return f(s)
	}
	if wholly(s, lit) {
		return Literal(f(s))
	}
	var b builder
	at := 0
	for _, sp := range lit {
		b.data(f(s[at:sp.Start]))
		b.literal(f(s[sp.Start:sp.End]))
		at = sp.End
	}
	b.data(f(s[at:]))
	return b.value()
}

// replaced is s with the first n (all where n < 0) occurrences of old replaced; what is kept keeps its provenance and
// what is put in brings its own.
func replaced(s string, lit []Span, old, repl string, replLit []Span, n int) any {
	if len(lit) == 0 && len(replLit) == 0 {
		return strings.Replace(s, old, repl, n)
	}
	if n < 0 {
		n = len(s) + 1
	}
	var b builder
	at := 0
	for k := 0; k < n; k++ {
		i := 0
		if old == "" { // between all characters
			if k > 0 {
				if at == len(s) {
					break
				}
				i = runeLen(s[at:])
			}
		} else if i = strings.Index(s[at:], old); i < 0 {
			break
		}
		b.sub(s, lit, at, at+i)
		b.add(repl, replLit)
		at += i + len(old)
	}
	b.sub(s, lit, at, len(s))
	return b.value()
}
