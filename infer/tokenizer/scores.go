package tokenizer

import (
	"fmt"
	"slices"
	"unicode/utf8"
)

// maxScorePairs bounds the table of merges made from scores: each token has at most its length in characters of them.
const maxScorePairs = 1 << 25

// setScores makes merges from scores, the form of SentencePiece: any two neighbours whose text together is a token may
// merge, the highest score first, of equals the leftmost. So every way to halve a token is a merge whose rank is the
// token's place among the distinct scores. Characters that occur only inside longer tokens get virtual ids.
func (b *bpe) setScores(words map[string]int32, scores []float32) error {
	distinct := make([]float32, 0, len(words))
	for text, id := range words {
		if scores[id] != scores[id] {
			return fmt.Errorf("token %d, %q, has a score that is not a number", id, text)
		}
		distinct = append(distinct, scores[id])
	}
	slices.SortFunc(distinct, func(x, y float32) int {
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	distinct = slices.Compact(distinct)
	rank := make(map[float32]int32, len(distinct))
	for i, s := range distinct {
		rank[s] = int32(i)
	}

	part := func(s string) (int32, bool) {
		if id, ok := words[s]; ok {
			return id, true
		}
		r, n := utf8.DecodeRuneInString(s)
		if n != len(s) {
			return 0, false
		}
		if id, ok := b.char(r); ok {
			return id, true
		}
		id := b.size + int32(len(b.virtual))
		b.virtual = append(b.virtual, r)
		b.setChar(r, id)
		return id, true
	}
	type merge struct{ left, right, rank, id int32 }
	var list []merge
	b.spaceCut = b.allBytes()
	for text, id := range words {
		if len(text) > maxAddedToken { // halving costs its square
			return fmt.Errorf("token %d has %d bytes: more than %d", id, len(text), maxAddedToken)
		}
		for cut := range text {
			if cut == 0 {
				continue
			}
			if len(list) == maxScorePairs {
				return fmt.Errorf("the vocabulary makes more than %d merges", maxScorePairs)
			}
			left, ok1 := part(text[:cut])
			right, ok2 := part(text[cut:])
			if ok1 && ok2 {
				list = append(list, merge{left, right, rank[scores[id]], id})
			}
		}
		b.spaceCut = b.spaceCut && metaspaceCut(text) < 0
	}
	b.merges = newMergeTable(len(list))
	for _, m := range list {
		b.merges.set(m.left, m.right, m.rank, m.id)
	}
	return nil
}
