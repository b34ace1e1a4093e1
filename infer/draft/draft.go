// Package draft guesses how a text goes on from the text itself: prompt lookup. Where the last tokens occurred before, in
// the prompt or in the completion, those that followed then are proposed again. That is often right where an answer
// quotes, corrects, extracts or repeats, and costs no second model.
//
// A proposal is a guess, and whoever uses it has to verify it. It depends on the tokens alone.
//
//	x := draft.NewIndex()
//	guess = x.Propose(tokens, 8, draft.MinMatch, guess[:0]) // at most 8 tokens; none where nothing occurred before
package draft

const (
	// MinMatch is the least number of last tokens that must have occurred before. Single tokens (a comma, "the") recur all
	// the time and foretell little; pairs are what the index is made of.
	MinMatch = 2
	// MaxMatch is where comparing ends: of two places that agree in so many tokens neither is the better guess.
	MaxMatch = 16

	// window is how far back, in tokens, a place may lie. It bounds the index (64 KiB of links) and is twice the context
	// of the long documents this is made for.
	window = 1 << 14
	// buckets of the hash table: half as many as the window's pairs, since most texts repeat theirs; 32 KiB.
	bucketBits = 13
	// maxPlaces bounds the places looked at in one call, the latest first, so that a pair which occurs thousands of times
	// costs less than a microsecond all the same.
	maxPlaces = 32
)

// Index knows where each pair of adjacent tokens of a text occurred: hash chains over positions, as in LZ77 coders. It
// grows with the text, takes about 100 KiB whatever the text's length, and allocates nothing after NewIndex. It is not
// safe for concurrent use.
type Index struct {
	latest [1 << bucketBits]int32 // by hash of a pair: position of its second token + 1, the latest; 0: none
	before [window]int32          // by position modulo window: the place before it in its chain, as in latest
	done   int                    // pairs that end before this position are entered
}

// NewIndex makes the index of an empty text.
func NewIndex() *Index { return &Index{} }

// Reset makes it the index of an empty text again.
func (x *Index) Reset() {
	clear(x.latest[:]) // links are reached from there only
	x.done = 0
}

// Propose appends at most n tokens to out that may follow tokens, which begins with the tokens of the last call since
// Reset. It takes the place where most of the last tokens (at least match, see MinMatch, and at most MaxMatch) occurred
// before, of several the latest. A place near the end is repeated with its period. None are appended where there is no
// such place.
func (x *Index) Propose(tokens []int32, n, match int, out []int32) []int32 {
	end := len(tokens) - 1
	if end < 1 || n <= 0 {
		return out
	}
	for p := max(x.done, 1); p < end; p++ {
		h := hash(tokens[p-1], tokens[p])
		x.before[p%window] = x.latest[h]
		x.latest[h] = int32(p + 1)
	}
	x.done = max(end, x.done)

	best, length := 0, max(match, MinMatch)-1
	place := int(x.latest[hash(tokens[end-1], tokens[end])]) - 1
	for range maxPlaces {
		if place < 1 || end-place >= window {
			break
		}
		if l := common(tokens, place, end); l > length {
			best, length = place, l
			if l == MaxMatch {
				break
			}
		}
		place = int(x.before[place%window]) - 1
	}
	if best == 0 {
		return out
	}
	first := len(out)
	for i := range n {
		if at := best + 1 + i; at <= end {
			out = append(out, tokens[at])
		} else {
			out = append(out, out[first+at-end-1])
		}
	}
	return out
}

// common is the number of tokens, at most MaxMatch, in which the texts that end with positions a < b agree from the end.
func common(tokens []int32, a, b int) int {
	n := 0
	for n < MaxMatch && n <= a && tokens[a-n] == tokens[b-n] {
		n++
	}
	return n
}

// hash spreads a pair over the buckets: multiplication by the golden ratio (Knuth, TAOCP 3, 6.4), the upper bits.
func hash(a, b int32) uint64 {
	const golden = 0x9e3779b97f4a7c15
	return ((uint64(uint32(a))<<32 | uint64(uint32(b))) * golden) >> (64 - bucketBits)
}
