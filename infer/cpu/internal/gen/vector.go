package main

import "math"

// The exponential: n = round(x*log2e), r = x - n*ln2 in two parts, exp(r) = 1 + r + r*r*p(r) with p of degree 4 fitted at
// Chebyshev nodes of [-ln2/2, ln2/2] (relative error 1e-8), times 2^n by adding n to the exponent. Package cpu's portable
// twin has the same constants; a differential test holds them together.
var constants = []struct {
	name  constant
	value float32
}{
	{"one", 1},
	{"log2e", 1.44269504},
	{"magic", 12582912}, // 1.5 * 2^23: adding it rounds to an integer, half to even, kept in the low mantissa bits
	{"ln2hi", 0.693359375},
	{"ln2lo", -2.12194440e-4},
	{"expmin", -87}, // below: exactly 0. 2^-126 is exp(-87.34)
	{"expmax", 88},
	{"p4", math.Float32frombits(0x3ab688be)},
	{"p3", math.Float32frombits(0x3c0905f1)},
	{"p2", math.Float32frombits(0x3d2aaa8c)},
	{"p1", math.Float32frombits(0x3e2aaa6e)},
	{"p0", math.Float32frombits(0x3f000000)},
	{"nibble", math.Float32frombits(15)}, // an integer: the mask of a byte's low half
}

// constants writes the tables of 16 equal lanes.
func (g *gen) constants() {
	for _, c := range constants {
		bits := uint64(math.Float32bits(c.value))
		for i := range 8 {
			g.printf("DATA %s<>+%d(SB)/8, $0x%016x\n", c.name, 8*i, bits<<32|bits)
		}
		g.printf("GLOBL %s<>(SB), RODATA|NOPTR, $64\n", c.name)
	}
}

// exp replaces x by its exponential; t0..t2 are scratch. NaN stays NaN.
func (g *gen) exp(x, t0, t1, t2 vec) {
	// VMAXPS and VMINPS return their first operand (in Go's order) when one is NaN.
	g.v("VMOVUPS", constant("expmin"), t0)
	if g.wide {
		g.op("VCMPPS $5, Z%d, Z%d, K1", int(t0), int(x)) // not less than
	} else {
		// The mask waits in t2 until the end, so the polynomial below must do with t0 and t1 and x.
		g.v("VCMPPS", imm(5), t0, x, t2)
	}
	g.v("VMAXPS", x, t0, x)
	g.v("VMOVUPS", constant("expmax"), t0)
	g.v("VMINPS", x, t0, x)
	g.v("VMOVUPS", constant("magic"), t0)
	g.v("VFMADD231PS", constant("log2e"), x, t0) // t0 = x*log2e + magic
	g.v("VSUBPS", constant("magic"), t0, t1)     // t1 = n
	g.v("VFNMADD231PS", constant("ln2hi"), t1, x)
	g.v("VFNMADD231PS", constant("ln2lo"), t1, x) // x = r
	g.v("VMOVUPS", constant("p4"), t1)
	for _, c := range []constant{"p3", "p2", "p1", "p0", "one", "one"} {
		g.v("VFMADD213PS", c, x, t1) // t1 = t1*r + c
	}
	g.v("VPSLLD", imm(23), t0, t0)
	g.v("VPADDD", t0, t1, x)
	if g.wide {
		g.op("VMOVAPS.Z Z%d, K1, Z%d", int(x), int(x))
	} else {
		g.v("VANDPS", t2, x, x)
	}
}

// addRows writes
//
//	func addRows(rows int, dst, src unsafe.Pointer, ldd int)
//
// dst[rows][32] += src[rows][32]; dst rows are ldd bytes apart, src rows 128.
func (g *gen) addRows() {
	g.text("addRows", 32)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ dst+8(FP), DI")
	g.op("MOVQ src+16(FP), SI")
	g.op("MOVQ ldd+24(FP), R8")
	loop := g.unique("loop")
	g.label(loop)
	for half := range 2 {
		g.v("VMOVUPS", mem{"DI", 64 * half}, vec(0))
		g.v("VADDPS", mem{"SI", 64 * half}, vec(0), vec(0))
		g.v("VMOVUPS", vec(0), mem{"DI", 64 * half})
	}
	g.op("ADDQ R8, DI")
	g.op("ADDQ $128, SI")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}

