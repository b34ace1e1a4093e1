package tokenizer

import (
	"sort"
	"sync"
	"unicode"
	"unicode/utf8"
)

// class is the set of character classes of one code point (Unicode 16.0, the version that the tokenizers library's regular
// expressions follow; Go's own tables are of another version).
type class uint8

const (
	classLetter   class = 1 << iota // \p{L}
	classNumber                     // \p{N}, with letter-like and other numbers such as Ⅷ and ½
	classMark                       // \p{M}
	classPunct                      // \p{P}
	classSymbol                     // \p{S}
	classSpace                      // \s, the 25 characters of White_Space
	classUpperish                   // \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}
	classLowerish                   // \p{Ll}\p{Lm}\p{Lo}\p{M}
)

const classBlock = 256

// classTable is a two-stage table: a block of classBlock classes for every 256 code points, equal blocks shared.
type classTable struct {
	ascii  [utf8.RuneSelf]class
	index  [(unicode.MaxRune + 1) / classBlock]uint16
	blocks [][classBlock]class
}

// unicodeClasses returns the table, which is unpacked once.
var unicodeClasses = sync.OnceValue(func() *classTable {
	t := &classTable{}
	seen := map[[classBlock]class]uint16{}
	run := 0
	for b := range t.index {
		var block [classBlock]class
		for i := range block {
			r := uint32(b*classBlock + i)
			for run+1 < len(classRuns) && classRuns[run+1]>>8 <= r {
				run++
			}
			block[i] = class(classRuns[run] & 0xFF)
		}
		at, ok := seen[block]
		if !ok {
			at = uint16(len(t.blocks))
			seen[block] = at
			t.blocks = append(t.blocks, block)
		}
		t.index[b] = at
	}
	copy(t.ascii[:], t.blocks[t.index[0]][:])
	return t
})

// of returns the classes of r, which must be a valid code point.
func (t *classTable) of(r rune) class {
	return t.blocks[t.index[uint32(r)/classBlock]][uint32(r)%classBlock]
}

// at returns the classes and the length in bytes of the character at s[i]; at the end of s both are 0.
func (t *classTable) at(s string, i int) (class, int) {
	if i >= len(s) {
		return 0, 0
	}
	if c := s[i]; c < utf8.RuneSelf {
		return t.ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return t.of(r), n
}

// run returns the end of the run of characters from s[i] whose classes meet any of want.
func (t *classTable) run(s string, i int, want class) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&want == 0 {
			break
		}
		i += n
	}
	return i
}

// isWord reports \w as the flag single_word means it (UTS 18: alphabetic, marks, decimal digits, connectors, joiners).
func (t *classTable) isWord(r rune) bool {
	if t.of(r)&(classLetter|classMark) != 0 {
		return true
	}
	i := sort.Search(len(wordExtraRuns), func(i int) bool { return wordExtraRuns[i]>>1 > uint32(r) })
	return i > 0 && wordExtraRuns[i-1]&1 == 1
}
