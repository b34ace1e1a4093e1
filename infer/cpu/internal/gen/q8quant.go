package main

// layout is where an instruction set wants activations.
type layout int

const (
	layoutAMX  layout = iota // [planes][16][32] bytes a block
	layoutVNNI               // [planes][8][14][4] unsigned bytes
	layoutAVX2               // [8][6][4] bytes and [8][2][6][2] words, or the words alone
	layoutFew                // [8][4][4] bytes; AVX2: [32] bytes of a single row
)

// Offsets into cpu.quantArgs.
const (
	quantCount = 8 * iota
	quantSrc
	quantStride
	quantHalf
	quantDst
	quantStep
	quantScale
	quantS1
	quantSums
	quantScaleStep
	quantWords
	quantWordsStep
)

// quantise writes
//
//	func quant8(args *quantArgs)
//
// count times: 32 float32, 16 at src and 16 half bytes on, become integers of 8 or 16 bits with a scale: the largest magnitude
// divided by 127 or 32767. Values are multiplied with the inverse and rounded half to even. A magnitude below 2^-100 counts as zero, and
// gives scale and integers 0, since its inverse could be infinite. An infinity or a NaN gives scale NaN.
// s1 is the scale times the sum of the integers, sums that sum.
func (g *gen) quantise(wide bool, l layout) {
	name, most := "quant8", uint32(0x42fe0000) // 127
	if wide {
		name, most = "quant16", 0x46fffe00 // 32767
	}
	if l == layoutFew {
		name += "Few"
	}
	g.text(name, 8)
	g.op("MOVQ args+0(FP), AX")
	for _, field := range []struct {
		reg string
		at  int
	}{{"BX", quantCount}, {"SI", quantSrc}, {"DI", quantDst}, {"R8", quantScale}, {"R9", quantS1}, {"R10", quantSums}, {"R11", quantWords}} {
		g.op("MOVQ %d(AX), %s", field.at, field.reg)
	}
	g.op("MOVL $0x%08x, CX", most)
	g.op("VMOVD CX, X15")
	loop, zero, bad, scaled := g.unique("loop"), g.unique("zero"), g.unique("bad"), g.unique("scaled")
	g.label(loop)
	g.op("MOVQ %d(AX), DX", quantHalf)
	g.op("ADDQ SI, DX")
	g.v("VMOVUPS", mem{"SI", 0}, vec(0))
	g.v("VMOVUPS", mem{"DX", 0}, vec(1))
	g.v(g.and(), constant("abs32"), vec(0), vec(2))
	g.v(g.and(), constant("abs32"), vec(1), vec(3))
	g.v("VPMAXUD", vec(3), vec(2), vec(2))
	x := g.reduce("VPMAXUD", 2, 3)
	g.op("VMOVD %s, DX", x)
	g.op("CMPL DX, $0x0d800000") // 2^-100
	g.op("JCS %s", zero)
	g.op("CMPL DX, $0x7f800000")
	g.op("JCC %s", bad)
	g.op("VDIVSS X15, %s, X13", x) // scale
	g.op("VDIVSS %s, X15, X14", x) // inverse
	g.label(scaled)
	for _, p := range g.parts(4) {
		g.op("VBROADCASTSS X14, %s", p)
	}
	for i := range 2 {
		g.v("VMULPS", vec(4), vec(i), vec(i))
		g.v("VCVTPS2DQ", vec(i), vec(i))
	}
	g.v("VPADDD", vec(1), vec(0), vec(2))
	x = g.reduce("VPADDD", 2, 3)
	g.op("VMOVD %s, (R10)", x)
	g.op("VCVTDQ2PS %s, %s", x, x)
	g.op("VMULSS X13, %s, %s", x, x)
	g.op("VMOVSS %s, (R9)", x)
	g.op("VMOVSS X13, (R8)")
	switch {
	case l == layoutAMX:
		g.storeRow(wide)
	case l == layoutVNNI:
		g.storeQuads(wide)
	case l == layoutFew && !g.wide:
		g.packBytes()
		g.storeEvenOdd(0, "DI", 4)
	case l == layoutFew:
		for i := range 2 {
			g.op("VPMOVSDB Z%d, X2", i)
			for q := range 4 {
				g.op("VPEXTRD $%d, X2, %d(DI)", q, 4*fewRows*(4*i+q))
			}
		}
	case wide:
		g.storeWords()
	default:
		g.storeBytesAndWords()
	}
	g.op("ADDQ %d(AX), SI", quantStride)
	g.op("ADDQ %d(AX), DI", quantStep)
	g.op("ADDQ %d(AX), R11", quantWordsStep)
	g.op("MOVQ %d(AX), DX", quantScaleStep)
	for _, reg := range []string{"R8", "R9", "R10"} {
		g.op("ADDQ DX, %s", reg)
	}
	g.op("DECQ BX")
	g.op("JNZ %s", loop)
	g.ret()
	g.label(zero)
	g.op("VXORPS X13, X13, X13")
	g.op("VXORPS X14, X14, X14")
	g.op("JMP %s", scaled)
	g.label(bad)
	g.op("MOVL $0x7fc00000, DX")
	g.op("VMOVD DX, X13")
	g.op("VXORPS X14, X14, X14")
	g.op("JMP %s", scaled)
}

