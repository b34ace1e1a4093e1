package main

import "fmt"

// amxRows is the height of a strip of activations: the rows of a tile.
const amxRows = 16

// gemmAMX writes
//
//	func gemm8(args *qArgs)
//
// C[rows][32] = the product of strips of activations and one panel; see qArgs. Activations are [strip][blocks][planes][16][32] bytes:
// signed ones, or of 16-bit ones the signed upper bytes and then the unsigned lower ones. Codes are [blocks][8][32][4] signed bytes.
//
// For every 32 k (16 with sub-groups) a tile of 16 x 16 sums goes through memory to the vectors, which scale it and add it to the 16
// accumulators Z0..Z15. The two halves of the panel's outputs follow one another.
//
// Beside the first strips the next panel is fetched from memory.
func (g *gen) gemmAMX(f qForm) {
	cfg := g.unique("tiles")
	g.printf("\n%s", table(cfg, amxConfigs(f)))
	g.printf("\nTEXT ·%s%s(SB), NOSPLIT, $24-8\n", f.name(), g.suffix)
	g.op("MOVQ args+0(FP), AX")
	g.op("MOVQ $32, BX")   // distance of rows: activations,
	g.op("MOVQ $128, R15") // codes,
	g.op("MOVQ $64, R14")  // sums
	g.op("MOVQ %d(AX), CX", qArgScratch)
	g.op("MOVQ $0, %s", amxRowsNow)
	g.op("MOVQ %d(AX), R13", qArgRows)
	g.op("MOVQ R13, %s", amxTokens)
	if !f.wide {
		g.op("VBROADCASTSS magic<>(SB), Z30")
		g.op("VBROADCASTSS minusMagic<>(SB), Z31")
	}
	strip, last := g.unique("strip"), g.unique("last")
	g.label(strip)
	g.op("MOVQ %d(AX), R12", qArgRows)
	g.op("CMPQ R12, $%d", amxRows)
	g.op("JLE %s", last)
	g.op("MOVQ $%d, R12", amxRows)
	g.label(last)
	configured := g.unique("configured")
	g.op("CMPQ R12, %s", amxRowsNow)
	g.op("JEQ %s", configured)
	g.op("MOVQ R12, %s", amxRowsNow)
	g.op("MOVQ R12, R13")
	g.op("SHLQ $6, R13")
	g.op("LEAQ %s<>(SB), DX", cfg)
	g.op("ADDQ R13, DX")
	g.tileConfig("DX")
	g.label(configured)
	for half := range 2 {
		g.op("MOVQ %d(AX), DI", qArgBlocks)
		g.op("MOVQ %d(AX), SI", qArgA)
		g.op("MOVQ %d(AX), DX", qArgB)
		g.op("MOVQ %d(AX), R8", qArgSW)
		g.op("MOVQ %d(AX), R9", qArgMin)
		g.op("MOVQ %d(AX), R10", qArgSA)
		g.op("MOVQ %d(AX), R11", qArgS1)
		if half == 1 {
			g.op("ADDQ $64, DX")
			g.op("ADDQ $64, R8")
			g.op("ADDQ $64, R9")
		}
		for r := range amxRows {
			g.op("VPXORD Z%d, Z%d, Z%d", r, r, r)
		}
		done, partial, some, few, slow := g.unique("done"), g.unique("partial"), g.unique("some"), g.unique("few"), g.unique("slow")
		g.op("MOVQ %d(AX), R13", qArgAhead)
		g.op("CMPQ R12, $%d", amxRows)
		g.op("JNE %s", partial)
		g.op("TESTQ R13, R13")
		g.op("JNZ %s", some)
		if half == 0 {
			g.amxLoop(f, amxPlain, done)
		} else {
			g.op("MOVQ %d(AX), R13", qArgAStrip)
			g.amxLoop(f, amxFetchStrip, done)
		}
		g.label(some)
		g.op("CMPQ %s, $%d", amxTokens, amxManyRows)
		g.op("JGE %s", slow)
		g.amxLoop(f, amxFetch4, done)
		g.label(slow)
		g.amxLoop(f, amxFetch2, done)
		g.label(partial)
		g.op("TESTQ R13, R13")
		g.op("JNZ %s", few)
		g.op("MOVQ DX, R13") // nothing to fetch: what is there already
		g.label(few)
		g.amxLoop(f, amxFewRows, done)
		g.label(done)
		ended := g.unique("ended")
		g.op("CMPQ %d(AX), $0", qArgAhead)
		g.op("JEQ %s", ended)
		enough := g.unique("enough")
		g.op("CMPQ R13, %d(AX)", qArgAheadEnd)
		g.op("JCS %s", enough)
		g.op("XORQ R13, R13")
		g.label(enough)
		g.op("MOVQ R13, %d(AX)", qArgAhead)
		g.label(ended)
		g.op("MOVQ %d(AX), DI", qArgC)
		g.op("MOVQ %d(AX), SI", qArgLDC)
		stored := g.unique("stored")
		for r := range amxRows {
			g.op("VMOVUPS Z%d, %d(DI)", r, 64*half)
			g.op("ADDQ SI, DI")
			if r < amxRows-1 {
				g.op("CMPQ R12, $%d", r+1)
				g.op("JEQ %s", stored)
			}
		}
		g.label(stored)
	}
	g.op("MOVQ DI, %d(AX)", qArgC) // the row after the last
	for _, field := range []struct{ at, step int }{{qArgA, qArgAStrip}, {qArgSA, qArgSStrip}, {qArgS1, qArgSStrip}} {
		g.op("MOVQ %d(AX), DX", field.step)
		g.op("ADDQ DX, %d(AX)", field.at)
	}
	g.op("SUBQ R12, %d(AX)", qArgRows)
	g.op("JNZ %s", strip)
	g.tileRelease()
	g.ret()
}

