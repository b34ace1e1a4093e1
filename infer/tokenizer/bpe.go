package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// bpe is the merge model. Its symbols are token ids; under GGUF's score form also virtual ids, at or above size, for
// characters that occur only inside longer tokens.
type bpe struct {
	merges *mergeTable
	size   int32 // ids of the vocabulary are below

	byteLevel bool
	bytes     [256]int32 // byte level: the symbol of a byte; else the token <0xXX> of byte fallback; -1: none

	ascii        [utf8.RuneSelf]int32
	chars        map[rune]int32 // not byte level: single-character tokens
	virtual      []rune         // virtual id - size -> character
	byteFallback bool
	unk          int32 // -1: none
	fuseUnk      bool
	// spaceCut says that no token holds a ▁ after another character, so that words before it can be merged apart.
	spaceCut bool

	whole map[string]int32 // ignore_merges: pre-tokens that are a token as they stand
}

const metaspace = "▁" // U+2581, SentencePiece's visible space

// Bounds of the cache of merged pre-tokens in each scratch: it takes a few MB at most, and longer words seldom recur.
const (
	maxCachedWord = 48
	maxCached     = 1 << 14
)

// scratch holds the buffers of one Encode call; a pool keeps them, with their caches, between calls.
type scratch struct {
	ids   []int32
	sym   []int32
	rank  []int32
	long  longMerge
	cache map[string][]int32
}

// maxKeptSymbols bounds the buffers that go back into the pool: a text of one endless word must not hold its memory for
// good. It is far above the longest word of any prompt that fits a context, and about 1 MiB a buffer.
const maxKeptSymbols = 1 << 18

// trim drops buffers that are unusually large.
func (sc *scratch) trim() {
	if cap(sc.sym) > maxKeptSymbols {
		sc.sym, sc.long = nil, longMerge{}
	}
	if cap(sc.ids) > maxKeptSymbols {
		sc.ids = nil
	}
}

// encode appends the ids of one pre-token.
func (b *bpe) encode(sc *scratch, word string) {
	if b.spaceCut {
		for {
			cut := metaspaceCut(word)
			if cut < 0 {
				break
			}
			b.encodeWord(sc, word[:cut])
			word = word[cut:]
		}
	}
	b.encodeWord(sc, word)
}

// metaspaceCut returns where a ▁ follows another character in s, else -1.
func metaspaceCut(s string) int {
	i := 0
	for strings.HasPrefix(s[i:], metaspace) {
		i += len(metaspace)
	}
	k := strings.Index(s[i:], metaspace)
	if k < 0 {
		return -1
	}
	return i + k
}

func (b *bpe) encodeWord(sc *scratch, word string) {
	if b.whole != nil {
		if id, ok := b.whole[word]; ok {
			sc.ids = append(sc.ids, id)
			return
		}
	}
	if ids, ok := sc.cache[word]; ok {
		sc.ids = append(sc.ids, ids...)
		return
	}
	start := len(sc.ids)
	b.symbols(sc, word)
	b.merge(sc)
	b.finish(sc)
	if len(word) <= maxCachedWord {
		if len(sc.cache) >= maxCached {
			clear(sc.cache)
		}
		sc.cache[strings.Clone(word)] = append([]int32(nil), sc.ids[start:]...)
	}
}

// symbols sets sc.sym to the word's first symbols. A character that is no token becomes its bytes, else the unknown
// token, else nothing. As in the tokenizers library an unknown token waits until the next known one, past byte tokens.
func (b *bpe) symbols(sc *scratch, word string) {
	sc.sym = sc.sym[:0]
	if len(word) > cap(sc.sym) { // in one piece: growing by doubling would hold a long word's symbols twice
		n := len(word)
		if !b.byteLevel {
			n = utf8.RuneCountInString(word)
		}
		sc.sym = slices.Grow(sc.sym, n)
	}
	if b.byteLevel {
		for i := 0; i < len(word); i++ {
			if id := b.bytes[word[i]]; id >= 0 {
				sc.sym = append(sc.sym, id)
			}
		}
		return
	}
	waiting := false
	for i, r := range word {
		id, ok := b.char(r)
		if ok {
			if waiting {
				sc.sym = append(sc.sym, b.unk)
				waiting = false
			}
			sc.sym = append(sc.sym, id)
			continue
		}
		if b.byteFallback && b.appendBytes(&sc.sym, word[i:i+utf8.RuneLen(r)]) {
			continue
		}
		if b.unk >= 0 {
			if waiting && !b.fuseUnk {
				sc.sym = append(sc.sym, b.unk)
			}
			waiting = true
		}
	}
	if waiting {
		sc.sym = append(sc.sym, b.unk)
	}
}

func (b *bpe) char(r rune) (int32, bool) {
	if r < utf8.RuneSelf {
		return b.ascii[r], b.ascii[r] >= 0
	}
	id, ok := b.chars[r]
	return id, ok
}

// appendBytes appends the byte tokens of s, if there is one for each byte.
func (b *bpe) appendBytes(ids *[]int32, s string) bool {
	for i := 0; i < len(s); i++ {
		if b.bytes[s[i]] < 0 {
			return false
		}
	}
	for i := 0; i < len(s); i++ {
		*ids = append(*ids, b.bytes[s[i]])
	}
	return true
}

// finish appends sc.sym to sc.ids; virtual symbols that no merge took in become bytes or the unknown token.
func (b *bpe) finish(sc *scratch) {
	if len(b.virtual) == 0 {
		sc.ids = append(sc.ids, sc.sym...)
		return
	}
	for _, id := range sc.sym {
		if id < b.size {
			sc.ids = append(sc.ids, id)
			continue
		}
		if !b.appendBytes(&sc.ids, string(b.virtual[id-b.size])) && b.unk >= 0 {
			sc.ids = append(sc.ids, b.unk)
		}
	}
}

// shortWord is the number of symbols up to which scanning for the best merge beats keeping a heap.
const shortWord = 24

const noRank = int32(1<<31 - 1)

// merge merges sc.sym until no pair has a rank: always the lowest rank, of equals the leftmost.
func (b *bpe) merge(sc *scratch) {
	if len(sc.sym) < 2 {
		return
	}
	if len(sc.sym) > shortWord {
		sc.sym = sc.long.run(b.merges, sc.sym)
		return
	}
	sym, rank := sc.sym, sc.rank[:0]
	for i := 1; i < len(sym); i++ {
		r, _ := b.merges.get(sym[i-1], sym[i])
		rank = append(rank, r)
	}
	for {
		best, at := noRank, -1
		for i, r := range rank {
			if r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			break
		}
		_, sym[at] = b.merges.get(sym[at], sym[at+1])
		sym = append(sym[:at+1], sym[at+2:]...)
		rank = append(rank[:at], rank[at+1:]...)
		if at > 0 {
			rank[at-1], _ = b.merges.get(sym[at-1], sym[at])
		}
		if at < len(rank) {
			rank[at], _ = b.merges.get(sym[at], sym[at+1])
		}
	}
	sc.sym, sc.rank = sym, rank
}
