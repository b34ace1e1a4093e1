package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// decoderSpec is one step of a decoder: it makes the state that one text's decoding needs.
type decoderSpec interface {
	start() decodeStep
	// inner appends what token becomes in the middle of a text.
	inner(token []byte) []byte
}

// decodeStep takes tokens in order and hands on what is sure of their text.
type decodeStep interface {
	push(token string, d *Decoder, next int)
	flush(d *Decoder, next int)
}

// Decoder decodes a stream of ids. It is not safe for concurrent use. It keeps the text so far, of which it hands out
// pieces, so that a token costs no allocation.
type Decoder struct {
	t     *Tokenizer
	skip  bool
	steps []decodeStep
	text  strings.Builder
}

// NewDecoder returns a decoder for one text. skipSpecial drops special tokens.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	d := &Decoder{t: t, skip: skipSpecial, steps: make([]decodeStep, len(t.decoders))}
	for i, s := range t.decoders {
		d.steps[i] = s.start()
	}
	return d
}

// Push takes the next id and returns the text that is complete with it, which can be none. Ids that the tokenizer does not
// have stand for nothing.
func (d *Decoder) Push(id int32) string {
	start := d.text.Len()
	d.push(id)
	return d.text.String()[start:]
}

// Flush ends the text: what is held back comes out, with U+FFFD for what stayed incomplete.
func (d *Decoder) Flush() string {
	start := d.text.Len()
	d.flush()
	return d.text.String()[start:]
}

func (d *Decoder) push(id int32) {
	if d.t.has(id) && !(d.skip && d.t.special[id]) {
		d.feed(0, d.t.tokens[id])
	}
}

func (d *Decoder) flush() {
	for i, s := range d.steps {
		s.flush(d, i+1)
	}
}

func (d *Decoder) feed(step int, token string) {
	if step == len(d.steps) {
		d.text.WriteString(token)
		return
	}
	d.steps[step].push(token, d, step+1)
}

// Decode returns the text of ids: no clean-up of spaces, U+FFFD for bytes that are not UTF-8.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	for _, id := range ids {
		d.push(id)
	}
	d.flush()
	return d.text.String()
}

// Bytes returns the bytes that id adds in the middle of a text; nil for an id that stands for nothing. They can be part of
// a character.
func (t *Tokenizer) Bytes(id int32) []byte {
	if !t.has(id) {
		return nil
	}
	b := []byte(t.tokens[id])
	for _, s := range t.decoders {
		b = s.inner(b)
	}
	return b
}

// stateless is the part of steps that keep nothing.
type stateless struct{}

func (stateless) flush(*Decoder, int) {}

// byteLevelDecoder turns GPT-2's byte alphabet into bytes, and those into text.
type byteLevelDecoder struct{ alphabet *byteAlphabet }

func (b byteLevelDecoder) start() decodeStep         { return &byteLevelStep{alphabet: b.alphabet} }
func (b byteLevelDecoder) inner(token []byte) []byte { return b.alphabet.bytes(nil, string(token)) }

type byteLevelStep struct {
	alphabet *byteAlphabet
	held     []byte // an incomplete character
	text     []byte
}

func (b *byteLevelStep) push(token string, d *Decoder, next int) {
	b.held = b.alphabet.bytes(b.held, token)
	b.emit(d, next, false)
}

func (b *byteLevelStep) flush(d *Decoder, next int) { b.emit(d, next, true) }

func (b *byteLevelStep) emit(d *Decoder, next int, final bool) {
	var n int
	b.text, n = appendLossy(b.text[:0], b.held, final)
	b.held = append(b.held[:0], b.held[n:]...)
	switch {
	case len(b.text) == 0:
	case next == len(d.steps): // as in most tokenizers
		d.text.Write(b.text)
	default:
		d.feed(next, string(b.text))
	}
}

// appendLossy appends b as UTF-8 with one U+FFFD for each maximal part of an invalid sequence (Unicode section 3.9, as
// Rust's from_utf8_lossy). Unless final it stops before an incomplete character at the end; n bytes of b were used.
func appendLossy(dst, b []byte, final bool) (out []byte, n int) {
	for n < len(b) {
		if b[n] < utf8.RuneSelf {
			dst = append(dst, b[n])
			n++
			continue
		}
		if r, size := utf8.DecodeRune(b[n:]); r != utf8.RuneError || size > 1 {
			dst = append(dst, b[n:n+size]...)
			n += size
			continue
		}
		if !utf8.FullRune(b[n:]) && !final {
			break
		}
		part := 1
		for k := min(3, len(b)-n); k > 1; k-- { // the longest start of some character
			if !utf8.FullRune(b[n : n+k]) {
				part = k
				break
			}
		}
		dst = utf8.AppendRune(dst, utf8.RuneError)
		n += part
	}
	return dst, n
}

