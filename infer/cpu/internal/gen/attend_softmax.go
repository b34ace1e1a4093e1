package main

import "fmt"

// softmax8Z writes
//
//	func softmax8(rows, pages, scales int, s, p unsafe.Pointer, span *span8, st *rows8, masked int)
//
// with AVX-512. What a row needs once, folding its lanes, the correction and the divisions, is done for all rows together
// between the passes over the scores: the folds of 16 rows are one tree of shuffles, whose order is that of reduce.
func (g *gen) softmax8Z() {
	g.text("softmax8", 64)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ scales+16(FP), R9")
	g.op("MOVQ s+24(FP), SI")
	g.op("MOVQ p+32(FP), DI")
	g.op("MOVQ span+40(FP), R8")
	g.op("MOVQ st+48(FP), DX")
	g.keepExp2()
	g.bodies(g.softmaxBodyZ)
}

// What softmax8's masked says: rows see all keys, those below a bound, or those between two.
const (
	maskNone = iota
	maskHigh
	maskBoth
)

// bodies writes a body for each number of pages and kind of mask.
func (g *gen) bodies(body func(pages, mask int)) {
	var kinds [maskBoth + 1]string
	g.op("MOVQ pages+8(FP), R10")
	for _, mask := range []int{maskHigh, maskBoth} {
		kinds[mask] = g.unique("masked")
		g.op("CMPQ masked+56(FP), $%d", mask)
		g.op("JEQ %s", kinds[mask])
	}
	for mask := range kinds {
		if mask != maskNone {
			g.label(kinds[mask])
		}
		var labels [maxPages + 1]string
		for n := 2; n <= maxPages; n++ {
			labels[n] = g.unique("pages")
			g.op("CMPQ R10, $%d", n)
			g.op("JEQ %s", labels[n])
		}
		for n := 1; n <= maxPages; n++ {
			if n > 1 {
				g.label(labels[n])
			}
			body(n, mask)
		}
	}
}

// visible sets K2 to the keys of vector i that a row sees; Z13 and Z14 hold its bounds.
func (g *gen) visible(i, mask int) {
	if mask == maskHigh {
		g.op("VPCMPD $6, keys<>+%d(SB), Z14, K2", 64*i) // high > key
		return
	}
	g.op("VPCMPD $6, keys<>+%d(SB), Z14, K1", 64*i)
	g.op("VPCMPD $2, keys<>+%d(SB), Z13, K1, K2", 64*i)
}

func (g *gen) bounds(mask int) {
	if mask == maskBoth {
		g.op("VPBROADCASTD %d(R12), Z13", stLow)
	}
	g.op("VPBROADCASTD %d(R12), Z14", stHigh)
}

