package main

import "fmt"

// Registers of gemmOne.
const (
	oneWords = 0 // [groups][2] sums of 16 bits
	oneInts  = 4 // [groups][2] sums of 32 bits
	oneFloat = 8 // [2]
	oneCodes = 10
	oneUpper = 11 // codes of the upper four bits of bytes
	oneAct   = 12
	oneSW    = 13
	oneTmp   = 14
)

// gemmOne writes
//
//	func few4(args *fewArgs)
//
// for AVX2: as gemmFew, but for one token, whose activations are [blocks][32] signed bytes. The two halves of a panel's outputs follow
// one another.
//
// VPMADDUBSW adds pairs of products in 16 bits, so sums go on to 32 bits before they can overflow: codes of 4 bits after a whole block
// (8 pairs of 15*127), of 5 bits after 4 pairs of 31*127, of 6 bits after 2 pairs of 63*127. Codes of 8 bits are taken as two of 4: twice
// the work, but exact.
func (g *gen) gemmOne(f fewForm) {
	g.text(f.name(), 8)
	g.op("MOVQ args+0(FP), AX")
	g.op("XORQ R12, R12") // 0, then 1: the half
	half, super, loop := g.unique("half"), g.unique("super"), g.unique("loop")
	g.label(half)
	for _, field := range []struct {
		reg   string
		at    int
		shift int // of the half's number, to make the distance of the halves
	}{
		{"DI", fewBlocks, 0}, {"SI", fewA, 0}, {"DX", fewLow, 6}, {"CX", fewHigh, 6}, {"R8", fewScale, 5}, {"R9", fewMin, 5}, {"BX", fewSub, 4},
		{"R15", fewSubMin, 4}, {"R10", fewSA, 0}, {"R11", fewS1, 0},
	} {
		g.op("MOVQ %d(AX), %s", field.at, field.reg)
		if field.shift > 0 {
			g.op("MOVQ R12, R13")
			g.op("SHLQ $%d, R13", field.shift)
			g.op("ADDQ R13, %s", field.reg)
		}
	}
	g.op("MOVQ %d(AX), R13", fewSums)
	for i := range 2 {
		g.op("VXORPS Y%d, Y%d, Y%d", oneFloat+i, oneFloat+i, oneFloat+i)
	}
	g.label(super)
	if f.super {
		g.op("MOVQ $8, R14")
	}
	g.label(loop)
	for i := range 4 * f.groups() / 2 {
		g.op("VPXOR Y%d, Y%d, Y%d", oneInts+i, oneInts+i, oneInts+i)
	}
	if f.bits == 8 {
		g.oneBytes()
	} else {
		g.onePacked(f)
	}
	g.oneScale(f)
	g.op("ADDQ $32, SI")
	for _, reg := range []string{"R10", "R11", "R13"} {
		g.op("ADDQ $4, %s", reg)
	}
	if f.super {
		g.op("ADDQ $%d, BX", 32*f.groups())
		g.op("ADDQ $32, R15")
		g.op("DECQ R14")
		g.op("JNZ %s", loop)
		g.op("SUBQ $7, DI")
	}
	g.op("ADDQ $64, R8")
	g.op("ADDQ $64, R9")
	g.op("DECQ DI")
	g.op("JNZ %s", super)
	g.op("MOVQ %d(AX), DI", fewC)
	g.op("MOVQ R12, R13")
	g.op("SHLQ $6, R13")
	g.op("ADDQ R13, DI")
	for i := range 2 {
		g.op("VMOVUPS Y%d, %d(DI)", oneFloat+i, 32*i)
	}
	g.op("INCQ R12")
	g.op("CMPQ R12, $2")
	g.op("JNE %s", half)
	g.ret()
}

