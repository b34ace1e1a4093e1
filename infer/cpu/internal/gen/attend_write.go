package main

import (
	"fmt"
	"math"
)

// The way of queries, keys and values to codes and into the cache.

// quantise8 writes
//
//	func quantise8(blocks int, dst, x unsafe.Pointer, out *quantised)
//
// scale = amax/127 and codes = x*(127/amax), half to even, for 16*blocks values; the scale and the sum of the codes go to out.
// amax is found on the bits, where infinities and NaN are the largest: they give the scale NaN and codes 0.
func (g *gen) quantise8() {
	g.text("quantise8", 32)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ dst+8(FP), DI")
	g.op("MOVQ x+16(FP), SI")
	g.op("MOVQ out+24(FP), DX")
	loop, codes, zeros, clear := g.unique("loop"), g.unique("codes"), g.unique("zeros"), g.unique("clear")
	and := "VPAND"
	if g.wide {
		and = "VPANDD"
	}
	g.zero(0)
	g.v("VMOVUPS", constant("absmask"), vec(2))
	g.op("MOVQ SI, R8")
	g.op("MOVQ AX, CX")
	g.label(loop)
	g.v(and, mem{"R8", 0}, vec(2), vec(1))
	g.v("VPMAXUD", vec(1), vec(0), vec(0))
	g.op("ADDQ $64, R8")
	g.op("DECQ CX")
	g.op("JNZ %s", loop)
	x := g.reduce("VPMAXUD", 0, 1)
	g.op("VMOVD %s, R9", x)
	g.op("XORL R10, R10")
	g.op("CMPL R9, $0x%08x", math.Float32bits(0x1p-100))
	g.op("JLT %s", zeros)
	g.op("MOVL $0x7fc00000, R10")
	g.op("CMPL R9, $0x7f800000")
	g.op("JGE %s", zeros)
	g.op("VMOVSS codemax<>(SB), X%d", g.x(2))
	g.op("VDIVSS X%d, %s, X%d", g.x(2), x, g.x(1))
	g.op("VMOVSS X%d, (DX)", g.x(1))
	g.op("VDIVSS %s, X%d, X%d", x, g.x(2), g.x(1))
	g.splat(fmt.Sprintf("X%d", g.x(1)), 1)
	g.zero(0)
	g.label(codes)
	g.v("VMULPS", mem{"SI", 0}, vec(1), vec(2))
	g.v("VCVTPS2DQ", vec(2), vec(2))
	g.v("VPADDD", vec(2), vec(0), vec(0))
	if g.wide {
		g.op("VPMOVDB Z2, (DI)")
	} else {
		g.op("VPACKSSDW Y5, Y4, Y4")
		g.op("VPERMQ $0xd8, Y4, Y4")
		g.op("VEXTRACTI128 $1, Y4, X5")
		g.op("VPACKSSWB X5, X4, X4")
		g.op("VMOVDQU X4, (DI)")
	}
	g.op("ADDQ $64, SI")
	g.op("ADDQ $16, DI")
	g.op("DECQ AX")
	g.op("JNZ %s", codes)
	x = g.reduce("VPADDD", 0, 1)
	g.op("VMOVD %s, 4(DX)", x)
	g.ret()
	g.label(zeros)
	g.op("MOVL R10, (DX)")
	g.op("MOVL $0, 4(DX)")
	g.op("VXORPS X0, X0, X0")
	g.label(clear)
	g.op("VMOVUPS X0, (DI)")
	g.op("ADDQ $16, DI")
	g.op("DECQ AX")
	g.op("JNZ %s", clear)
	g.ret()
}

// place8 writes
//
//	func place8(dim int, k, v, keys, values unsafe.Pointer, at int)
//
// which puts a token's codes into a page: four of k to each of the quads of keys, and those of v to byte at of the quads of values.
func (g *gen) place8() {
	g.text("place8", 48)
	g.op("MOVQ dim+0(FP), AX")
	g.op("MOVQ k+8(FP), SI")
	g.op("MOVQ v+16(FP), DX")
	g.op("MOVQ keys+24(FP), DI")
	g.op("MOVQ values+32(FP), R8")
	g.op("MOVQ at+40(FP), CX")
	g.op("SHLQ $3, CX")
	g.op("VMOVQ CX, X0")
	g.op("MOVL $255, R9")
	g.op("SHLL CX, R9")
	g.op("VMOVD R9, X1")
	if g.wide {
		g.op("VPBROADCASTD X1, Z1")
		g.op("VPMOVB2M Z1, K1") // the sign of every byte
	} else {
		g.op("VPBROADCASTD X1, Y1")
	}
	loop := g.unique("loop")
	g.label(loop)
	for i := range 4 {
		g.op("MOVL %d(SI), R10", 4*i)
		g.op("MOVL R10, %d(DI)", pageKeys*i)
	}
	if g.wide {
		g.op("VPMOVZXBD (DX), Z2")
		g.op("VPSLLD X0, Z2, Z2")
		g.op("VMOVDQU8 Z2, K1, (R8)")
	} else {
		for i := range 2 {
			g.op("VPMOVZXBD %d(DX), Y2", 8*i)
			g.op("VPSLLD X0, Y2, Y2")
			g.op("VMOVDQU %d(R8), Y3", 32*i)
			g.op("VPBLENDVB Y1, Y2, Y3, Y3")
			g.op("VMOVDQU Y3, %d(R8)", 32*i)
		}
	}
	g.op("ADDQ $16, SI")
	g.op("ADDQ $16, DX")
	g.op("ADDQ $%d, DI", 4*pageKeys)
	g.op("ADDQ $64, R8")
	g.op("SUBQ $16, AX")
	g.op("JNZ %s", loop)
	g.ret()
}

// touch8 writes
//
//	func touch8(dim int, keys, values, scales unsafe.Pointer)
//
// which has the lines fetched that place8 and the scales of a token will write.
func (g *gen) touch8() {
	g.text("touch8", 32)
	g.op("MOVQ dim+0(FP), AX")
	g.op("MOVQ keys+8(FP), DI")
	g.op("MOVQ values+16(FP), R8")
	g.op("MOVQ scales+24(FP), SI")
	g.op("PREFETCHT0 (SI)")
	g.op("PREFETCHT0 128(SI)")
	loop := g.unique("loop")
	g.label(loop)
	for i := range 4 {
		g.op("PREFETCHT0 %d(DI)", pageKeys*i)
	}
	g.op("PREFETCHT0 (R8)")
	g.op("ADDQ $%d, DI", 4*pageKeys)
	g.op("ADDQ $64, R8")
	g.op("SUBQ $16, AX")
	g.op("JNZ %s", loop)
	g.op("RET")
}
