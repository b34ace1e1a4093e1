package quant

import "math"

// halfs holds the float32 value of every float16; 256 KiB. A table has no slow path for float16 denormals, which are
// common among weights and which arithmetic on float32 denormals would be slow for.
var halfs = makeHalfs()

func makeHalfs() *[1 << 16]float32 {
	table := new([1 << 16]float32)
	for i := range table {
		table[i] = math.Float32frombits(halfBits(uint16(i)))
	}
	return table
}

// halfBits converts a float16 (IEEE 754 binary16) to the bits of the equal float32; NaNs keep sign and payload.
func halfBits(h uint16) uint32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f: // infinity or NaN
		return sign | 0x7f800000 | frac<<13
	case exp != 0:
		return sign | (exp+127-15)<<23 | frac<<13
	case frac == 0:
		return sign
	}
	// Denormal: frac * 2^-24, which float32 holds as a normal number.
	return sign | math.Float32bits(float32(frac)*0x1p-24)
}

// HalfToFloat32 converts a float16, given by its bits, to float32.
func HalfToFloat32(h uint16) float32 { return halfs[h] }
