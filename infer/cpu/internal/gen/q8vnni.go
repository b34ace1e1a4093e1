package main

import "fmt"

// vnniRows is the height of a strip of activations: 14 rows of sums and 14 of float32 leave four registers.
const vnniRows = 14

// vnniBodies are the numbers of rows that have a loop of their own; others take the next larger, whose further rows read whatever
// the strip holds and are not stored.
var vnniBodies = []int{14, 7, 4, 2, 1}

// gemmVNNI writes
//
//	func gemm8(args *qArgs)
//
// as gemmAMX, but for activations [strip][blocks][planes][8][14][4] of unsigned bytes: the value plus 128, or of 16-bit ones the
// upper byte plus 128 and then the lower byte. Sums start at qArgs.sums, which takes the 128 away. Those of 8-bit activations start
// at the bits of 1.5*2^23 besides, which spares converting them; see amxScale.
//
// A half of the panel's outputs at a time: Z0..Z13 hold integer sums, Z14..Z27 float32, Z28 codes.
func (g *gen) gemmVNNI(f qForm) {
	g.text(f.name(), 8)
	g.op("MOVQ args+0(FP), AX")
	strip, half, next := g.startStrip(vnniRows)
	for _, reg := range []string{"DX", "R8", "R9", "R13"} {
		g.op("ADDQ BX, %s", reg)
	}
	labels := g.pickBody(vnniBodies)
	for i := len(vnniBodies) - 1; i >= 0; i-- { // the smallest comes first: the tests fall through to it
		rows := vnniBodies[i]
		g.label(labels[rows])
		g.vnniBody(f, rows, next)
	}
	g.label(next)
	g.op("ADDQ $64, BX")
	g.op("CMPQ BX, $128")
	g.op("JNE %s", half)
	g.nextStrip(strip)
	g.ret()
}

// startStrip begins the loops over strips of at most most rows, whose number is then in R12, and over the halves of a panel, whose distance in
// codes and scales is in BX, and loads the arguments.
func (g *gen) startStrip(most int) (strip, half, next string) {
	strip, half = g.unique("strip"), g.unique("half")
	last := g.unique("last")
	next = g.unique("next")
	g.label(strip)
	g.op("MOVQ %d(AX), R12", qArgRows)
	g.op("CMPQ R12, $%d", most)
	g.op("JLE %s", last)
	g.op("MOVQ $%d, R12", most)
	g.label(last)
	g.op("XORQ BX, BX")
	g.label(half)
	for _, field := range []struct {
		reg string
		at  int
	}{{"DI", qArgBlocks}, {"SI", qArgA}, {"DX", qArgB}, {"R8", qArgSW}, {"R9", qArgMin}, {"R10", qArgSA}, {"R11", qArgS1}, {"R13", qArgSums}} {
		g.op("MOVQ %d(AX), %s", field.at, field.reg)
	}
	return strip, half, next
}

// pickBody jumps to the label of the smallest body, of numbers of rows in descending order, that takes R12 rows; for the smallest of all it
// falls through.
func (g *gen) pickBody(bodies []int) (labels map[int]string) {
	labels = map[int]string{}
	for i, rows := range bodies {
		labels[rows] = g.unique("rows")
		if i > 0 {
			g.op("CMPQ R12, $%d", rows)
			g.op("JGT %s", labels[bodies[i-1]])
		}
	}
	return labels
}

// nextStrip moves the arguments on by a strip of R12 rows and jumps back while rows are left.
func (g *gen) nextStrip(strip string) {
	for _, field := range []struct{ at, step int }{{qArgA, qArgAStrip}, {qArgSA, qArgSStrip}, {qArgS1, qArgSStrip}} {
		g.op("MOVQ %d(AX), DX", field.step)
		g.op("ADDQ DX, %d(AX)", field.at)
	}
	g.op("MOVQ R12, DX")
	g.op("IMULQ %d(AX), DX", qArgLDC)
	g.op("ADDQ DX, %d(AX)", qArgC)
	g.op("SUBQ R12, %d(AX)", qArgRows)
	g.op("JNZ %s", strip)
}

func (g *gen) vnniBody(f qForm, rows int, next string) {
	sum := func(r int) string { return fmt.Sprintf("Z%d", r) }
	acc := func(r int) string { return fmt.Sprintf("Z%d", vnniRows+r) }
	for r := range rows {
		g.op("VPXORD %s, %s, %s", acc(r), acc(r), acc(r))
	}
	loop := g.unique("loop")
	g.label(loop)
	quads := 8 / f.groups()
	for group := range f.groups() {
		g.op("VMOVDQU32 %d(R13), %s", 128*group, sum(0))
		for r := 1; r < rows; r++ {
			g.op("VMOVDQA32 %s, %s", sum(0), sum(r))
		}
		for plane := range f.planes() {
			if plane == 1 {
				for r := range rows {
					g.op("VPSLLD $8, %s, %s", sum(r), sum(r))
				}
			}
			for q := group * quads; q < (group+1)*quads; q++ {
				g.op("VMOVDQU32 %d(DX), Z28", 128*q)
				for r := range rows {
					t := 29 + r%3
					g.op("VPBROADCASTD %d(SI), Z%d", 32*vnniRows*plane+4*vnniRows*q+4*r, t)
					g.op("VPDPBUSD Z28, Z%d, %s", t, sum(r))
				}
			}
		}
		g.op("VMOVUPS %d(R8), Z28", 128*group)
		if !f.wide {
			g.op("VMULPS.BCST minusMagic<>(SB), Z28, Z29")
		}
		for r := range rows {
			if f.wide {
				g.op("VCVTDQ2PS %s, %s", sum(r), sum(r))
				g.op("VMULPS Z28, %s, %s", sum(r), sum(r))
			} else {
				g.op("VFMADD213PS Z29, Z28, %s", sum(r))
			}
			g.op("VFMADD231PS.BCST %d(R10), %s, %s", 4*r, sum(r), acc(r))
		}
	}
	if f.min {
		g.op("VMOVUPS (R9), Z28")
		for r := range rows {
			g.op("VFMADD231PS.BCST %d(R11), Z28, %s", 4*r, acc(r))
		}
	}
	g.op("ADDQ $%d, SI", 32*vnniRows*f.planes())
	g.op("ADDQ $1024, DX")
	g.op("ADDQ $%d, R8", 128*f.groups())
	g.op("ADDQ $%d, R13", 128*f.groups())
	g.op("ADDQ $128, R9")
	g.op("ADDQ $%d, R10", 4*vnniRows)
	g.op("ADDQ $%d, R11", 4*vnniRows)
	g.op("DECQ DI")
	g.op("JNZ %s", loop)
	g.op("MOVQ %d(AX), DI", qArgC)
	g.op("MOVQ %d(AX), SI", qArgLDC)
	g.op("ADDQ BX, DI")
	for r := range rows {
		g.op("VMOVUPS %s, (DI)", acc(r))
		if r < rows-1 {
			g.op("CMPQ R12, $%d", r+1)
			g.op("JEQ %s", next)
			g.op("ADDQ SI, DI")
		}
	}
	g.op("JMP %s", next)
}