// The tiles of a block lie in one of four slots of scratch, and are computed two blocks before they are scaled: a tile that is read
// right after it has been stored has to wait for the stores.
const (
	amxSlots = 4
	amxAhead = 2
)

// amxKind is a variant of the loop over blocks.
type amxKind int

const (
	amxPlain      amxKind = iota
	amxFetchStrip         // on the way the next strip is fetched, R13 bytes on
	amxFetch2             // the next panel is fetched into the second-level cache, from R13 on, two lines a tile,
	amxFetch4             // four lines
	amxFewRows            // eight; and only R12 rows are scaled
)

// lines is how much of the next panel is fetched beside a tile: with 1, 2 or 4 strips, all of a panel of bytes, spread evenly. More
// at a time would only wait for memory.
func (k amxKind) lines() int { return [...]int{0, 0, 2, 4, 8}[k] }

// amxManyRows is from how many tokens on two lines are enough.
const amxManyRows = 4 * amxRows

// amxTokens holds the number of all tokens.
const amxTokens = "tokens-24(SP)"

// amxRowsNow holds the rows of the configuration in force: loading one takes as long as dozens of products.
const amxRowsNow = "rows-16(SP)"

// amxLoop writes the loop over blocks, at least one. DI counts the tiles that are left to compute, left the ones to scale.
func (g *gen) amxLoop(f qForm, kind amxKind, done string) {
	const left = "left-8(SP)"
	g.op("MOVQ DI, %s", left)
	loop := g.unique("loop")
	tile := func(slot int) {
		skip := g.unique("skip")
		g.op("TESTQ DI, DI")
		g.op("JZ %s", skip)
		g.amxTile(f, slot, kind)
		g.op("DECQ DI")
		g.label(skip)
	}
	for slot := range amxAhead {
		tile(slot)
	}
	g.label(loop)
	for slot := range amxSlots {
		tile((slot + amxAhead) % amxSlots)
		g.amxScale(f, slot, kind == amxFewRows)
		g.op("DECQ %s", left)
		g.op("JZ %s", done)
	}
	g.op("JMP %s", loop)
}

// slotBytes is the size of a slot: [group][plane][16][16] int32.
func (f qForm) slotBytes() int { return 1024 * f.groups() * f.planes() }