func (g *gen) softmaxBodyZ(pages, mask int) {
	masked := mask != maskNone
	n := 2 * pages
	scales := func(off int) { // of the span's keys or values, to Z16..Z23
		for p := range pages {
			g.op("MOVQ %d(R8), R10", 8*p)
			g.op("VMOVUPS %d(R10)(R9*1), Z%d", off, 16+2*p)
			g.op("VMOVUPS %d(R10)(R9*1), Z%d", off+64, 17+2*p)
		}
	}
	// rows runs f for each row: R11 is its scores, R12 its place in the columns of st, R13 its place in lanesA and lanesB.
	rows := func(f func()) {
		g.op("MOVQ SI, R11")
		g.op("MOVQ DX, R12")
		g.op("LEAQ %d(DX), R13", stLanesA)
		g.op("MOVQ AX, CX")
		loop := g.unique("loop")
		g.label(loop)
		f()
		g.op("ADDQ $%d, R11", spanRow)
		g.op("ADDQ $4, R12")
		g.op("ADDQ $64, R13")
		g.op("DECQ CX")
		g.op("JNZ %s", loop)
	}

	// Scores times the keys' scales, and their maximum.
	scales(0)
	if masked {
		g.op("VMOVUPS never<>(SB), Z12")
	}
	rows(func() {
		if masked {
			g.bounds(mask)
		}
		for i := range n {
			g.op("VCVTDQ2PS %d(R11), Z%d", 64*i, i)
			g.op("VMULPS Z%d, Z%d, Z%d", 16+i, i, i)
			if masked {
				g.visible(i, mask)
				g.op("VBLENDMPS Z%d, Z12, K2, Z%d", i, i)
			}
			g.op("VMOVUPS Z%d, %d(R11)", i, 64*i)
		}
		for step := 1; step < n; step *= 2 {
			for i := 0; i+step < n; i += 2 * step {
				g.op("VMAXPS Z%d, Z%d, Z%d", i+step, i, i)
			}
		}
		g.op("VMOVUPS Z0, (R13)")
	})
	g.foldRows("VMAXPS", stLanesA)
	g.op("VMULPS %d(DX), Z0, Z0", stC)
	g.op("VMOVUPS %d(DX), Z1", stMax)
	g.op("VMAXPS Z1, Z0, Z2") // the old maximum when the new one is NaN: the row's sum is NaN then
	g.op("VSUBPS Z2, Z1, Z3")
	g.op("VMOVUPS Z2, %d(DX)", stMax)
	g.exp2(3, 4, 5)
	g.op("VMOVUPS Z3, %d(DX)", stAlpha)

	// Probabilities and their sum, and what they become times the values' scales.
	scales(4 * 32)
	rows(func() {
		if masked {
			g.bounds(mask)
		}
		g.op("VBROADCASTSS %d(R12), Z31", stMax)
		g.op("VBROADCASTSS %d(R12), Z15", stC)
		for i := range n {
			x, t, p := vec(3*(i%2)), vec(3*(i%2)+1), vec(3*(i%2)+2)
			g.op("VMULPS %d(R11), Z15, Z%d", 64*i, x)
			g.op("VSUBPS Z31, Z%d, Z%d", x, x)
			g.exp2(x, t, p)
			if masked {
				g.visible(i, mask)
				g.op("VMOVAPS.Z Z%d, K2, Z%d", x, x)
			}
			if i == 0 {
				g.op("VMOVAPS Z%d, Z8", x)
			} else {
				g.op("VADDPS Z%d, Z8, Z8", x)
			}
			if masked { // a scale that no key has may be NaN
				g.op("VMULPS.Z Z%d, Z%d, K2, Z%d", 16+i, x, x)
			} else {
				g.op("VMULPS Z%d, Z%d, Z%d", 16+i, x, x)
			}
			if i == 0 {
				g.op("VMOVAPS Z%d, Z9", x)
			} else {
				g.op("VPMAXUD Z%d, Z9, Z9", x)
			}
			g.op("VMOVUPS Z%d, %d(R11)", x, 64*i)
		}
		g.op("VMOVUPS Z8, (R13)")
		g.op("VMOVUPS Z9, %d(R13)", stLanesB-stLanesA)
	})
	g.foldRows("VADDPS", stLanesA)
	g.op("VMOVUPS %d(DX), Z1", stSum)
	g.op("VFMADD132PS %d(DX), Z0, Z1", stAlpha) // sum*alpha + the span's
	g.op("VMOVUPS Z1, %d(DX)", stSum)
	g.foldRows("VPMAXUD", stLanesB)
	g.op("VMOVUPS tiny<>(SB), Z1")
	g.op("VMOVUPS codemax<>(SB), Z2")
	g.op("VCMPPS $5, Z1, Z0, K1") // not less than
	g.op("VDIVPS.Z Z0, Z2, K1, Z3")
	g.op("VDIVPS.Z Z2, Z0, K1, Z4")
	g.op("VMOVUPS Z3, %d(DX)", stInverse)
	g.op("VMOVUPS Z4, %d(DX)", stScale)

	// Codes. NaN becomes the least integer, which packing makes 0.
	g.op("VMOVUPS unpack16<>(SB), Z16")
	rows(func() {
		g.op("VBROADCASTSS %d(R12), Z15", stInverse)
		for i := range n {
			g.op("VMULPS %d(R11), Z15, Z%d", 64*i, i)
			g.op("VCVTPS2DQ Z%d, Z%d", i, i)
		}
		for i := 0; i < n; i += 4 {
			g.op("VPACKSSDW Z%d, Z%d, Z%d", i+1, i, i)
			if i+2 < n {
				g.op("VPACKSSDW Z%d, Z%d, Z%d", i+3, i+2, i+2)
				g.op("VPACKUSWB Z%d, Z%d, Z%d", i+2, i, i)
			} else {
				g.op("VPACKUSWB Z%d, Z%d, Z%d", i, i, i)
			}
			g.op("VPERMD Z%d, Z16, Z%d", i, i)
			g.op("VMOVDQU32 Z%d, %d(DI)", i, 16*i)
		}
		g.op("ADDQ $%d, DI", codesRow)
	})
	g.ret()
}