// replaceDecoder replaces a text in every token.
type replaceDecoder struct {
	stateless
	from, to string
}

func (r replaceDecoder) start() decodeStep { return r }

func (r replaceDecoder) inner(token []byte) []byte {
	return []byte(strings.ReplaceAll(string(token), r.from, r.to))
}

func (r replaceDecoder) push(token string, d *Decoder, next int) {
	d.feed(next, strings.ReplaceAll(token, r.from, r.to))
}

// byteFallbackDecoder turns runs of tokens <0xXX> into text: if the run is UTF-8 as a whole, that, else one U+FFFD for each
// of its tokens. So nothing of a run is sure before its end.
type byteFallbackDecoder struct{}

func (byteFallbackDecoder) start() decodeStep { return &byteFallbackStep{} }

func (byteFallbackDecoder) inner(token []byte) []byte {
	if b, ok := byteToken(string(token)); ok {
		return []byte{b}
	}
	return token
}

type byteFallbackStep struct{ run []byte }

func (b *byteFallbackStep) push(token string, d *Decoder, next int) {
	if v, ok := byteToken(token); ok {
		b.run = append(b.run, v)
		return
	}
	b.flush(d, next)
	d.feed(next, token)
}

func (b *byteFallbackStep) flush(d *Decoder, next int) {
	switch {
	case len(b.run) == 0:
		return
	case utf8.Valid(b.run):
		d.feed(next, string(b.run))
	default:
		for range b.run {
			d.feed(next, "\uFFFD")
		}
	}
	b.run = b.run[:0]
}

// byteToken reads <0xXX>.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(s[3])
	lo, ok2 := hexDigit(s[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// stripDecoder drops up to left characters c at the start and right at the end: of every token, or after Fuse of the text.
type stripDecoder struct {
	c           rune
	left, right int
	fused       bool
}

func (s stripDecoder) start() decodeStep {
	if s.fused {
		return &fusedStripStep{spec: s, left: s.left}
	}
	return tokenStripStep{spec: s}
}

func (s stripDecoder) inner(token []byte) []byte {
	if s.fused {
		return token
	}
	return []byte(s.strip(string(token)))
}

func (s stripDecoder) strip(t string) string {
	c := string(s.c)
	for i := 0; i < s.left && strings.HasPrefix(t, c); i++ {
		t = t[len(c):]
	}
	for i := 0; i < s.right && strings.HasSuffix(t, c); i++ {
		t = t[:len(t)-len(c)]
	}
	return t
}

type tokenStripStep struct {
	stateless
	spec stripDecoder
}

func (s tokenStripStep) push(token string, d *Decoder, next int) { d.feed(next, s.spec.strip(token)) }

// fusedStripStep sees the pieces of one token, the whole text.
type fusedStripStep struct {
	spec stripDecoder
	left int // that may still be dropped
	held int // characters c at the end so far, which may have to be dropped
}

func (s *fusedStripStep) push(token string, d *Decoder, next int) {
	c := string(s.spec.c)
	for s.left > 0 && token != "" {
		if !strings.HasPrefix(token, c) {
			s.left = 0
			break
		}
		token = token[len(c):]
		s.left--
	}
	if token == "" {
		return
	}
	if s.spec.right == 0 {
		d.feed(next, token)
		return
	}
	token = strings.Repeat(c, s.held) + token
	body := token
	for s.held = 0; s.held < s.spec.right && strings.HasSuffix(body, c); s.held++ {
		body = body[:len(body)-len(c)]
	}
	if body != "" {
		d.feed(next, body)
	}
}

func (s *fusedStripStep) flush(*Decoder, int) { s.held = 0 }

// metaspaceDecoder turns ▁ into spaces, and drops those of the first token unless the scheme never added one.
type metaspaceDecoder struct {
	from      string
	dropFirst bool
}

func (m metaspaceDecoder) start() decodeStep { return &metaspaceStep{spec: m, first: true} }

func (m metaspaceDecoder) inner(token []byte) []byte {
	return []byte(strings.ReplaceAll(string(token), m.from, " "))
}

type metaspaceStep struct {
	stateless
	spec  metaspaceDecoder
	first bool
}

func (m *metaspaceStep) push(token string, d *Decoder, next int) {
	to := " "
	if m.first && m.spec.dropFirst {
		to = ""
	}
	m.first = false
	d.feed(next, strings.ReplaceAll(token, m.spec.from, to))
}

// joinDecoder stands for the absence of a decoder: tokens are joined by spaces.
type joinDecoder struct{}

func (joinDecoder) start() decodeStep         { return &joinStep{} }
func (joinDecoder) inner(token []byte) []byte { return append([]byte(" "), token...) }

type joinStep struct {
	stateless
	more bool
}

func (j *joinStep) push(token string, d *Decoder, next int) {
	if j.more {
		token = " " + token
	}
	j.more = true
	d.feed(next, token)
}
