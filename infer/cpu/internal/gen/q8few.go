package main

import "fmt"

// fewRows is how many tokens the products of few tokens take.
const fewRows = 4

// Offsets into cpu.fewArgs; a test compares them with the struct.
const (
	fewBlocks = 8 * iota
	fewA
	fewLow
	fewHigh
	fewScale
	fewMin
	fewSub
	fewSubMin
	fewSA
	fewS1
	fewSums
	fewC
	fewLDC
	fewCount
)

// fewForm is a kind of stored weight.
type fewForm struct {
	bits  int
	min   bool
	super bool
}

var fewForms = []fewForm{
	{bits: 8}, {bits: 4}, {bits: 4, min: true}, {bits: 5}, {bits: 5, min: true},
	{bits: 4, min: true, super: true}, {bits: 5, min: true, super: true}, {bits: 6, super: true},
}

func (f fewForm) name() string {
	name := fmt.Sprintf("few%d", f.bits)
	if f.min {
		name += "Min"
	}
	if f.super {
		name += "Super"
	}
	return name
}

// groups is the number of scales of a block.
func (f fewForm) groups() int {
	if f.bits == 6 {
		return 2
	}
	return 1
}

// Registers of gemmFew.
const (
	fewFloat  = 0 // [rows][2 halves] float32 sums
	fewInt    = 8 // [groups][rows][2 halves] integer sums
	fewCodes  = 24
	fewUpper  = 25 // codes of the upper four bits of bytes
	fewUp     = 26
	fewNibble = 27 // masks
	fewBits   = 28
	fewSW     = 29
	fewTmp    = 30
)

// gemmFew writes
//
//	func few4(args *fewArgs)
//
// C[rows][32] for up to four tokens, straight from a stored panel: with so few, the panel is read from memory, and expanding it would
// take longer than that. Activations are [blocks][8][4][4] signed bytes. Codes are taken without a sign, the bias times the sums of the
// activations from the integer sums. Panels are fetched ahead, since they are read once.
func (g *gen) gemmFew(f fewForm) {
	g.text(f.name(), 8)
	g.op("MOVQ args+0(FP), AX")
	for _, field := range []struct {
		reg string
		at  int
	}{
		{"DI", fewBlocks}, {"SI", fewA}, {"DX", fewLow}, {"CX", fewHigh}, {"R8", fewScale}, {"R9", fewMin}, {"BX", fewSub},
		{"R15", fewSubMin}, {"R10", fewSA}, {"R11", fewS1}, {"R13", fewSums},
	} {
		g.op("MOVQ %d(AX), %s", field.at, field.reg)
	}
	g.op("VMOVDQU32 nibbles<>(SB), Z%d", fewNibble)
	switch f.bits {
	case 5:
		g.op("VMOVDQU32 bit4<>(SB), Z%d", fewBits)
	case 6:
		g.op("VMOVDQU32 bits45<>(SB), Z%d", fewBits)
	case 8:
		g.op("VMOVDQU32 sign8<>(SB), Z%d", fewBits)
	}
	g.op("MOVQ %d(AX), R12", fewCount)
	labels := make([]string, fewRows+1)
	for rows := 1; rows <= fewRows; rows++ {
		labels[rows] = g.unique("rows")
		if rows > 1 {
			g.op("CMPQ R12, $%d", rows)
			g.op("JEQ %s", labels[rows])
		}
	}
	for rows := 1; rows <= fewRows; rows++ {
		g.label(labels[rows])
		g.fewBody(f, rows)
	}
}

