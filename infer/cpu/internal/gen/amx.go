package main

import (
	"fmt"
	"strings"
)

// Go's assembler does not know the tile instructions (AMX), so they are written as bytes. Each is VEX.128 in the map 0F38
// with W = 0; what differs is the prefix, the opcode and the operands. Source: Intel 64 and IA-32 Architectures Software
// Developer's Manual, volume 2, and its chapter "Tile Architecture".

// tmm is a tile register, 0 to 7: up to 16 rows of up to 64 bytes, as the loaded configuration says.
type tmm int

// Prefixes as VEX.pp codes them.
const (
	ppNone = 0
	pp66   = 1
	ppF3   = 2
	ppF2   = 3
)

// gprs numbers the general registers as the machine does.
var gprs = map[string]int{
	"AX": 0, "CX": 1, "DX": 2, "BX": 3, "SP": 4, "BP": 5, "SI": 6, "DI": 7,
	"R8": 8, "R9": 9, "R10": 10, "R11": 11, "R12": 12, "R13": 13, "R14": 14, "R15": 15,
}

func gpr(name string) int {
	n, ok := gprs[name]
	if !ok {
		panic("register " + name)
	}
	return n
}

// bytes0F38 writes a VEX.128.0F38.W0 instruction. r, x and b are the upper bits of the register, index and base; v is the
// second source.
func (g *gen) bytes0F38(comment string, pp, opcode, r, x, b, v int, rest ...byte) {
	code := []byte{0xc4, byte(2 | (r>>3^1)<<7 | (x>>3^1)<<6 | (b>>3^1)<<5), byte((v^15)<<3 | pp), byte(opcode)}
	code = append(code, rest...)
	var parts []string
	for _, c := range code {
		parts = append(parts, fmt.Sprintf("BYTE $0x%02x", c))
	}
	g.op("%s // %s", strings.Join(parts, "; "), comment)
}

// sib is the ModRM and what follows for reg and memory at off(base)(index*1); tile loads and stores need an index, which is
// the distance of rows in bytes.
func sib(reg, base, index, off int) []byte {
	return []byte{byte(2<<6 | reg&7<<3 | 4), byte(index&7<<3 | base&7), byte(off), byte(off >> 8), byte(off >> 16), byte(off >> 24)}
}

// tileConfig loads the configuration of all tiles, 64 bytes at (base).
func (g *gen) tileConfig(base string) {
	b := gpr(base)
	if b&7 == 4 || b&7 == 5 {
		panic("tileConfig: base " + base + " needs another form")
	}
	g.bytes0F38("LDTILECFG ("+base+")", ppNone, 0x49, 0, 0, b, 0, byte(b&7))
}

// tileRelease puts the tiles back into their initial state, so that the system need not save them.
func (g *gen) tileRelease() { g.bytes0F38("TILERELEASE", ppNone, 0x49, 0, 0, 0, 0, 0xc0) }

// tileLoad reads the rows of t from off(base), stride bytes apart.
func (g *gen) tileLoad(t tmm, off int, base, stride string) {
	b, i := gpr(base), gpr(stride)
	g.bytes0F38(fmt.Sprintf("TILELOADD %d(%s)(%s*1), TMM%d", off, base, stride, t), ppF2, 0x4b, 0, i, b, 0, sib(int(t), b, i, off)...)
}

// tileStore writes the rows of t to off(base), stride bytes apart.
func (g *gen) tileStore(t tmm, off int, base, stride string) {
	b, i := gpr(base), gpr(stride)
	g.bytes0F38(fmt.Sprintf("TILESTORED TMM%d, %d(%s)(%s*1)", t, off, base, stride), ppF3, 0x4b, 0, i, b, 0, sib(int(t), b, i, off)...)
}

// tileZero clears t.
func (g *gen) tileZero(t tmm) {
	g.bytes0F38(fmt.Sprintf("TILEZERO TMM%d", t), ppF2, 0x49, 0, 0, 0, 0, byte(0xc0|int(t)<<3))
}

// The products add to c, [rows][columns] of int32, the products of a, [rows][k] bytes, and b, [k/4][columns][4] bytes. The
// first letter says whether a has a sign, the second whether b has.
func (g *gen) tileDotSS(c, a, b tmm) { g.tileDot("TDPBSSD", ppF2, c, a, b) }
func (g *gen) tileDotUS(c, a, b tmm) { g.tileDot("TDPBUSD", pp66, c, a, b) }

func (g *gen) tileDot(name string, pp int, c, a, b tmm) {
	g.bytes0F38(fmt.Sprintf("%s TMM%d, TMM%d, TMM%d", name, b, a, c), pp, 0x5e, 0, 0, 0, int(b), byte(0xc0|int(c)<<3|int(a)))
}
