package main

import "fmt"

// avx2Rows is the height of a strip of activations.
const avx2Rows = 6

// avx2Bodies are the numbers of rows that have a loop of their own.
var avx2Bodies = []int{6, 3, 2, 1}

// gemmNibbles writes
//
//	func gemmNibbles(args *qArgs)
//
// as gemmAMX, but for activations [strip][blocks][8][6][4] of signed bytes and codes of 4 bits, [blocks][8][32][4] bytes without the bias
// taken away: 8, or 0 with minima. The bias times the sums of activations at qArgs.sums, [strip][blocks][6] int32, is taken from
// the integer sums.
//
// VPMADDUBSW adds pairs of products in 16 bits. The 16 products that one lane gathers are 15*127 at most, 30480 together, and fit.
func (g *gen) gemmNibbles(min bool) {
	name := "gemmNibbles"
	if min {
		name += "Min"
	}
	f := qForm{min: min}
	g.gemmAVX2(name, f, func(rows int) {
		for q := range 8 {
			for i := range 2 {
				g.op("VMOVDQU %d(DX), Y%d", 128*q+32*i, 12+i)
			}
			for r := range rows {
				g.op("VPBROADCASTD %d(SI), Y14", 4*avx2Rows*q+4*r)
				for i := range 2 {
					if q == 0 {
						g.op("VPMADDUBSW Y14, Y%d, Y%d", 12+i, 2*r+i)
						continue
					}
					g.op("VPMADDUBSW Y14, Y%d, Y15", 12+i)
					g.op("VPADDW Y15, Y%d, Y%d", 2*r+i, 2*r+i)
				}
			}
		}
		for r := range rows {
			if !min {
				g.op("VPBROADCASTD %d(R13), Y14", 4*r)
				g.op("VPSLLD $3, Y14, Y14")
			}
			for i := range 2 {
				g.op("VPMADDWD ones16<>(SB), Y%d, Y%d", 2*r+i, 2*r+i)
				if !min {
					g.op("VPSUBD Y14, Y%d, Y%d", 2*r+i, 2*r+i)
				}
			}
		}
		g.avx2Scale(f, rows, 0)
		g.op("ADDQ $%d, SI", 32*avx2Rows)
		g.op("ADDQ $1024, DX")
		g.op("ADDQ $%d, R13", 4*avx2Rows)
	})
}

// gemmWords writes
//
//	func gemmWords(args *qArgs)
//
// the same for activations [strip][blocks][8][2][6][2] and codes [blocks][8][2][32][2] of signed 16 bits: of every four k first 0 and
// 2, then 1 and 3.
func (g *gen) gemmWords(f qForm) {
	name := "gemmWords"
	switch {
	case f.min:
		name += "Min"
	case f.sub:
		name += "Sub"
	}
	g.gemmAVX2(name, f, func(rows int) {
		steps := 16 / f.groups()
		for group := range f.groups() {
			for p := group * steps; p < (group+1)*steps; p++ {
				for i := range 2 {
					g.op("VMOVDQU %d(DX), Y%d", 128*p+32*i, 12+i)
				}
				for r := range rows {
					g.op("VPBROADCASTD %d(SI), Y14", 4*avx2Rows*p+4*r)
					if p == group*steps {
						g.op("VPMADDWD Y14, Y12, Y%d", 2*r)
						g.op("VPMADDWD Y14, Y13, Y%d", 2*r+1)
						continue
					}
					g.op("VPMADDWD Y14, Y12, Y15")
					g.op("VPADDD Y15, Y%d, Y%d", 2*r, 2*r)
					g.op("VPMADDWD Y14, Y13, Y14")
					g.op("VPADDD Y14, Y%d, Y%d", 2*r+1, 2*r+1)
				}
			}
			g.avx2Scale(f, rows, group)
		}
		g.op("ADDQ $%d, SI", 64*avx2Rows)
		g.op("ADDQ $2048, DX")
	})
}

// gemmAVX2 writes what is common: loops over strips, halves and blocks. Float32 sums of a half, [6][32], wait in scratch, since the
// integer ones take 12 of the 16 registers.
func (g *gen) gemmAVX2(name string, f qForm, block func(rows int)) {
	g.text(name, 8)
	g.op("MOVQ args+0(FP), AX")
	g.op("MOVQ %d(AX), CX", qArgScratch)
	strip, half, next := g.startStrip(avx2Rows)
	for _, reg := range []string{"DX", "R8", "R9"} {
		g.op("ADDQ BX, %s", reg)
	}
	g.op("VXORPS Y0, Y0, Y0")
	for i := range 2 * avx2Rows {
		g.op("VMOVUPS Y0, %d(CX)", 32*i)
	}
	labels := g.pickBody(avx2Bodies)
	done := g.unique("done")
	for i := len(avx2Bodies) - 1; i >= 0; i-- {
		rows := avx2Bodies[i]
		loop := g.unique("loop")
		g.label(labels[rows])
		g.label(loop)
		block(rows)
		g.op("ADDQ $%d, R8", 128*f.groups())
		g.op("ADDQ $128, R9")
		g.op("ADDQ $%d, R10", 4*avx2Rows)
		g.op("ADDQ $%d, R11", 4*avx2Rows)
		g.op("DECQ DI")
		g.op("JNZ %s", loop)
		g.op("JMP %s", done)
	}
	g.label(done)
	g.op("MOVQ %d(AX), DI", qArgC)
	g.op("MOVQ %d(AX), SI", qArgLDC)
	g.op("ADDQ BX, DI")
	for r := range avx2Rows {
		for i := range 2 {
			g.op("VMOVUPS %d(CX), Y%d", 64*r+32*i, i)
			g.op("VMOVUPS Y%d, %d(DI)", i, 32*i)
		}
		if r < avx2Rows-1 {
			g.op("CMPQ R12, $%d", r+1)
			g.op("JEQ %s", next)
			g.op("ADDQ SI, DI")
		}
	}
	g.label(next)
	g.op("ADDQ $64, BX")
	g.op("CMPQ BX, $128")
	g.op("JNE %s", half)
	g.moveSums()
	g.nextStrip(strip)
	g.ret()
}

// moveSums takes qArgs.sums to the next strip.
func (g *gen) moveSums() {
	g.op("MOVQ %d(AX), DX", qArgSStrip)
	g.op("ADDQ DX, %d(AX)", qArgSums)
}

// avx2Scale adds the scaled integer sums Y0.. of a group to the float32 sums in scratch; the minimum comes with the last group.
func (g *gen) avx2Scale(f qForm, rows, group int) {
	for r := range rows {
		g.op("VBROADCASTSS %d(R10), Y14", 4*r)
		if f.min {
			g.op("VBROADCASTSS %d(R11), Y15", 4*r)
		}
		for i := range 2 {
			y := fmt.Sprintf("Y%d", 2*r+i)
			g.op("VCVTDQ2PS %s, %s", y, y)
			g.op("VMULPS %d(R8), %s, %s", 128*group+32*i, y, y)
			g.op("VFMADD213PS %d(CX), Y14, %s", 64*r+32*i, y) // *sa + sum
			if f.min {
				g.op("VFMADD231PS %d(R9), Y15, %s", 32*i, y)
			}
			g.op("VMOVUPS %s, %d(CX)", y, 64*r+32*i)
		}
	}
}