func (g *gen) fewBody(f fewForm, rows int) {
	float := func(r, half int) string { return fmt.Sprintf("Z%d", fewFloat+2*r+half) }
	sum := func(group, r, half int) string { return fmt.Sprintf("Z%d", fewInt+8*group+2*r+half) }
	for r := range rows {
		for half := range 2 {
			g.op("VPXORD %s, %s, %s", float(r, half), float(r, half), float(r, half))
		}
	}
	super, loop := g.unique("super"), g.unique("loop")
	g.label(super)
	if f.super {
		g.op("MOVQ $8, R14") // blocks that share the float16 numbers
	}
	g.label(loop)
	for group := range f.groups() {
		for r := range rows {
			for half := range 2 {
				s := sum(group, r, half)
				g.op("VPXORD %s, %s, %s", s, s, s)
			}
		}
	}
	dots := func(codes, quad, group, half int) {
		for r := range rows {
			g.op("VPDPBUSD.BCST %d(SI), Z%d, %s", 4*fewRows*quad+4*r, codes, sum(group, r, half))
		}
	}
	if f.bits == 8 {
		for quad := range 8 {
			for half := range 2 {
				g.op("VPXORD %d(DX), Z%d, Z%d", 128*quad+64*half, fewBits, fewCodes)
				g.op("PREFETCHT0 %d(DX)", fewFetch+128*quad+64*half)
				dots(fewCodes, quad, 0, half)
			}
		}
		g.op("ADDQ $1024, DX")
	} else {
		for quad := range 4 {
			for half := range 2 {
				g.op("VMOVDQU32 %d(DX), Z%d", 128*quad+64*half, fewCodes)
				g.op("PREFETCHT0 %d(DX)", fewFetch+128*quad+64*half)
				g.op("VPSRLW $4, Z%d, Z%d", fewCodes, fewUpper)
				g.op("VPANDD Z%d, Z%d, Z%d", fewNibble, fewCodes, fewCodes)
				g.op("VPANDD Z%d, Z%d, Z%d", fewNibble, fewUpper, fewUpper)
				g.fewUpperBits(f, 2*quad+half)
				dots(fewCodes, quad, 0, half)
				dots(fewUpper, quad+4, f.groups()-1, half)
			}
		}
		g.op("ADDQ $512, DX")
		g.op("ADDQ $%d, CX", 128*(f.bits-4))
	}
	g.fewScale(f, rows, float, sum)
	g.op("ADDQ $%d, SI", 32*fewRows)
	for _, reg := range []string{"R10", "R11", "R13"} {
		g.op("ADDQ $%d, %s", 4*fewRows, reg)
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
	for r := range rows {
		for half := range 2 {
			g.op("VMOVUPS %s, %d(DI)", float(r, half), 64*half)
		}
		if r < rows-1 {
			g.op("ADDQ %d(AX), DI", fewLDC)
		}
	}
	g.ret()
}

// fewFetch is how far ahead codes are fetched, in bytes: at ten bytes a nanosecond some times the latency of memory.
const fewFetch = 4096

// fewUpperBits adds the fifth and sixth bits to the codes of chunk c of a block and of its counterpart; see expandCodes.
func (g *gen) fewUpperBits(f fewForm, c int) {
	if f.bits == 4 {
		return
	}
	planes := 2 * (f.bits - 4)
	for half, codes := range []int{fewCodes, fewUpper} {
		at := (c/planes + half*8/planes) * (f.bits - 4)
		g.op("VMOVDQU32 %d(CX), Z%d", 64*(c%planes), fewUp)
		switch {
		case at < 4:
			g.op("VPSLLW $%d, Z%d, Z%d", 4-at, fewUp, fewUp)
		case at > 4:
			g.op("VPSRLW $%d, Z%d, Z%d", at-4, fewUp, fewUp)
		}
		g.op("VPANDD Z%d, Z%d, Z%d", fewBits, fewUp, fewUp)
		g.op("VPORD Z%d, Z%d, Z%d", fewUp, codes, codes)
	}
}

// fewScale adds the scaled sums of a block to the float32 sums.
func (g *gen) fewScale(f fewForm, rows int, float func(r, half int) string, sum func(group, r, half int) string) {
	for group := range f.groups() {
		if !f.min { // take the bias away: 2^shift times the sum of the activations, of the block or of its half
			shift := map[int]int{4: 3, 5: 4, 6: 5, 8: 7}[f.bits]
			for r := range rows {
				if f.groups() == 2 {
					g.fewHalfSum(group, r)
				} else {
					g.op("VPBROADCASTD %d(R13), Z%d", 4*r, fewTmp)
				}
				g.op("VPSLLD $%d, Z%d, Z%d", shift, fewTmp, fewTmp)
				for half := range 2 {
					g.op("VPSUBD Z%d, %s, %s", fewTmp, sum(group, r, half), sum(group, r, half))
				}
			}
		}
		for half := range 2 {
			g.op("VCVTPH2PS %d(R8), Z%d", 32*half, fewSW)
			if f.super {
				widen := "VPMOVZXBD"
				if f.groups() == 2 {
					widen = "VPMOVSXBD"
				}
				g.op("%s %d(BX), Z%d", widen, 32*group+16*half, fewTmp)
				g.op("VCVTDQ2PS Z%d, Z%d", fewTmp, fewTmp)
				g.op("VMULPS Z%d, Z%d, Z%d", fewTmp, fewSW, fewSW)
			}
			for r := range rows {
				s := sum(group, r, half)
				g.op("VCVTDQ2PS %s, %s", s, s)
				g.op("VMULPS Z%d, %s, %s", fewSW, s, s)
				g.op("VFMADD231PS.BCST %d(R10), %s, %s", 4*r, s, float(r, half))
			}
			if !f.min {
				continue
			}
			g.op("VCVTPH2PS %d(R9), Z%d", 32*half, fewSW)
			if f.super {
				g.op("VPXORD sign32<>(SB), Z%d, Z%d", fewSW, fewSW)
				g.op("VPMOVZXBD %d(R15), Z%d", 16*half, fewTmp)
				g.op("VCVTDQ2PS Z%d, Z%d", fewTmp, fewTmp)
				g.op("VMULPS Z%d, Z%d, Z%d", fewTmp, fewSW, fewSW)
			}
			for r := range rows {
				g.op("VFMADD231PS.BCST %d(R11), Z%d, %s", 4*r, fewSW, float(r, half))
			}
		}
	}
}

// fewHalfSum fills fewTmp with the sum of a row's activations over one half of a block, which only types with a scale for 16 k want.
func (g *gen) fewHalfSum(group, r int) {
	t := fmt.Sprintf("Z%d", fewTmp)
	g.op("VPXORD %s, %s, %s", t, t, t)
	g.op("VMOVDQU32 ones8<>(SB), Z%d", fewUp)
	for quad := 4 * group; quad < 4*group+4; quad++ {
		g.op("VPDPBUSD.BCST %d(SI), Z%d, %s", 4*fewRows*quad+4*r, fewUp, t)
	}
}
