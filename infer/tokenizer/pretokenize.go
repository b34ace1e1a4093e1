package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// preStage is one step of a pre-tokenizer: an optional rewriting of the piece, then an optional splitting.
type preStage struct {
	replaceSpaces bool // Metaspace: every space becomes a ▁
	prefix        string
	// prefixAt says where prefix goes in front of a piece that does not start with it.
	prefixAt prefixScheme
	split    splitter // nil: the piece stays whole
}

type prefixScheme uint8

const (
	prefixNever prefixScheme = iota
	prefixFirst              // only at the very start of the text
	prefixAlways
)

func (p *preStage) prepare(s string, first bool) string {
	if p.replaceSpaces {
		s = strings.ReplaceAll(s, " ", metaspace)
	}
	if (p.prefixAt == prefixAlways || p.prefixAt == prefixFirst && first) && !strings.HasPrefix(s, p.prefix) {
		s = p.prefix + s
	}
	return s
}

// pretokenize runs s, which is not empty, through the stages and encodes what comes out of the last one. first says that s
// stands at the very start of the text.
func (t *Tokenizer) pretokenize(sc *scratch, stages []preStage, s string, first bool) {
	if len(stages) == 0 {
		t.model.encode(sc, s)
		return
	}
	st := &stages[0]
	s = st.prepare(s, first)
	if st.split == nil {
		t.pretokenize(sc, stages[1:], s, first)
		return
	}
	for i := 0; i < len(s); {
		end := st.split.next(s, i)
		t.pretokenize(sc, stages[1:], s[i:end], first && i == 0)
		i = end
	}
}

// textSplit splits at a fixed text, which is not empty.
type textSplit struct {
	at       string
	behavior splitBehavior
}

type splitBehavior uint8

const (
	isolated splitBehavior = iota
	mergedWithPrevious
	mergedWithNext
	contiguous
)

func (t textSplit) next(s string, i int) int {
	n := len(t.at)
	k := strings.Index(s[i:], t.at)
	switch t.behavior {
	case mergedWithPrevious:
		if k >= 0 {
			return i + k + n
		}
	case mergedWithNext:
		from := i
		if k == 0 {
			from += n
			k = strings.Index(s[from:], t.at)
		}
		if k >= 0 {
			return from + k
		}
	default:
		if k > 0 {
			return i + k
		}
		if k == 0 {
			i += n
			for t.behavior == contiguous && strings.HasPrefix(s[i:], t.at) {
				i += n
			}
			return i
		}
	}
	return len(s)
}

// Patterns of tokenizer.json as published, each with its scanner. Patterns are compared as text: whatever is not listed is
// refused, since a similar one can differ in rare pieces.
const (
	gpt2Pattern   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	llama3Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen2Pattern  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwen35Pattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	o200kPattern  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	deepseekPattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	digits3Pattern  = `\p{N}{1,3}`
	digitPattern    = `\p{N}`
	cjkPattern      = `[一-龥぀-ゟ゠-ヿ]+`
)

// patternScanner returns the scanner of a known pattern. full says that the pattern matches everywhere, so that keeping
// only matches, or all pieces, is the same.
func patternScanner(pattern string) (s splitter, full, ok bool) {
	t := unicodeClasses()
	switch pattern {
	case gpt2Pattern:
		return gpt2Scan{t}, true, true
	case llama3Pattern:
		return wordScan{t: t, digits: 3}, true, true
	case qwen2Pattern:
		return wordScan{t: t, digits: 1}, true, true
	case qwen35Pattern:
		return wordScan{t: t, digits: 1, marks: true}, true, true
	case o200kPattern:
		return casedScan{t: t, digits: 3, contractions: true}, true, true
	case tekkenPattern:
		return casedScan{t: t, digits: 1}, true, true
	case deepseekPattern:
		return deepseekScan{t}, false, true
	case digits3Pattern:
		return numberScan{t, 3}, false, true
	case digitPattern:
		return numberScan{t, 1}, false, true
	case cjkPattern:
		return cjkScan{}, false, true
	}
	return nil, false, false
}

// byteChars is GPT-2's byte alphabet: printable bytes stand for themselves, the 68 others are U+0100 and up, in order.
func byteChars() [256]rune {
	var chars [256]rune
	next := rune(0x100)
	for b := range chars {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			chars[b] = rune(b)
		} else {
			chars[b] = next
			next++
		}
	}
	return chars
}

// byteAlphabet decodes tokens in GPT-2's byte alphabet.
type byteAlphabet struct {
	of [0x144]int16 // character -> byte, -1: none
}

func newByteAlphabet() *byteAlphabet {
	a := &byteAlphabet{}
	for i := range a.of {
		a.of[i] = -1
	}
	for b, r := range byteChars() {
		a.of[r] = int16(b)
	}
	return a
}

// bytes appends what a token stands for: its bytes, or its own text if it has a character outside of the alphabet.
func (a *byteAlphabet) bytes(dst []byte, token string) []byte {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(a.of) || a.of[r] < 0 {
			return append(dst[:n], token...)
		}
		dst = append(dst, byte(a.of[r]))
	}
	return dst
}

// raw returns the bytes of a token wholly in the alphabet.
func (a *byteAlphabet) raw(token string) (string, bool) {
	for _, r := range token {
		if int(r) >= len(a.of) || a.of[r] < 0 {
			return "", false
		}
	}
	return string(a.bytes(make([]byte, 0, utf8.RuneCountInString(token)), token)), true
}
