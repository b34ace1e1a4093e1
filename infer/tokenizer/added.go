package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxAddedToken bounds the bytes of an added token, and so the work at one place of a text. The longest in real
// tokenizers are runs of about a hundred spaces.
const maxAddedToken = 4096

// addedToken is a token that is cut out of the text before anything else.
type addedToken struct {
	content    string
	id         int32
	special    bool // controls the model: never recognised in data
	singleWord bool // not next to a word character
	lstrip     bool // takes the white space before it
	rstrip     bool // takes the white space after it
	normalized bool // looked for in the normalised text, in its normalised form
}

// matcher finds the added tokens of one pass (before or after normalising).
type matcher struct {
	tokens     []addedToken
	texts      []string
	trie       *trie
	classes    *classTable
	anySpecial bool
}

func newMatcher(tokens []addedToken, texts []string) *matcher {
	m := &matcher{tokens: tokens, texts: texts, trie: newTrie(texts), classes: unicodeClasses()}
	for _, t := range tokens {
		m.anySpecial = m.anySpecial || t.special
	}
	return m
}

// provenance answers whether bytes of a text are literal, that is, whether its special tokens count.
type provenance interface {
	// within reports that all of [start, end) lies inside one literal span.
	within(start, end int) bool
	// touches reports that some of [start, end) is literal.
	touches(start, end int) bool
}

// everywhere and nowhere are the two provenances without spans.
type everywhere struct{}

func (everywhere) within(int, int) bool  { return true }
func (everywhere) touches(int, int) bool { return true }

type nowhere struct{}

func (nowhere) within(int, int) bool  { return false }
func (nowhere) touches(int, int) bool { return false }

// inSpans is the provenance of a part of a text that starts at offset; spans are sorted and disjoint. Questions come with
// growing start, so that next, the first span that may still matter, only moves on.
type inSpans struct {
	spans  []Span
	offset int
	next   int
}

func (p *inSpans) at(start int) (Span, bool) {
	for p.next < len(p.spans) && p.spans[p.next].End <= start {
		p.next++
	}
	if p.next == len(p.spans) {
		return Span{}, false
	}
	return p.spans[p.next], true
}

func (p *inSpans) within(start, end int) bool {
	s, ok := p.at(start + p.offset)
	return ok && s.Start <= start+p.offset && end+p.offset <= s.End
}

func (p *inSpans) touches(start, end int) bool {
	s, ok := p.at(start + p.offset)
	return ok && s.Start < end+p.offset
}

// inBytes is the provenance of a normalised text: a span's number, or 0, for each byte.
type inBytes []int32

func (p inBytes) within(start, end int) bool { return common(p[start:end]) != 0 }

func (p inBytes) touches(start, end int) bool {
	for _, n := range p[start:end] {
		if n != 0 {
			return true
		}
	}
	return false
}

// split calls text for the stretches of s between added tokens and token for these, in order.
//
// Matches are leftmost, then longest, and do not overlap. As in the tokenizers library a match that single_word rejects,
// or a special token that stands wholly in data, is passed over as text with all that it covers. One that lies partly in
// data must not hide a literal token that overlaps it: there the next shorter one counts, then the next place.
func (m *matcher) split(s string, p provenance, text func(start, end int), token func(id int32)) {
	done := 0
	var found []int32
	for i := 0; i < len(s); {
		i = m.trie.candidate(s, i)
		if i < 0 {
			break
		}
		found = m.trie.at(s, i, found[:0])
		t, end, over := m.choose(s, i, found, p)
		if t == nil {
			i = over
			continue
		}
		start := i
		if t.lstrip {
			start = max(len(strings.TrimRightFunc(s[:i], unicode.IsSpace)), done)
		}
		if t.rstrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], unicode.IsSpace))
		}
		if done < start {
			text(done, start)
		}
		token(t.id)
		done, i = end, end
	}
	if done < len(s) {
		text(done, len(s))
	}
}

// choose picks the token at s[i] among found; without one it returns the place to go on from.
func (m *matcher) choose(s string, i int, found []int32, p provenance) (t *addedToken, end, over int) {
	for k := len(found) - 1; k >= 0; k-- {
		t := &m.tokens[found[k]]
		end := i + len(m.texts[found[k]])
		if t.special && !p.within(i, end) {
			if p.touches(i, end) {
				continue
			}
			return nil, 0, end
		}
		if t.singleWord && !m.alone(s, i, end) {
			return nil, 0, end
		}
		return t, end, 0
	}
	return nil, 0, i + 1
}

// alone reports that no word character stands before or after s[start:end].
func (m *matcher) alone(s string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:start])
	after, _ := utf8.DecodeRuneInString(s[end:])
	return (start == 0 || !m.classes.isWord(before)) && (end == len(s) || !m.classes.isWord(after))
}
