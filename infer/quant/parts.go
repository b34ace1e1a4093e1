package quant

import "encoding/binary"

// Form says what a block-quantised type is made of: codes of Bits bits, minus Bias, times a scale for every Group values,
// plus a minimum for every 32 values where there is one. With Super, the scale of a group is the product of a float16 for 256
// values and a small integer for each group, and so is the minimum.
type Form struct {
	Bits  int  // 4, 5, 6 or 8; codes of 8 bits have a sign
	Bias  int  // subtracted from a code
	Group int  // 32 or 16 values
	Min   bool // there are minima
	Super bool // scales are products
}

// forms lists the types that have one; the formats are those of the unpacking functions.
var forms = map[Type]Form{
	Q8_0: {Bits: 8, Group: 32},
	Q4_0: {Bits: 4, Bias: 8, Group: 32},
	Q4_1: {Bits: 4, Group: 32, Min: true},
	Q5_0: {Bits: 5, Bias: 16, Group: 32},
	Q5_1: {Bits: 5, Group: 32, Min: true},
	Q4_K: {Bits: 4, Group: 32, Min: true, Super: true},
	Q5_K: {Bits: 5, Group: 32, Min: true, Super: true},
	Q6_K: {Bits: 6, Bias: 32, Group: 16, Super: true},
}

// Form describes a block-quantised type; false for float types.
func (t Type) Form() (Form, bool) {
	f, ok := forms[t]
	return f, ok
}

// SuperBlock is how many values share the float16 numbers of a type with products as scales.
const SuperBlock = 256

// Parts is a row taken apart. For types without Super, Scale and Min hold one float16 (as bits) for every 32 values. With it,
// they hold one for every 256, and SubScale (signed where the group is 16) and SubMin one small integer for every group.
// A value is (Codes-Bias)*scale + minimum; the minimum of a type with Super is minus the product.
type Parts struct {
	Codes            []byte // [n], before the bias is subtracted; the 8-bit ones are int8
	Scale, Min       []uint16
	SubScale, SubMin []byte
}

// NewParts makes room for a row of n values, a whole number of blocks.
func (t Type) NewParts(n int) *Parts {
	f := forms[t]
	p := &Parts{Codes: make([]byte, n)}
	per := 32
	if f.Super {
		per = SuperBlock
		p.SubScale = make([]byte, n/f.Group)
	}
	p.Scale = make([]uint16, n/per)
	if f.Min {
		p.Min = make([]uint16, n/per)
		if f.Super {
			p.SubMin = make([]byte, n/f.Group)
		}
	}
	return p
}

// Split takes a row of whole blocks apart; p is from NewParts for its length.
func (t Type) Split(p *Parts, src []byte) {
	_, size := t.Block()
	for b := 0; (b+1)*size <= len(src); b++ {
		block := src[b*size : (b+1)*size]
		switch t {
		case Q8_0:
			p.Scale[b] = binary.LittleEndian.Uint16(block)
			copy(p.Codes[32*b:32*b+32], block[2:])
		case Q4_0:
			p.Scale[b] = binary.LittleEndian.Uint16(block)
			splitNibbles(p.Codes[32*b:], block[2:18])
		case Q4_1:
			p.Scale[b], p.Min[b] = binary.LittleEndian.Uint16(block), binary.LittleEndian.Uint16(block[2:])
			splitNibbles(p.Codes[32*b:], block[4:20])
		case Q5_0:
			p.Scale[b] = binary.LittleEndian.Uint16(block)
			splitNibbles(p.Codes[32*b:], block[6:22])
			addFifthBits(p.Codes[32*b:], binary.LittleEndian.Uint32(block[2:]))
		case Q5_1:
			p.Scale[b], p.Min[b] = binary.LittleEndian.Uint16(block), binary.LittleEndian.Uint16(block[2:])
			splitNibbles(p.Codes[32*b:], block[8:24])
			addFifthBits(p.Codes[32*b:], binary.LittleEndian.Uint32(block[4:]))
		case Q4_K:
			splitK(p, b, block)
			for s := range 4 {
				splitRuns(p.Codes[256*b+64*s:], block[16+32*s:][:32])
			}
		case Q5_K:
			splitK(p, b, block)
			for s := range 4 {
				codes := p.Codes[256*b+64*s:][:64]
				splitRuns(codes, block[48+32*s:][:32])
				for j := range 32 {
					h := block[16+j] >> (2 * s)
					codes[j] |= h & 1 << 4
					codes[j+32] |= h >> 1 & 1 << 4
				}
			}
		case Q6_K:
			split6K(p, b, block)
		}
	}
}

// splitNibbles: value j in the low half of byte j, value 16+j in the high half.
func splitNibbles(dst, src []byte) {
	for j, v := range src[:16] {
		dst[j], dst[j+16] = v&15, v>>4
	}
}

// splitRuns is the same for 32 bytes.
func splitRuns(dst, src []byte) {
	for j, v := range src[:32] {
		dst[j], dst[j+32] = v&15, v>>4
	}
}

func addFifthBits(codes []byte, bits uint32) {
	for j := range codes[:32] {
		codes[j] |= byte(bits>>j&1) << 4
	}
}

func splitK(p *Parts, b int, block []byte) {
	p.Scale[b], p.Min[b] = binary.LittleEndian.Uint16(block), binary.LittleEndian.Uint16(block[2:])
	scalesK((*[12]byte)(block[4:16]), (*[8]uint8)(p.SubScale[8*b:]), (*[8]uint8)(p.SubMin[8*b:]))
}

func split6K(p *Parts, b int, block []byte) {
	p.Scale[b] = binary.LittleEndian.Uint16(block[208:])
	copy(p.SubScale[16*b:16*b+16], block[192:208])
	for h := range 2 {
		low, up, codes := block[64*h:][:64], block[128+32*h:][:32], p.Codes[256*b+128*h:][:128]
		for j, u := range up {
			codes[j] = low[j]&15 | u&3<<4
			codes[j+32] = low[j+32]&15 | u>>2&3<<4
			codes[j+64] = low[j]>>4 | u>>4&3<<4
			codes[j+96] = low[j+32]>>4 | u>>6<<4
		}
	}
}
