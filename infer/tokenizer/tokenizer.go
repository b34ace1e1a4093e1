package tokenizer

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"unicode"
	"unicode/utf8"
)

// ErrInvalidUTF8 is returned by Encode for text that is not UTF-8: there is no answer that other tokenizers agree on.
var ErrInvalidUTF8 = errors.New("text is not valid UTF-8")

// maxVocab bounds ids, so that a hostile file cannot have dense tables of them allocated. The largest published
// vocabularies have about 260,000 tokens.
const maxVocab = 1 << 22

// Tokenizer is immutable and safe for concurrent use.
type Tokenizer struct {
	tokens  []string // id -> text, as in the file; "" where there is none
	present []bool
	ids     map[string]int32
	special []bool
	added   []addedToken

	raw        *matcher // added tokens looked for in the text as it is; nil: none
	normal     *matcher // those looked for in the normalised text; nil: none
	normalizer normalizer
	stripsLeft bool // the normalizer can drop what stands first
	stages     []preStage
	model      *bpe
	// before and after are what AddSpecial puts around the ids.
	before, after []int32

	decoders []decoderSpec
	bos, eos int32 // -1: not known
	digest   string
	maxBytes int       // see MaxTokenBytes
	pool     sync.Pool // of *scratch
}

// Span is a range of bytes [Start, End).
type Span struct{ Start, End int }

// EncodeOptions says what Encode does with special tokens. The zero value adds none and recognises none in the text.
type EncodeOptions struct {
	// AddSpecial puts the special tokens around the text that the tokenizer prescribes, such as BOS.
	AddSpecial bool
	// ParseSpecial recognises special tokens everywhere in the text. Literal wins over it.
	ParseSpecial bool
	// Literal, when not nil, are the sorted, disjoint ranges of the text's bytes in which special tokens are recognised: where
	// their whole text lies inside one range.
	Literal []Span
}

// Encode returns the ids of text. Text is tokenised as one string, whatever the spans. Added tokens that are not special
// are recognised everywhere, as they control nothing. The error is ErrInvalidUTF8, or about spans out of order.
func (t *Tokenizer) Encode(text string, o EncodeOptions) ([]int32, error) {
	if !utf8.ValidString(text) {
		return nil, ErrInvalidUTF8
	}
	if err := checkSpans(o.Literal, len(text)); err != nil {
		return nil, err
	}
	sc, _ := t.pool.Get().(*scratch)
	if sc == nil {
		sc = &scratch{cache: map[string][]int32{}}
	}
	defer t.pool.Put(sc)
	sc.ids = sc.ids[:0]
	if o.AddSpecial {
		sc.ids = append(sc.ids, t.before...)
	}
	t.encodeText(sc, text, o)
	if o.AddSpecial {
		sc.ids = append(sc.ids, t.after...)
	}
	out := append(make([]int32, 0, len(sc.ids)), sc.ids...)
	sc.trim()
	return out, nil
}

func checkSpans(spans []Span, n int) error {
	at := 0
	for _, s := range spans {
		if s.Start < at || s.End < s.Start || s.End > n {
			return fmt.Errorf("literal span [%d, %d) is out of order or outside of %d bytes of text", s.Start, s.End, n)
		}
		at = s.End
	}
	return nil
}

func (t *Tokenizer) encodeText(sc *scratch, text string, o EncodeOptions) {
	if t.raw == nil {
		if text != "" {
			t.encodePiece(sc, text, 0, o)
		}
		return
	}
	var p provenance = nowhere{}
	switch {
	case o.Literal != nil:
		p = &inSpans{spans: o.Literal}
	case o.ParseSpecial:
		p = everywhere{}
	}
	t.raw.split(text, p,
		func(start, end int) { t.encodePiece(sc, text[start:end], start, o) },
		func(id int32) { sc.ids = append(sc.ids, id) })
}

// encodePiece normalises and encodes what lies between raw added tokens; s, not empty, starts at offset in the text.
func (t *Tokenizer) encodePiece(sc *scratch, s string, offset int, o EncodeOptions) {
	first := offset == 0
	if t.stripsLeft && first {
		r, _ := utf8.DecodeRuneInString(s)
		first = !unicode.IsSpace(r)
	}
	var prov []int32
	if o.Literal != nil && t.normal != nil && t.normal.anySpecial {
		prov = spanNumbers(o.Literal, offset, len(s))
	}
	if t.normalizer != nil {
		s, prov = t.normalizer.normalize(s, prov)
	}
	if s == "" {
		return
	}
	if t.normal == nil {
		t.pretokenize(sc, t.stages, s, first)
		return
	}
	var p provenance = nowhere{}
	switch {
	case prov != nil:
		p = inBytes(prov)
	case o.Literal == nil && o.ParseSpecial:
		p = everywhere{}
	}
	t.normal.split(s, p,
		func(start, end int) { t.pretokenize(sc, t.stages, s[start:end], first && start == 0) },
		func(id int32) { sc.ids = append(sc.ids, id) })
}

// spanNumbers returns, for n bytes from offset, the number (from 1) of the literal span that each lies in, 0 for none.
func spanNumbers(spans []Span, offset, n int) []int32 {
	prov := make([]int32, n)
	k := sort.Search(len(spans), func(i int) bool { return spans[i].End > offset })
	for ; k < len(spans) && spans[k].Start < offset+n; k++ {
		for i := max(spans[k].Start-offset, 0); i < min(spans[k].End-offset, n); i++ {
			prov[i] = int32(k + 1)
		}
	}
	return prov
}

// VocabSize returns one more than the highest id that stands for something. A model's logits can be wider.
func (t *Tokenizer) VocabSize() int { return len(t.tokens) }

// ID returns the id of a token, given as it is written in the vocabulary.
func (t *Tokenizer) ID(token string) (int32, bool) {
	id, ok := t.ids[token]
	return id, ok
}

// Token returns a token as it is written in the vocabulary.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.has(id) {
		return "", false
	}
	return t.tokens[id], true
}

func (t *Tokenizer) has(id int32) bool { return id >= 0 && int(id) < len(t.tokens) && t.present[id] }

// IsSpecial reports whether id is a special token, which decoding can skip.
func (t *Tokenizer) IsSpecial(id int32) bool { return t.has(id) && t.special[id] }

// SpecialTokens returns the texts of the special tokens in order of their ids.
func (t *Tokenizer) SpecialTokens() []string {
	var list []string
	for id, s := range t.special {
		if s {
			list = append(list, t.tokens[id])
		}
	}
	return list
}

// BOS returns the token that starts a text, if the tokenizer names one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the token that ends a text, if the tokenizer names one. tokenizer.json does not; see WithConfig.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// AddsBOS reports whether AddSpecial puts the BOS token first. A chat template that writes it already must then be
// tokenised without AddSpecial.
func (t *Tokenizer) AddsBOS() bool { return t.bos >= 0 && len(t.before) > 0 && t.before[0] == t.bos }

// Digest returns the hex SHA-256 over everything that decides ids and decoded text.
func (t *Tokenizer) Digest() string { return t.digest }