// sumSquares writes
//
//	func sumSquares(blocks int, x unsafe.Pointer) float32
//
// the sum of squares of 16*blocks values: 16 lanes, each a chain of FMAs, then the fixed tree.
func (g *gen) sumSquares() {
	g.text("sumSquares", 20)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ x+8(FP), SI")
	g.zero(0)
	loop := g.unique("loop")
	g.label(loop)
	g.v("VMOVUPS", mem{"SI", 0}, vec(1))
	g.v("VFMADD231PS", vec(1), vec(1), vec(0))
	g.op("ADDQ $64, SI")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	x := g.reduce("VADDPS", 0, 1)
	g.op("VMOVSS %s, ret+16(FP)", x)
	g.ret()
}

// normRow writes
//
//	func normRow(blocks int, dst, x, w unsafe.Pointer, scale float32, step int)
//
// dst = (x*scale)*w over 16*blocks values; blocks of 16 of dst are step bytes apart.
func (g *gen) normRow() {
	g.text("normRow", 48)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ dst+8(FP), DI")
	g.op("MOVQ x+16(FP), SI")
	g.op("MOVQ w+24(FP), DX")
	g.splat("scale+32(FP)", 0)
	g.op("MOVQ step+40(FP), R8")
	loop := g.unique("loop")
	g.label(loop)
	g.v("VMULPS", mem{"SI", 0}, vec(0), vec(1))
	g.v("VMULPS", mem{"DX", 0}, vec(1), vec(1))
	g.v("VMOVUPS", vec(1), mem{"DI", 0})
	g.op("ADDQ R8, DI")
	g.op("ADDQ $64, SI")
	g.op("ADDQ $64, DX")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}

// siluMul writes
//
//	func siluMul(rows int, gate, up, dst unsafe.Pointer, step int)
//
// dst = gate / (1 + exp(-gate)) * up for [rows][32] tiles. Row r of dst is two blocks of 16: at 64*r and at step + 64*r.
func (g *gen) siluMul() {
	g.text("siluMul", 40)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ gate+8(FP), SI")
	g.op("MOVQ up+16(FP), DX")
	g.op("MOVQ dst+24(FP), DI")
	g.op("MOVQ step+32(FP), R8")
	loop := g.unique("loop")
	g.label(loop)
	for half := range 2 {
		g.v("VMOVUPS", mem{"SI", 64 * half}, vec(0))
		g.zero(1)
		g.v("VSUBPS", vec(0), vec(1), vec(1)) // 0 - gate
		g.exp(1, 2, 3, 4)
		g.v("VADDPS", constant("one"), vec(1), vec(1))
		g.v("VDIVPS", vec(1), vec(0), vec(0))
		g.v("VMULPS", mem{"DX", 64 * half}, vec(0), vec(0))
		if half == 0 {
			g.v("VMOVUPS", vec(0), mem{"DI", 0})
			g.op("LEAQ (DI)(R8*1), R9")
		} else {
			g.v("VMOVUPS", vec(0), mem{"R9", 0})
		}
	}
	g.op("ADDQ $128, SI")
	g.op("ADDQ $128, DX")
	g.op("ADDQ $64, DI")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}

// softmax writes
//
//	func softmax(rows int, s, p, state unsafe.Pointer, scale float32, step int)
//
// One page's step of the online softmax for [rows][32] scores: with m, l the row's maximum and sum so far,
// m' = max(m, max(s*scale)), alpha = exp(m-m'), p = exp(s*scale - m'), l' = l*alpha + sum(p). state is [rows]{m, l, alpha, 0};
// row r of p is two blocks of 16, at 64*r and at step + 64*r. A score of minus infinity gives p = 0.
func (g *gen) softmax() {
	g.text("softmax", 48)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ s+8(FP), SI")
	g.op("MOVQ p+16(FP), DI")
	g.op("MOVQ state+24(FP), DX")
	g.op("MOVQ step+40(FP), R8")
	loop := g.unique("loop")
	g.label(loop)
	g.splat("scale+32(FP)", 2)
	g.v("VMULPS", mem{"SI", 0}, vec(2), vec(0))
	g.v("VMULPS", mem{"SI", 64}, vec(2), vec(1))
	g.v("VMAXPS", vec(0), vec(1), vec(2))
	x := g.reduce("VMAXPS", 2, 3)
	g.op("VMAXSS (DX), %s, %s", x, x) // the old maximum when the new one is NaN: the row's sum is NaN then
	g.op("VMOVSS (DX), X%d", g.x(4))
	g.op("VMOVSS %s, (DX)", x)
	g.op("VSUBSS %s, X%d, X%d", x, g.x(4), g.x(4))
	g.splat(x, 2)
	g.v("VSUBPS", vec(2), vec(0), vec(0))
	g.v("VSUBPS", vec(2), vec(1), vec(1))
	// alpha goes through the same exponential as the probabilities; its upper lanes are not used.
	g.op("VMOVAPS X%d, X%d", g.x(4), g.x(2))
	if !g.wide {
		g.op("VXORPS Y%d, Y%d, Y%d", 5, 5, 5)
	}
	g.exp(2, 3, 4, 5)
	g.op("VMOVSS X%d, 8(DX)", g.x(2))
	g.exp(0, 3, 4, 5)
	g.exp(1, 3, 4, 5)
	g.v("VMOVUPS", vec(0), mem{"DI", 0})
	g.op("LEAQ (DI)(R8*1), R9")
	g.v("VMOVUPS", vec(1), mem{"R9", 0})
	g.v("VADDPS", vec(1), vec(0), vec(0))
	sum := g.reduce("VADDPS", 0, 1)
	g.op("VMOVSS 4(DX), X%d", g.x(3))
	g.op("VFMADD132SS 8(DX), %s, X%d", sum, g.x(3)) // l*alpha + sum
	g.op("VMOVSS X%d, 4(DX)", g.x(3))
	g.op("ADDQ $128, SI")
	g.op("ADDQ $64, DI")
	g.op("ADDQ $16, DX")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}