// amxTile computes the sums of one block into a slot of scratch.
func (g *gen) amxTile(f qForm, slot int, kind amxKind) {
	n := 0
	for group := range f.groups() {
		b := tmm(6 + (slot+group)%2)
		g.tileLoad(b, 512*group, "DX", "R15")
		for plane := range f.planes() {
			a := tmm(4 + (slot+plane)%2)
			c := tmm((slot*f.groups()*f.planes() + n) % 4)
			g.tileLoad(a, 512*plane+16*group, "SI", "BX")
			g.tileZero(c)
			if plane == 0 {
				g.tileDotSS(c, a, b)
			} else {
				g.tileDotUS(c, a, b)
			}
			g.tileStore(c, f.slotBytes()*slot+1024*n, "CX", "R14")
			n++
		}
	}
	if n := kind.lines(); n > 0 {
		for i := range n {
			g.op("PREFETCHT1 %d(R13)", 64*i)
		}
		g.op("ADDQ $%d, R13", 64*n)
	}
	if kind == amxFetchStrip {
		for i := range 8 * f.planes() {
			g.op("PREFETCHT0 %d(SI)(R13*1)", 64*i)
		}
	}
	g.op("ADDQ $%d, SI", 512*f.planes())
	g.op("ADDQ $1024, DX")
}

// amxScale adds the scaled sums of one block to the accumulators.
//
// While tiles are in use, only one of the two 512-bit units for floating point runs, but both for integers. So the sums of 8-bit
// activations are not converted: added to the bits of 1.5*2^23 they are the bits of 1.5*2^23 + sum, since a sum is below 2^20. Then
// fma(1.5*2^23 + sum, sw, -1.5*2^23*sw) is sum*sw, rounded once: the last product is exact, as a scale has 19 bits at most.
func (g *gen) amxScale(f qForm, slot int, careful bool) {
	for group := range f.groups() {
		g.op("VMOVUPS %d(R8), Z%d", 128*group, 16+group)
		if !f.wide {
			g.op("VMULPS Z31, Z%d, Z%d", 16+group, 18+group)
		}
	}
	if f.min {
		g.op("VMOVUPS (R9), Z17")
	}
	end := g.unique("rows")
	for r := range amxRows {
		for group := range f.groups() {
			t := fmt.Sprintf("Z%d", 20+(2*r+group)%10)
			at := f.slotBytes()*slot + 64*r + 1024*group*f.planes()
			if f.wide {
				g.op("VMOVDQU32 %d(CX), %s", at, t)
				g.op("VPSLLD $8, %s, %s", t, t)
				g.op("VPADDD %d(CX), %s, %s", at+1024, t, t)
				g.op("VCVTDQ2PS %s, %s", t, t)
				g.op("VMULPS Z%d, %s, %s", 16+group, t, t)
			} else {
				g.op("VPADDD %d(CX), Z30, %s", at, t)
				g.op("VFMADD213PS Z%d, Z%d, %s", 18+group, 16+group, t)
			}
			g.op("VFMADD231PS.BCST %d(R10), %s, Z%d", 4*r, t, r)
		}
		if f.min {
			g.op("VFMADD231PS.BCST %d(R11), Z17, Z%d", 4*r, r)
		}
		if careful && r < amxRows-1 {
			g.op("CMPQ R12, $%d", r+1)
			g.op("JEQ %s", end)
		}
	}
	g.label(end)
	g.op("ADDQ $%d, R8", 128*f.groups())
	g.op("ADDQ $128, R9")
	g.op("ADDQ $%d, R10", 4*amxRows)
	g.op("ADDQ $%d, R11", 4*amxRows)
}

// amxConfigs makes the tile configurations for 0 to 16 rows, 64 bytes each: palette 1; bytes of a row at 16+2t, rows at 48+t.
func amxConfigs(f qForm) []byte {
	all := make([]byte, 64*(amxRows+1))
	for rows := range amxRows + 1 {
		cfg := all[64*rows:]
		cfg[0] = 1
		for t := range 8 {
			row, n := 64, rows
			switch {
			case t >= 6:
				n = 8 / f.groups()
			case t >= 4:
				row = 32 / f.groups()
			}
			cfg[16+2*t], cfg[48+t] = byte(row), byte(n)
		}
	}
	return all
}
