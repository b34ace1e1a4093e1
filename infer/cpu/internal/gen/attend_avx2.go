package main

import "fmt"

// attendAVX2 writes the kernels that need AVX2 and FMA.
func attendAVX2() []byte {
	g := attendStart(avx2)
	g.quantise8()
	g.place8()
	g.touch8()
	g.scores8AVX2()
	g.softmax8Y()
	g.values8AVX2()
	g.add8()
	g.finish8()
	return g.out.Bytes()
}

// scores8AVX2 writes scores8 by way of 16-bit products, which cannot overflow: two rows by 16 keys at a time. A register of sums
// holds four keys, two sums each.
func (g *gen) scores8AVX2() {
	const block = 2
	g.text("scores8", 64)
	g.op("MOVQ ldq+24(FP), R8")
	g.op("MOVQ span+40(FP), R10")
	g.op("MOVQ s+48(FP), R11")
	page, half := g.unique("page"), g.unique("half")
	g.label(page)
	g.op("XORQ R9, R9") // offset of the half's keys in a row of quads
	g.label(half)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ q+32(FP), R12")
	g.op("MOVQ R11, CX")
	rows := g.unique("rows")
	g.label(rows)
	body := func(n int) {
		for i := range 4 * n {
			g.op("VPXOR Y%d, Y%d, Y%d", i, i, i)
		}
		g.op("MOVQ R12, SI")
		g.op("MOVQ (R10), DX")
		g.op("ADDQ R9, DX")
		g.op("MOVQ dim+16(FP), BX")
		loop := g.unique("loop")
		g.label(loop)
		for r := range n {
			g.op("VPBROADCASTD (SI)%s, X%d", []string{"", "(R8*1)"}[r], 8+r)
			g.op("VPMOVSXBW X%d, Y%d", 8+r, 8+r)
		}
		for i := range 4 {
			g.op("VPMOVSXBW %d(DX), Y10", 16*i)
			for r := range n {
				g.op("VPMADDWD Y10, Y%d, Y%d", 8+r, 11+r)
				g.op("VPADDD Y%d, Y%d, Y%d", 11+r, 4*r+i, 4*r+i)
			}
		}
		g.op("ADDQ $4, SI")
		g.op("ADDQ $%d, DX", pageKeys)
		g.op("SUBQ $4, BX")
		g.op("JNZ %s", loop)
		for r := range n {
			for i := 0; i < 4; i += 2 {
				a := 4*r + i
				g.op("VPHADDD Y%d, Y%d, Y%d", a+1, a, a)
				g.op("VPERMQ $0xd8, Y%d, Y%d", a, a)
				g.op("VMOVDQU Y%d, %d(CX)", a, spanRow*r+16*i)
			}
		}
	}
	two, next := g.unique("two"), g.unique("next")
	g.op("CMPQ AX, $1")
	g.op("JNE %s", two)
	body(1)
	g.op("JMP %s", next)
	g.label(two)
	body(block)
	g.label(next)
	g.op("LEAQ (R12)(R8*2), R12")
	g.op("ADDQ $%d, CX", block*spanRow)
	g.op("SUBQ $%d, AX", block)
	g.op("JGT %s", rows)
	g.op("ADDQ $64, R11") // the next 16 keys
	g.op("ADDQ $64, R9")
	g.op("CMPQ R9, $128")
	g.op("JLT %s", half)
	g.op("ADDQ $8, R10")
	g.op("DECQ pages+8(FP)")
	g.op("JNZ %s", page)
	g.ret()
}

// values8AVX2 writes values8: four rows by 16 columns at a time. Two products of codes of 7 bits fit into 16 bits.
func (g *gen) values8AVX2() {
	const block = 4
	g.text("values8", 48)
	g.op("MOVQ dim+16(FP), R11")
	g.op("VMOVDQU pairs<>(SB), Y15")
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ p+24(FP), R12")
	g.op("MOVQ o+40(FP), R13")
	rows, column := g.unique("rows"), g.unique("column")
	g.label(rows)
	g.op("XORQ CX, CX")
	g.label(column)
	next := g.unique("next")
	body := func(n int) {
		for i := range 2 * n {
			g.op("VPXOR Y%d, Y%d, Y%d", i, i, i)
		}
		g.op("MOVQ R12, SI")
		g.op("MOVQ span+32(FP), R10")
		g.op("MOVQ pages+8(FP), BX")
		page, loop := g.unique("page"), g.unique("loop")
		g.label(page)
		g.op("MOVQ R11, DX")
		g.op("SHLQ $5, DX") // the values come behind 32 keys
		g.op("ADDQ (R10), DX")
		g.op("ADDQ CX, DX")
		g.op("MOVQ $8, R15")
		g.label(loop)
		g.op("VMOVDQU (DX), Y8")
		g.op("VMOVDQU 32(DX), Y9")
		for r := range n {
			g.op("VPBROADCASTD %d(SI), Y10", codesRow*r)
			for i := range 2 {
				g.op("VPMADDUBSW Y%d, Y10, Y%d", 8+i, 11+i)
				g.op("VPMADDWD Y15, Y%d, Y%d", 11+i, 11+i)
				g.op("VPADDD Y%d, Y%d, Y%d", 11+i, 2*r+i, 2*r+i)
			}
		}
		g.op("ADDQ $4, SI")
		g.op("LEAQ (DX)(R11*4), DX")
		g.op("DECQ R15")
		g.op("JNZ %s", loop)
		g.op("ADDQ $8, R10")
		g.op("DECQ BX")
		g.op("JNZ %s", page)
		g.op("LEAQ (R13)(CX*1), DX")
		for r := range n {
			g.op("VMOVDQU Y%d, (DX)", 2*r)
			g.op("VMOVDQU Y%d, 32(DX)", 2*r+1)
			g.op("LEAQ (DX)(R11*4), DX")
		}
	}
	var labels [block]string
	for n := 1; n < block; n++ {
		labels[n] = g.unique(fmt.Sprintf("rows%dof", n))
		g.op("CMPQ AX, $%d", n)
		g.op("JEQ %s", labels[n])
	}
	for n := block; n >= 1; n-- {
		if n < block {
			g.label(labels[n])
		}
		body(n)
		if n > 1 {
			g.op("JMP %s", next)
		}
	}
	g.label(next)
	g.op("ADDQ $64, CX")
	g.op("LEAQ (R11*4), DX")
	g.op("CMPQ CX, DX")
	g.op("JLT %s", column)
	g.op("ADDQ $%d, R12", block*codesRow)
	g.op("SHLQ $2, DX")
	g.op("ADDQ DX, R13")
	g.op("SUBQ $%d, AX", block)
	g.op("JGT %s", rows)
	g.ret()
}