// oneDot adds the products of codes with a quad of activations to a sum of 16 bits, or starts it.
func (g *gen) oneDot(codes, quad, words int, start bool) {
	g.op("VPBROADCASTD %d(SI), Y%d", 4*quad, oneAct)
	if start {
		g.op("VPMADDUBSW Y%d, Y%d, Y%d", oneAct, codes, words)
		return
	}
	g.op("VPMADDUBSW Y%d, Y%d, Y%d", oneAct, codes, oneAct)
	g.op("VPADDW Y%d, Y%d, Y%d", oneAct, words, words)
}

// oneFlush adds a sum of 16 bits to one of 32.
func (g *gen) oneFlush(words, ints int) {
	g.op("VPMADDWD ones16<>(SB), Y%d, Y%d", words, words)
	g.op("VPADDD Y%d, Y%d, Y%d", words, ints, ints)
}

// onePacked multiplies a block of codes of 4, 5 or 6 bits.
func (g *gen) onePacked(f fewForm) {
	per := map[int]int{4: 4, 5: 2, 6: 2}[f.bits] // quads, and their counterparts, between flushes
	for quad := range 4 {
		for i := range 2 {
			g.op("VMOVDQU %d(DX), Y%d", 128*quad+32*i, oneCodes)
			if i == 0 {
				g.op("PREFETCHT0 %d(DX)", fewFetch+128*quad)
			}
			g.op("VPSRLW $4, Y%d, Y%d", oneCodes, oneUpper)
			g.op("VPAND nibbles<>(SB), Y%d, Y%d", oneCodes, oneCodes)
			g.op("VPAND nibbles<>(SB), Y%d, Y%d", oneUpper, oneUpper)
			g.oneUpperBits(f, quad, i)
			first := quad%per == 0
			lower, upper := oneWords+i, oneWords+i
			if f.groups() == 2 {
				upper = oneWords + 2 + i
			}
			g.oneDot(oneCodes, quad, lower, first)
			g.oneDot(oneUpper, quad+4, upper, first && f.groups() == 2)
			if quad%per == per-1 {
				g.oneFlush(lower, oneInts+i)
				if f.groups() == 2 {
					g.oneFlush(upper, oneInts+2+i)
				}
			}
		}
	}
	g.op("ADDQ $512, DX")
	g.op("ADDQ $%d, CX", 128*(f.bits-4))
}

// oneUpperBits is fewUpperBits for 32 bytes of a quad.
func (g *gen) oneUpperBits(f fewForm, quad, i int) {
	if f.bits == 4 {
		return
	}
	planes := 2 * (f.bits - 4)
	mask := "bit4"
	if f.bits == 6 {
		mask = "bits45"
	}
	for half, codes := range []int{oneCodes, oneUpper} {
		at := (2*quad/planes + half*8/planes) * (f.bits - 4)
		g.op("VMOVDQU %d(CX), Y%d", 64*(2*quad%planes)+32*i, oneTmp)
		switch {
		case at < 4:
			g.op("VPSLLW $%d, Y%d, Y%d", 4-at, oneTmp, oneTmp)
		case at > 4:
			g.op("VPSRLW $%d, Y%d, Y%d", at-4, oneTmp, oneTmp)
		}
		g.op("VPAND %s<>(SB), Y%d, Y%d", mask, oneTmp, oneTmp)
		g.op("VPOR Y%d, Y%d, Y%d", oneTmp, codes, codes)
	}
}

// oneBytes multiplies a block of codes of 8 bits, 128 added, as two codes of 4 bits: the sums of the lower ones are at oneWords, of the
// upper ones at oneWords+2.
func (g *gen) oneBytes() {
	for quad := range 8 {
		for i := range 2 {
			g.op("VMOVDQU %d(DX), Y%d", 128*quad+32*i, oneCodes)
			if i == 0 {
				g.op("PREFETCHT0 %d(DX)", fewFetch+128*quad)
			}
			g.op("VPXOR sign8<>(SB), Y%d, Y%d", oneCodes, oneCodes)
			g.op("VPSRLW $4, Y%d, Y%d", oneCodes, oneUpper)
			g.op("VPAND nibbles<>(SB), Y%d, Y%d", oneCodes, oneCodes)
			g.op("VPAND nibbles<>(SB), Y%d, Y%d", oneUpper, oneUpper)
			g.oneDot(oneCodes, quad, oneWords+i, quad == 0)
			g.oneDot(oneUpper, quad, oneWords+2+i, quad == 0)
		}
	}
	for i := range 2 {
		g.oneFlush(oneWords+2+i, oneInts+i)
		g.op("VPSLLD $4, Y%d, Y%d", oneInts+i, oneInts+i)
		g.oneFlush(oneWords+i, oneInts+i)
	}
	g.op("ADDQ $1024, DX")
}

