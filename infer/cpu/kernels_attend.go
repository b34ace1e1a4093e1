package cpu

import (
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

const (
	// spanPages is the unit of reduction of integer attention: so many pages, aligned to a sequence's start, are folded at
	// once. It is part of what decides a result's bits.
	spanPages = 4
	// spanTokens is the keys of a span.
	spanTokens = spanPages * device.PageTokens
	// stripRows8 is the most query rows that one call of these kernels takes: the height of a matrix tile.
	stripRows8 = 16
	// codeMax is the largest code; codes are symmetric, -127 to 127.
	codeMax = 127
	// tiny is the least amax that is not rounded to nothing: below it the inverse 127/amax could overflow.
	tiny = 0x1p-100
	// quadWidth is how many codes lie together: what one lane of an integer product takes at once.
	quadWidth = 4
	// headUnit divides a head's padded size in the cache: two vectors of 16 quads.
	headUnit = 32
	// queryUnit divides a packed query's size in bytes: a row of a matrix tile.
	queryUnit = 64
)

// rows8 is the state of a strip of query rows, the layout of the kernels, which the generator knows by its offsets. All but c, low,
// high and offset belong to them.
type rows8 struct {
	c       [stripRows8]float32 // what turns an integer score times its key's scale into a power of 2
	max     [stripRows8]float32 // largest score so far, in powers of 2
	sum     [stripRows8]float32 // sum of the probabilities so far, relative to max
	alpha   [stripRows8]float32 // 2^(old max - max): corrects what was summed before this span
	inverse [stripRows8]float32 // turns a probability times its value's scale into a code
	scale   [stripRows8]float32 // turns sums of codes back
	low     [stripRows8]int32   // keys of the span that a masked row sees: low <= key < high
	high    [stripRows8]int32
	offset  [stripRows8]int32 // -128 times the sum of the row's query codes
	lanesA  [stripRows8][lanes]float32
	lanesB  [stripRows8][lanes]float32
}

// span8 points to the pages of a span in the cache.
type span8 [spanPages]unsafe.Pointer

// strip8 is what a span is folded into: up to stripRows8 rows.
type strip8 struct {
	rows   int
	pages  int            // that its rows see any of, at least 1
	masked int            // maskNone, or which bounds of the state count
	q      unsafe.Pointer // [rows][ldq] codes, zero from the head's size on
	st     *rows8
	acc    unsafe.Pointer // [rows][dim] float32
}

// pad8 is where the kernels keep what is on its way; of 16 rows, whatever a strip has.
type pad8 struct {
	scores unsafe.Pointer // [16][128] int32, then float32
	probs  unsafe.Pointer // [16][128] codes
	out    unsafe.Pointer // [16][dim] int32
}

// kernels8 is one instruction set's implementation of integer attention. A page holds, for one layer and KV head, keys
// [dim/4][32 tokens][4] and values [32/4][dim][4] of signed bytes, then the scales of the keys and of the values, [32] float32
// each. dim is a multiple of headUnit.
type kernels8 struct {
	name string

	// quantise rounds 16*blocks values to codes and gives their scale and the sum of the codes in *out.
	quantise func(blocks int, dst, x unsafe.Pointer, out *quantised)
	// place puts a token's codes into a page: keys is its quad of the first keys, values the first quad that it shares with
	// three others, at its byte there.
	place func(dim int, k, v, keys, values unsafe.Pointer, at int)
	// touch has the memory fetched that place will write, and the two scales; nil: it cannot be asked for.
	touch func(dim int, keys, values, scales unsafe.Pointer)
	// fold folds a span into strips; nil: steps do so one after the other. The first strip is the largest, and all of its 16
	// rows can be read.
	fold func(strips []strip8, dim, ldq int, span *span8, pad *pad8)
	steps8
	// finish writes acc * (1/sum) for 16*blocks values of each row, to where dst says; rows of acc are lda bytes apart.
	finish func(rows, blocks, lda int, acc unsafe.Pointer, st *rows8, dst *unsafe.Pointer)
}

// Which keys of a span a strip's rows see: all, those below each row's high, or those from its low on below its high.
const (
	maskNone = iota
	maskHigh
	maskBoth
)

// steps8 are the steps by which a strip takes a span.
type steps8 struct {
	// scores: s[rows][128] int32 = q . k for the span's first pages. q is [rows][ldq] codes, zero from the head's size on.
	scores func(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, st *rows8)
	// softmax folds the span's scores into the rows' state and gives probabilities p[rows][128], codes 0 to 127. It
	// overwrites s. scales is where a page has the scales of its keys.
	softmax func(rows, pages, scales int, s, p unsafe.Pointer, span *span8, st *rows8, masked int)
	// values: o[rows][dim] int32 = p . v.
	values func(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer)
	// add: acc[rows][dim] = o*scale + acc*alpha. A row that saw nothing of the span keeps its bits.
	add func(rows, dim int, o, acc unsafe.Pointer, st *rows8)
}

// span folds the span's first pages into strips.
func (k *kernels8) span(strips []strip8, dim, ldq int, span *span8, pad *pad8) {
	if k.fold != nil {
		k.fold(strips, dim, ldq, span, pad)
		return
	}
	for i := range strips {
		s := &strips[i]
		k.scores(s.rows, s.pages, dim, ldq, s.q, span, pad.scores, s.st)
		k.softmax(s.rows, s.pages, scalesAt(dim), pad.scores, pad.probs, span, s.st, s.masked)
		k.values(s.rows, s.pages, dim, pad.probs, span, pad.out)
		k.add(s.rows, dim, pad.out, s.acc, s.st)
	}
}

// quantised is what is known of a quantised head.
type quantised struct {
	scale float32
	sum   int32 // of the codes
}

// pageBytes8 is the size of a page of one layer and head; scalesAt is where the scales of the keys are, valuesAt where the
// values are.
func pageBytes8(dim int) int { return scalesAt(dim) + 2*4*device.PageTokens }
func scalesAt(dim int) int   { return 2 * device.PageTokens * dim }
func valuesAt(dim int) int   { return device.PageTokens * dim }

// start readies the first rows for their first span.
func (st *rows8) start(rows int) {
	for i := range rows {
		st.max[i], st.sum[i] = maskedMax, 0
	}
}
