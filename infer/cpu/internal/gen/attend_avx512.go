package main

import "fmt"

// attendAVX512 writes the kernels that need AVX-512 F, BW and VNNI.
func attendAVX512() []byte {
	g := attendStart(avx512)
	g.quantise8()
	g.place8()
	g.touch8()
	g.scores8VNNI()
	g.softmax8Z()
	g.values8VNNI()
	g.add8()
	g.finish8()
	return g.out.Bytes()
}

// quadRows is how many rows a body of the integer products has at most: with 32 columns, 16 sums.
const quadRows = 8

// quadBody adds to [rows][32] sums the products of so many quads: rows of a start at SI and are R8 bytes apart (R9 three
// times that, DI is row 4), a row of b is at DX, and step goes to the next. Z16 and Z17 hold b, Z18 a's quad. biased says that
// b's codes are signed and are made unsigned here, else a's are unsigned.
func (g *gen) quadBody(rows int, biased bool, step string) {
	g.op("VMOVDQU32 (DX), Z16")
	g.op("VMOVDQU32 64(DX), Z17")
	if biased {
		g.op("VPXORD Z31, Z16, Z16")
		g.op("VPXORD Z31, Z17, Z17")
	}
	for r := range rows {
		base := []string{"SI", "DI"}[r/4]
		index := []string{"", "(R8*1)", "(R8*2)", "(R9*1)"}[r%4]
		a := fmt.Sprintf("Z%d", 18+r%4)
		g.op("VPBROADCASTD (%s)%s, %s", base, index, a)
		for half := range 2 {
			if biased {
				g.op("VPDPBUSD %s, Z%d, Z%d", a, 16+half, 2*r+half)
			} else {
				g.op("VPDPBUSD Z%d, %s, Z%d", 16+half, a, 2*r+half)
			}
		}
	}
	g.op("ADDQ $4, SI")
	g.op("ADDQ $4, DI")
	g.op("ADDQ %s, DX", step)
}

// scores8VNNI writes
//
//	func scores8(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, st *rows8)
//
// The multiplier takes unsigned codes on one side: 128 is added to those of the keys, and the sums start at -128 times the sum of
// the query's, st.offset.
func (g *gen) scores8VNNI() {
	g.text("scores8", 64)
	g.op("MOVQ ldq+24(FP), R8")
	g.op("LEAQ (R8)(R8*2), R9")
	g.op("MOVQ span+40(FP), R10")
	g.op("MOVQ s+48(FP), R11")
	g.op("VMOVDQU32 bytesigns<>(SB), Z31")
	page, block := g.unique("page"), g.unique("block")
	g.label(page)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ q+32(FP), R12")
	g.op("MOVQ st+56(FP), R13")
	g.op("ADDQ $%d, R13", stOffset)
	g.op("MOVQ R11, CX")
	g.label(block)
	done := g.unique("done")
	g.rowBodies("AX", func(rows int) {
		for r := range rows {
			g.op("VPBROADCASTD %d(R13), Z%d", 4*r, 2*r)
			g.op("VMOVDQA32 Z%d, Z%d", 2*r, 2*r+1)
		}
		g.op("MOVQ R12, SI")
		g.op("LEAQ (SI)(R8*4), DI")
		g.op("MOVQ (R10), DX")
		g.op("MOVQ dim+16(FP), BX")
		loop := g.unique("loop")
		g.label(loop)
		g.quadBody(rows, true, fmt.Sprintf("$%d", pageKeys))
		g.op("SUBQ $4, BX")
		g.op("JNZ %s", loop)
		for r := range rows {
			g.op("VMOVDQU32 Z%d, %d(CX)", 2*r, spanRow*r)
			g.op("VMOVDQU32 Z%d, %d(CX)", 2*r+1, spanRow*r+64)
		}
	}, done)
	g.label(done)
	g.op("LEAQ (R12)(R8*8), R12")
	g.op("ADDQ $%d, R13", 4*quadRows)
	g.op("ADDQ $%d, CX", spanRow*quadRows)
	g.op("SUBQ $%d, AX", quadRows)
	g.op("JGT %s", block)
	g.op("ADDQ $128, R11") // the next page's scores
	g.op("ADDQ $8, R10")
	g.op("DECQ pages+8(FP)")
	g.op("JNZ %s", page)
	g.ret()
}

// rowBodies writes a body for each number of rows up to quadRows and picks by count, which is more where there are more.
func (g *gen) rowBodies(count string, body func(rows int), done string) {
	labels := make([]string, quadRows)
	for r := 1; r < quadRows; r++ {
		labels[r] = g.unique("rows")
		g.op("CMPQ %s, $%d", count, r)
		g.op("JEQ %s", labels[r])
	}
	for r := quadRows; r >= 1; r-- {
		if r < quadRows {
			g.label(labels[r])
		}
		body(r)
		if r > 1 {
			g.op("JMP %s", done)
		}
	}
}

// values8VNNI writes
//
//	func values8(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer)
func (g *gen) values8VNNI() {
	g.text("values8", 48)
	g.op("MOVQ dim+16(FP), R11")
	g.op("MOVQ $%d, R8", codesRow)
	g.op("MOVQ $%d, R9", 3*codesRow)
	g.op("MOVQ rows+0(FP), AX")
	g.op("MOVQ p+24(FP), R12")
	g.op("MOVQ o+40(FP), R13")
	block, column := g.unique("block"), g.unique("column")
	g.label(block)
	g.op("XORQ CX, CX") // the column's offset in a row of o, and in a row of quads
	g.label(column)
	done := g.unique("done")
	g.rowBodies("AX", func(rows int) {
		for i := range 2 * rows {
			g.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
		}
		g.op("MOVQ R12, SI")
		g.op("LEAQ (SI)(R8*4), DI")
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
		g.quadBody(rows, false, "R11")
		g.op("LEAQ (DX)(R11*2), DX")
		g.op("ADDQ R11, DX") // four bytes a column
		g.op("DECQ R15")
		g.op("JNZ %s", loop)
		g.op("ADDQ $8, R10")
		g.op("DECQ BX")
		g.op("JNZ %s", page)
		g.op("LEAQ (R13)(CX*1), DX")
		for r := range rows {
			g.op("VMOVDQU32 Z%d, (DX)", 2*r)
			g.op("VMOVDQU32 Z%d, 64(DX)", 2*r+1)
			g.op("LEAQ (DX)(R11*4), DX")
		}
	}, done)
	g.label(done)
	g.op("ADDQ $128, CX")
	g.op("LEAQ (R11*4), DX")
	g.op("CMPQ CX, DX")
	g.op("JLT %s", column)
	g.op("LEAQ (R12)(R8*8), R12")
	g.op("SHLQ $3, DX")
	g.op("ADDQ DX, R13")
	g.op("SUBQ $%d, AX", quadRows)
	g.op("JGT %s", block)
	g.ret()
}