// storeRow writes a row of a strip's tile.
func (g *gen) storeRow(wide bool) {
	for i := range 2 {
		if !wide {
			g.op("VPMOVSDB Z%d, %d(DI)", i, 16*i)
			continue
		}
		g.op("VPMOVDB Z%d, %d(DI)", i, 512+16*i)
		g.op("VPSRAD $8, Z%d, Z%d", i, i)
		g.op("VPMOVDB Z%d, %d(DI)", i, 16*i)
	}
}

// storeQuads writes 8 quads of unsigned bytes, the strip's rows apart.
func (g *gen) storeQuads(wide bool) {
	quads := func(plane, i int, sign bool) { // of Z<i>
		g.op("VPMOVDB Z%d, X2", i)
		if sign {
			g.op("VPXOR sign8<>(SB), X2, X2")
		}
		for q := range 4 {
			g.op("VPEXTRD $%d, X2, %d(DI)", q, 32*vnniRows*plane+4*vnniRows*(4*i+q))
		}
	}
	for i := range 2 {
		if !wide {
			quads(0, i, true)
			continue
		}
		quads(1, i, false)
		g.op("VPSRAD $8, Z%d, Z%d", i, i)
		quads(0, i, true)
	}
}

// packBytes narrows Y0..Y3 to the bytes of Y0. It works within the halves of registers, which leaves the quads in the order 0, 2, 4, 6
// and 1, 3, 5, 7.
func (g *gen) packBytes() {
	g.op("VPACKSSDW Y1, Y0, Y0")
	g.op("VPACKSSDW Y3, Y2, Y2")
	g.op("VPACKSSWB Y2, Y0, Y0")
}

// storeEvenOdd writes the quads of packBytes, step bytes apart.
func (g *gen) storeEvenOdd(reg int, base string, step int) {
	for odd := range 2 {
		for i := range 4 {
			g.op("VPEXTRD $%d, X%d, %d(%s)", i, reg, step*(2*i+odd), base)
		}
		if odd == 0 {
			g.op("VEXTRACTI128 $1, Y%d, X%d", reg, reg)
		}
	}
}

// storeBytesAndWords writes quads of bytes and pairs of words, in the order of packBytes.
func (g *gen) storeBytesAndWords() {
	g.packBytes()
	g.op("VPSLLW $8, Y0, Y1")
	g.op("VPSRAW $8, Y1, Y1")
	g.op("VPSRAW $8, Y0, Y2")
	for odd := range 2 {
		for i := range 4 {
			q := 2*i + odd
			g.op("VPEXTRD $%d, X0, %d(DI)", i, 4*avx2Rows*q)
			g.op("VPEXTRD $%d, X1, %d(R11)", i, 8*avx2Rows*q)
			g.op("VPEXTRD $%d, X2, %d(R11)", i, 8*avx2Rows*q+4*avx2Rows)
		}
		if odd == 0 {
			for i := range 3 {
				g.op("VEXTRACTI128 $1, Y%d, X%d", i, i)
			}
		}
	}
}

// storeWords writes pairs of words: of every four values, 0 and 2, then 1 and 3.
func (g *gen) storeWords() {
	for i := range 4 {
		g.op("VPSHUFD $0xd8, Y%d, Y%d", i, i)
	}
	g.op("VPACKSSDW Y1, Y0, Y0")
	g.op("VPACKSSDW Y3, Y2, Y1")
	for odd := range 2 {
		for v := range 2 {
			for i := range 4 { // quads 4v + 0 and 2, or 1 and 3
				q := 4*v + 2*(i/2) + odd
				g.op("VPEXTRD $%d, X%d, %d(R11)", i, v, 8*avx2Rows*q+4*avx2Rows*(i%2))
			}
		}
		if odd == 0 {
			for v := range 2 {
				g.op("VEXTRACTI128 $1, Y%d, X%d", v, v)
			}
		}
	}
}
