package cpu

import "unsafe"

// wordRow is the distance of rows where activations come as words.
const wordRow = 4

// qStrips are activations as integers, in strips of as many tokens as a kernel takes at a time; all strips but the last are full.
type qStrips struct {
	k      *qKernels
	isa    *kernels
	wide   bool // 16 bits
	blocks int
	n      int // tokens
	count  int // strips
	block  int // bytes of a block of a strip in data

	data  []float32 // [strip][blocks][block] bytes
	words []float32 // [strip][blocks][k.words] bytes
	sa    []float32 // [strip][blocks][rows]
	s1    []float32 // [strip][blocks][rows]
	sums  []float32 // [strip][blocks][rows] int32
}

func newQStrips(isa *kernels, width int, wide bool) qStrips {
	return qStrips{isa: isa, wide: wide, blocks: width / qBlock}
}

// resize prepares for n tokens.
func (s *qStrips) resize(n int) {
	s.k = s.isa.integers(n, s.wide)
	s.n, s.count, s.block = n, (n+s.k.strip-1)/s.k.strip, s.k.block8
	if s.wide {
		s.block = s.k.block16
	}
	blocks := s.count * s.blocks
	grow := func(p *[]float32, values int) {
		if len(*p) < values {
			*p = aligned(values)
		}
	}
	grow(&s.sa, blocks*s.k.strip)
	grow(&s.s1, blocks*s.k.strip)
	grow(&s.sums, blocks*s.k.strip)
	grow(&s.data, blocks*s.block/4)
	grow(&s.words, blocks*s.k.words/4)
}

// span gives the tokens of a strip.
func (s *qStrips) span(strip int) (first, rows int) {
	first = strip * s.k.strip
	return first, min(s.k.strip, s.n-first)
}

// fill quantises count blocks: the i-th comes from src + i*stride, with its second half half bytes on. They are block after block of
// one token, or token after token of one block.
func (s *qStrips) fill(q *quantArgs, strip, row, block, count int, byBlock bool, src unsafe.Pointer, stride, half int) {
	at := strip*s.blocks + block
	*q = quantArgs{
		count: count, src: src, stride: stride, half: half,
		step:  s.k.rowStep,
		scale: ptr(s.sa, at*s.k.strip+row), s1: ptr(s.s1, at*s.k.strip+row), sums: ptr(s.sums, at*s.k.strip+row),
		scaleStep: 4,
		wordsStep: wordRow,
	}
	if s.block > 0 {
		q.dst = unsafe.Add(ptr(s.data, 0), at*s.block+row*s.k.rowStep)
	}
	if s.k.words > 0 {
		q.words = unsafe.Add(ptr(s.words, 0), at*s.k.words+row*wordRow)
	}
	if byBlock {
		q.step, q.scaleStep, q.wordsStep = s.block, 4*s.k.strip, s.k.words
	}
	if s.wide {
		s.k.quant16(q)
	} else {
		s.k.quant8(q)
	}
}

// row quantises a whole token from contiguous values.
func (s *qStrips) row(q *quantArgs, token int, src unsafe.Pointer) {
	s.fill(q, token/s.k.strip, token%s.k.strip, 0, s.blocks, true, src, 4*qBlock, 4*lanes)
}

// few sets the arguments that say where the activations of a single strip are.
func (s *qStrips) few(a *fewArgs) {
	a.blocks, a.a, a.sa, a.s1, a.sums = s.blocks, address(s.data, 0), address(s.sa, 0), address(s.s1, 0), address(s.sums, 0)
}

// product sets the arguments that say where the activations of strips from first on are, for a weight whose codes are nibbles or not.
func (s *qStrips) product(a *qArgs, first int, nibbles bool) {
	a.blocks = s.blocks
	if s.k.words > 0 && !nibbles {
		a.a, a.aStrip = address(s.words, first*s.blocks*s.k.words/4), s.blocks*s.k.words
	} else {
		a.a, a.aStrip = address(s.data, first*s.blocks*s.block/4), s.blocks*s.block
	}
	scales := first * s.blocks * s.k.strip
	a.sa, a.s1, a.sStrip = address(s.sa, scales), address(s.s1, scales), 4*s.blocks*s.k.strip
	if nibbles {
		a.sums = address(s.sums, scales)
	}
}