// foldRows folds the 16 lanes of each of 16 vectors at off(DX) to one value and leaves those of all in Z0. The tree is that of
// reduce: i with i+8, i+4, i+2, i+1.
func (g *gen) foldRows(name string, off int) {
	// Z0..Z7: rows j and j+4, eight lanes each.
	for i, j := range []int{0, 1, 2, 3, 8, 9, 10, 11} {
		g.op("VMOVUPS %d(DX), Y%d", off+64*j, i)
		g.op("VMOVUPS %d(DX), Y10", off+64*j+32)
		g.op("VINSERTF64X4 $1, %d(DX), Z%d, Z%d", off+64*(j+4), i, i)
		g.op("VINSERTF64X4 $1, %d(DX), Z10, Z10", off+64*(j+4)+32)
		g.op("%s Z10, Z%d, Z%d", name, i, i)
	}
	pair := func(a, b int, low, high string) {
		g.op("%s, Z%d, Z%d, Z10", low, b, a)
		g.op("%s, Z%d, Z%d, Z11", high, b, a)
		g.op("%s Z11, Z10, Z%d", name, a)
	}
	for j := range 4 { // rows j, j+4, j+8, j+12
		pair(j, j+4, "VSHUFF64X2 $0x88", "VSHUFF64X2 $0xdd")
	}
	for _, j := range []int{0, 2} {
		g.op("VUNPCKLPD Z%d, Z%d, Z10", j+1, j)
		g.op("VUNPCKHPD Z%d, Z%d, Z11", j+1, j)
		g.op("%s Z11, Z10, Z%d", name, j)
	}
	pair(0, 2, "VSHUFPS $0x88", "VSHUFPS $0xdd")
}

// softmax8Y writes softmax8 with AVX2: one row after the other.
func (g *gen) softmax8Y() {
	g.text("softmax8", 64)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ scales+16(FP), R9")
	g.op("MOVQ s+24(FP), SI")
	g.op("MOVQ p+32(FP), DI")
	g.op("MOVQ span+40(FP), R8")
	g.op("MOVQ st+48(FP), DX")
	g.bodies(g.softmaxBodyY)
}