// oneScale adds the scaled sums of a block to the float32 sums.
func (g *gen) oneScale(f fewForm) {
	for group := range f.groups() {
		if !f.min {
			shift := map[int]int{4: 3, 5: 4, 6: 5, 8: 7}[f.bits]
			if f.groups() == 2 {
				g.oneHalfSum(group)
			} else {
				g.op("VPBROADCASTD (R13), Y%d", oneTmp)
			}
			g.op("VPSLLD $%d, Y%d, Y%d", shift, oneTmp, oneTmp)
			for i := range 2 {
				y := oneInts + 2*group + i
				g.op("VPSUBD Y%d, Y%d, Y%d", oneTmp, y, y)
			}
		}
		for i := range 2 {
			g.op("VCVTPH2PS %d(R8), Y%d", 16*i, oneSW)
			if f.super {
				widen := "VPMOVZXBD"
				if f.groups() == 2 {
					widen = "VPMOVSXBD"
				}
				g.op("%s %d(BX), Y%d", widen, 32*group+8*i, oneTmp)
				g.op("VCVTDQ2PS Y%d, Y%d", oneTmp, oneTmp)
				g.op("VMULPS Y%d, Y%d, Y%d", oneTmp, oneSW, oneSW)
			}
			y := fmt.Sprintf("Y%d", oneInts+2*group+i)
			g.op("VCVTDQ2PS %s, %s", y, y)
			g.op("VMULPS Y%d, %s, %s", oneSW, y, y)
			g.op("VBROADCASTSS (R10), Y%d", oneTmp)
			g.op("VFMADD231PS Y%d, %s, Y%d", oneTmp, y, oneFloat+i)
			if !f.min {
				continue
			}
			g.op("VCVTPH2PS %d(R9), Y%d", 16*i, oneSW)
			if f.super {
				g.op("VPXOR sign32<>(SB), Y%d, Y%d", oneSW, oneSW)
				g.op("VPMOVZXBD %d(R15), Y%d", 8*i, oneTmp)
				g.op("VCVTDQ2PS Y%d, Y%d", oneTmp, oneTmp)
				g.op("VMULPS Y%d, Y%d, Y%d", oneTmp, oneSW, oneSW)
			}
			g.op("VBROADCASTSS (R11), Y%d", oneTmp)
			g.op("VFMADD231PS Y%d, Y%d, Y%d", oneTmp, oneSW, oneFloat+i)
		}
	}
}

// oneHalfSum fills oneTmp with the sum of the activations of one half of a block: pairs, then four in 16 bits, then all.
func (g *gen) oneHalfSum(group int) {
	g.op("VBROADCASTI128 %d(SI), Y%d", 16*group, oneTmp)
	g.op("VMOVDQU ones8<>(SB), Y%d", oneAct)
	g.op("VPMADDUBSW Y%d, Y%d, Y%d", oneTmp, oneAct, oneTmp) // 8 sums of pairs
	g.op("VPMADDWD ones16<>(SB), Y%d, Y%d", oneTmp, oneTmp)  // 4 of four
	g.op("VPSHUFD $0x4e, Y%d, Y%d", oneTmp, oneAct)
	g.op("VPADDD Y%d, Y%d, Y%d", oneAct, oneTmp, oneTmp)
	g.op("VPSHUFD $0xb1, Y%d, Y%d", oneTmp, oneAct)
	g.op("VPADDD Y%d, Y%d, Y%d", oneAct, oneTmp, oneTmp)
}