// x is the number of the X register that holds lane 0 of v.
func (g *gen) x(v vec) int {
	if g.wide {
		return int(v)
	}
	return int(2 * v)
}

// scaleRows writes
//
//	func scaleRows(rows, blocks int, x unsafe.Pointer, ldx int, factor unsafe.Pointer)
//
// x[r] *= factor[4*r] over 16*blocks values a row; rows are ldx bytes apart. A row whose factor is 1 is left as it is.
func (g *gen) scaleRows() {
	g.text("scaleRows", 40)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ blocks+8(FP), BX")
	g.op("MOVQ x+16(FP), DI")
	g.op("MOVQ ldx+24(FP), R8")
	g.op("MOVQ factor+32(FP), DX")
	row, col, next := g.unique("row"), g.unique("col"), g.unique("next")
	g.label(row)
	g.op("CMPL (DX), $0x3f800000")
	g.op("JEQ %s", next)
	g.splat("(DX)", 0)
	g.op("MOVQ DI, SI")
	g.op("MOVQ BX, CX")
	g.label(col)
	g.v("VMULPS", mem{"SI", 0}, vec(0), vec(1))
	g.v("VMOVUPS", vec(1), mem{"SI", 0})
	g.op("ADDQ $64, SI")
	g.op("DECQ CX")
	g.op("JNZ %s", col)
	g.label(next)
	g.op("ADDQ R8, DI")
	g.op("ADDQ $16, DX")
	g.op("DECQ AX")
	g.op("JNZ %s", row)
	g.ret()
}

// rotate writes
//
//	func rotate(blocks int, x, y, cos, sin unsafe.Pointer)
//
// x, y = x*cos - y*sin, y*cos + x*sin over 16*blocks pairs, every product rounded before the sum.
func (g *gen) rotate() {
	g.text("rotate", 40)
	g.op("MOVQ blocks+0(FP), AX")
	g.op("MOVQ x+8(FP), SI")
	g.op("MOVQ y+16(FP), DI")
	g.op("MOVQ cos+24(FP), DX")
	g.op("MOVQ sin+32(FP), CX")
	loop := g.unique("loop")
	g.label(loop)
	g.v("VMOVUPS", mem{"SI", 0}, vec(0))
	g.v("VMOVUPS", mem{"DI", 0}, vec(1))
	g.v("VMULPS", mem{"DX", 0}, vec(0), vec(2))
	g.v("VMULPS", mem{"CX", 0}, vec(1), vec(3))
	g.v("VSUBPS", vec(3), vec(2), vec(2))
	g.v("VMULPS", mem{"DX", 0}, vec(1), vec(1))
	g.v("VMULPS", mem{"CX", 0}, vec(0), vec(0))
	g.v("VADDPS", vec(0), vec(1), vec(1))
	g.v("VMOVUPS", vec(2), mem{"SI", 0})
	g.v("VMOVUPS", vec(1), mem{"DI", 0})
	for _, r := range []string{"SI", "DI", "DX", "CX"} {
		g.op("ADDQ $64, %s", r)
	}
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}