func (g *gen) softmaxBodyY(pages, mask int) {
	masked := mask != maskNone
	n := 2 * pages
	pageReg := []string{"R11", "R12", "R13", "R15"}
	for p := range pages {
		g.op("MOVQ %d(R8), %s", 8*p, pageReg[p])
		g.op("ADDQ R9, %s", pageReg[p])
	}
	scale := func(i, which int) mem { return mem{pageReg[i/2], 64*(i%2) + 128*which} }
	// visible leaves the mask of vector i in v.
	visible := func(i int, v, tmp vec) {
		for h := range 2 {
			a, b := g.parts(v)[h], g.parts(tmp)[h]
			g.op("VPBROADCASTD %d(DX), %s", stHigh, a)
			g.op("VPCMPGTD keys<>+%d(SB), %s, %s", 64*i+32*h, a, a)
			if mask == maskHigh {
				continue
			}
			g.op("VPBROADCASTD %d(DX), %s", stLow, b)
			g.op("VPCMPGTD keys<>+%d(SB), %s, %s", 64*i+32*h, b, b)
			g.op("VPANDN %s, %s, %s", a, b, a)
		}
	}
	loop := g.unique("loop")
	g.label(loop)
	for i := range n {
		g.v("VCVTDQ2PS", mem{"SI", 64 * i}, vec(0))
		g.v("VMULPS", scale(i, 0), vec(0), vec(0))
		if masked {
			visible(i, 2, 3)
			g.v("VMOVUPS", constant("never"), vec(3))
			g.v("VBLENDVPS", vec(2), vec(0), vec(3), vec(0))
		}
		g.v("VMOVUPS", vec(0), mem{"SI", 64 * i})
		if i == 0 {
			g.v("VMOVAPS", vec(0), vec(1))
		} else {
			g.v("VMAXPS", vec(0), vec(1), vec(1))
		}
	}
	x := g.reduce("VMAXPS", 1, 0)
	g.op("VMULSS %d(DX), %s, %s", stC, x, x)
	g.op("VMAXSS %d(DX), %s, %s", stMax, x, x) // the old maximum when the new one is NaN
	g.op("VMOVSS %d(DX), X%d", stMax, g.x(2))
	g.op("VMOVSS %s, %d(DX)", x, stMax)
	g.op("VSUBSS %s, X%d, X%d", x, g.x(2), g.x(2))
	g.splat(x, 7)
	g.splat(fmt.Sprintf("X%d", g.x(2)), 2)
	g.exp2(2, 3, 4)
	g.op("VMOVSS X%d, %d(DX)", g.x(2), stAlpha)
	g.splat(fmt.Sprintf("%d(DX)", stC), 6)
	for i := range n {
		g.v("VMULPS", mem{"SI", 64 * i}, vec(6), vec(0))
		g.v("VSUBPS", vec(7), vec(0), vec(0))
		g.exp2(0, 1, 2)
		if masked {
			visible(i, 2, 1)
			g.v("VANDPS", vec(2), vec(0), vec(0))
		}
		if i == 0 {
			g.v("VMOVAPS", vec(0), vec(4))
		} else {
			g.v("VADDPS", vec(0), vec(4), vec(4))
		}
		g.v("VMULPS", scale(i, 1), vec(0), vec(0))
		if masked {
			g.v("VANDPS", vec(2), vec(0), vec(0))
		}
		if i == 0 {
			g.v("VMOVAPS", vec(0), vec(5))
		} else {
			g.v("VPMAXUD", vec(0), vec(5), vec(5))
		}
		g.v("VMOVUPS", vec(0), mem{"SI", 64 * i})
	}
	x = g.reduce("VADDPS", 4, 0)
	g.op("VMOVSS %d(DX), X0", stSum)
	g.op("VFMADD132SS %d(DX), %s, X0", stAlpha, x)
	g.op("VMOVSS X0, %d(DX)", stSum)
	x = g.reduce("VPMAXUD", 5, 0)
	g.op("VMOVUPS tiny<>(SB), X0")
	g.op("VCMPPS $5, X0, %s, X1", x) // not less than
	g.op("VMOVUPS codemax<>(SB), X0")
	g.op("VDIVPS X0, %s, X2", x)
	g.op("VANDPS X1, X2, X2")
	g.op("VMOVSS X2, %d(DX)", stScale)
	g.op("VDIVPS %s, X0, X2", x)
	g.op("VANDPS X1, X2, X2")
	g.op("VMOVSS X2, %d(DX)", stInverse)
	g.splat("X2", 7)
	g.op("VMOVDQU unpack8<>(SB), Y13")
	for p := range pages {
		for i := range 2 {
			g.v("VMULPS", mem{"SI", 128*p + 64*i}, vec(7), vec(i))
			g.v("VCVTPS2DQ", vec(i), vec(i))
			g.op("VPACKSSDW %s, %s, %s", g.parts(vec(i))[1], g.parts(vec(i))[0], g.parts(vec(i))[0])
		}
		g.op("VPACKUSWB Y2, Y0, Y0")
		g.op("VPERMD Y0, Y13, Y0")
		g.op("VMOVDQU Y0, %d(DI)", 32*p)
	}
	g.op("ADDQ $%d, SI", spanRow)
	g.op("ADDQ $%d, DI", codesRow)
	g.op("ADDQ $4, DX")
	g.op("DECQ AX")
	g.op("JNZ %s", loop)
	g.ret()
}
