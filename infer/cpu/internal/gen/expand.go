package main

import "fmt"

// codeBlock4 is how many k of a block of 4-bit codes share a scale; half of them lie in the low halves of its bytes.
const codeBlock4 = 32

// expand8 writes
//
//	func expand8(blocks, group int, dst, src unsafe.Pointer)
//
// a float32 panel dst, [blocks*group][32], from a compact one: for each block 32 scales, 32 offsets (float32), and the codes,
// [group][32] signed bytes; fma(scale, code, offset). group is a multiple of 4.
func (g *gen) expand8() {
	const unroll = 4
	g.text("expand8", 32)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ group+8(FP), BX")
	g.op("MOVQ dst+16(FP), DI")
	g.op("MOVQ src+24(FP), SI")
	block, loop := g.unique("block"), g.unique("loop")
	g.label(block)
	g.scales()
	g.op("MOVQ BX, CX")
	g.label(loop)
	for k := range unroll {
		for half := range 2 {
			g.bytes("VPMOVSXBD", "SI", 32*k+16*half, 4)
			g.v("VCVTDQ2PS", vec(4), vec(4))
			g.v("VFMADD213PS", vec(2+half), vec(half), vec(4)) // code*scale + offset
			g.v("VMOVUPS", vec(4), mem{"DI", 128*k + 64*half})
		}
	}
	g.op("ADDQ $%d, SI", 32*unroll)
	g.op("ADDQ $%d, DI", 128*unroll)
	g.op("SUBQ $%d, CX", unroll)
	g.op("JNZ %s", loop)
	g.op("DECQ AX")
	g.op("JNZ %s", block)
	g.ret()
}

// expand4 writes
//
//	func expand4(blocks int, dst, src unsafe.Pointer, bias float32)
//
// the same for blocks of 32 k whose codes are [16][32] bytes: k in the low half of byte row k, 16+k in the high half;
// fma(scale, code-bias, offset).
func (g *gen) expand4() {
	const unroll = 2
	g.text("expand4", 28)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ dst+8(FP), DI")
	g.op("MOVQ src+16(FP), SI")
	g.splat("bias+24(FP)", 7)
	block, loop := g.unique("block"), g.unique("loop")
	g.label(block)
	g.scales()
	g.op("MOVQ $%d, CX", codeBlock4/2)
	g.label(loop)
	for k := range unroll {
		for half := range 2 {
			g.bytes("VPMOVZXBD", "SI", 32*k+16*half, 5)
			g.v(g.and(), constant("nibble"), vec(5), vec(4))
			g.v("VPSRLD", imm(4), vec(5), vec(5))
			for high, x := range []vec{4, 5} {
				g.v("VCVTDQ2PS", x, x)
				g.v("VSUBPS", vec(7), x, x)
				g.v("VFMADD213PS", vec(2+half), vec(half), x)
				g.v("VMOVUPS", x, mem{"DI", 128*(k+codeBlock4/2*high) + 64*half})
			}
		}
	}
	g.op("ADDQ $%d, SI", 32*unroll)
	g.op("ADDQ $%d, DI", 128*unroll)
	g.op("SUBQ $%d, CX", unroll)
	g.op("JNZ %s", loop)
	g.op("ADDQ $%d, DI", 128*codeBlock4/2)
	g.op("DECQ AX")
	g.op("JNZ %s", block)
	g.ret()
}

// scales loads a block's scales to vectors 0 and 1 and its offsets to 2 and 3, and moves SI to the codes.
func (g *gen) scales() {
	for i := range 4 {
		g.v("VMOVUPS", mem{"SI", 64 * i}, vec(i))
	}
	g.op("ADDQ $256, SI")
}

func (g *gen) and() string {
	if g.wide {
		return "VPANDD"
	}
	return "VPAND"
}

// bytes widens 16 bytes to the lanes of v.
func (g *gen) bytes(name, base string, off int, v vec) {
	for i, p := range g.parts(v) {
		g.op("%s %s, %s", name, fmt.Sprintf("%d(%s)", off+8*i, base), p)
	}
}
