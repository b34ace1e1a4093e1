package main

import "fmt"

// blockK is how many consecutive k of one row lie together in packed activations; see package cpu.
const blockK = 16

// tile writes
//
//	func tile(rows, blocks int, a, b, c unsafe.Pointer, ldb, ldc, add int, ahead uintptr, step int)
//
// C[rows][32] (+)= A x B: for every element one chain of FMAs over k ascending, from zero or, with add, from what C holds.
// A is [blocks][strip][16], B rows are ldb bytes apart, C rows ldc bytes. There is one body for each number of rows, since a
// strip at the end of a batch would otherwise cost as much as a full one; the chain of an element is the same in all.
//
// On the way it fetches what will be needed next into the caches: two lines for each k, from ahead on in steps of step bytes.
// The hardware's prefetcher stops at the end of every 4 KiB page, and with a full tile the core's own window is too short:
// without this, a tile of 14 rows read weights from memory at half the speed.
func (g *gen) tile() {
	g.text("tile", 80)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ blocks+8(FP), BX")
	g.op("MOVQ a+16(FP), SI")
	g.op("MOVQ b+24(FP), DX")
	g.op("MOVQ c+32(FP), CX")
	g.op("MOVQ ldb+40(FP), R8")
	g.op("MOVQ ldc+48(FP), R9")
	g.op("MOVQ add+56(FP), R10")
	g.op("LEAQ (R8)(R8*2), R11")
	g.op("MOVQ ahead+64(FP), R12")
	g.op("MOVQ step+72(FP), R13")
	for r := g.rows; r > 1; r-- {
		g.op("CMPQ AX, $%d", r)
		g.op("JEQ rows%d", r)
	}
	for r := 1; r <= g.rows; r++ {
		g.label(fmt.Sprintf("rows%d", r))
		if g.wide {
			g.tileBodyZ(r)
		} else {
			g.tileBodyY(r)
		}
	}
}

// tileBodyZ keeps [r][32] in Z0..Z27; Z28 and Z29 hold a row of B, Z30 and Z31 broadcast A.
func (g *gen) tileBodyZ(r int) {
	acc := func(t, half int) string { return fmt.Sprintf("Z%d", 2*t+half) }
	loop, start, zero := g.unique("loop"), g.unique("start"), g.unique("zero")
	g.op("TESTQ R10, R10")
	g.op("JZ %s", zero)
	g.op("MOVQ CX, DI")
	for t := range r {
		g.op("VMOVUPS (DI), %s", acc(t, 0))
		g.op("VMOVUPS 64(DI), %s", acc(t, 1))
		g.op("ADDQ R9, DI")
	}
	g.op("JMP %s", start)
	g.label(zero)
	for i := range 2 * r {
		g.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	g.label(start)
	g.op("TESTQ BX, BX")
	done := g.unique("done")
	g.op("JZ %s", done)
	g.label(loop)
	for k := range blockK {
		row := []string{"(DX)", "(DX)(R8*1)", "(DX)(R8*2)", "(DX)(R11*1)"}[k%4]
		g.op("VMOVUPS %s, Z28", row)
		g.op("VMOVUPS 64%s, Z29", row)
		g.op("PREFETCHT0 (R12)")
		g.op("PREFETCHT0 (R12)(R13*1)")
		g.op("LEAQ (R12)(R13*2), R12")
		for t := range r {
			b := fmt.Sprintf("Z%d", 30+t&1)
			g.op("VBROADCASTSS %d(SI), %s", 64*t+4*k, b)
			g.op("VFMADD231PS Z28, %s, %s", b, acc(t, 0))
			g.op("VFMADD231PS Z29, %s, %s", b, acc(t, 1))
		}
		if k%4 == 3 {
			g.op("LEAQ (DX)(R8*4), DX")
		}
	}
	g.op("ADDQ $%d, SI", 64*g.rows)
	g.op("DECQ BX")
	g.op("JNZ %s", loop)
	g.label(done)
	for t := range r {
		g.op("VMOVUPS %s, (CX)", acc(t, 0))
		g.op("VMOVUPS %s, 64(CX)", acc(t, 1))
		g.op("ADDQ R9, CX")
	}
	g.ret()
}

// tileBodyY runs twice, for columns 0..15 and 16..31, with [r][16] in Y0..Y11; Y12 and Y13 hold a row of B, Y14 and Y15
// broadcast A.
func (g *gen) tileBodyY(r int) {
	acc := func(t, half int) string { return fmt.Sprintf("Y%d", 2*t+half) }
	half := g.unique("half")
	g.op("MOVQ $2, rows+0(FP)") // no longer needed: now it counts the halves
	g.label(half)
	g.op("MOVQ SI, AX")
	g.op("MOVQ DX, R14") // R14 is restored by the wrapper of assembly functions
	g.op("MOVQ BX, DI")
	loop, start, zero, done := g.unique("loop"), g.unique("start"), g.unique("zero"), g.unique("done")
	g.op("TESTQ R10, R10")
	g.op("JZ %s", zero)
	g.op("MOVQ CX, R15")
	for t := range r {
		g.op("VMOVUPS (R15), %s", acc(t, 0))
		g.op("VMOVUPS 32(R15), %s", acc(t, 1))
		g.op("ADDQ R9, R15")
	}
	g.op("JMP %s", start)
	g.label(zero)
	for i := range 2 * r {
		g.op("VXORPS Y%d, Y%d, Y%d", i, i, i)
	}
	g.label(start)
	g.op("TESTQ DI, DI")
	g.op("JZ %s", done)
	g.label(loop)
	for k := range blockK {
		row := []string{"(R14)", "(R14)(R8*1)", "(R14)(R8*2)", "(R14)(R11*1)"}[k%4]
		g.op("VMOVUPS %s, Y12", row)
		g.op("VMOVUPS 32%s, Y13", row)
		g.op("PREFETCHT0 (R12)")
		g.op("ADDQ R13, R12") // one line: the other half of the columns fetches the other
		for t := range r {
			b := fmt.Sprintf("Y%d", 14+t&1)
			g.op("VBROADCASTSS %d(AX), %s", 64*t+4*k, b)
			g.op("VFMADD231PS Y12, %s, %s", b, acc(t, 0))
			g.op("VFMADD231PS Y13, %s, %s", b, acc(t, 1))
		}
		if k%4 == 3 {
			g.op("LEAQ (R14)(R8*4), R14")
		}
	}
	g.op("ADDQ $%d, AX", 64*g.rows)
	g.op("DECQ DI")
	g.op("JNZ %s", loop)
	g.label(done)
	g.op("MOVQ CX, R15")
	for t := range r {
		g.op("VMOVUPS %s, (R15)", acc(t, 0))
		g.op("VMOVUPS %s, 32(R15)", acc(t, 1))
		g.op("ADDQ R9, R15")
	}
	g.op("ADDQ $64, DX")
	g.op("ADDQ $64, CX")
	g.op("DECQ rows+0(FP)")
	g.op("JNZ %s", half)
	g.ret()
}
