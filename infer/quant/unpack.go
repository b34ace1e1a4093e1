package quant

import (
	"encoding/binary"
	"math"
)

// The functions here unpack whole blocks; Dequantize has checked the lengths. Products are converted to float32 before
// they are added, since Go may otherwise fuse the two on some machines and round once less. Array pointers instead of
// slices leave out bounds checks.

func half(b []byte) float32 { return halfs[binary.LittleEndian.Uint16(b)] }

func unpackF32(dst []float32, src []byte) {
	for ; len(dst) >= 8; dst, src = dst[8:], src[32:] {
		b, y := (*[32]byte)(src), (*[8]float32)(dst)
		for j := range y {
			y[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
		}
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func unpackF16(dst []float32, src []byte) {
	table := halfs
	for ; len(dst) >= 8; dst, src = dst[8:], src[16:] {
		b, y := (*[16]byte)(src), (*[8]float32)(dst)
		for j := range y {
			y[j] = table[uint16(b[2*j])|uint16(b[2*j+1])<<8]
		}
	}
	for i := range dst {
		dst[i] = table[binary.LittleEndian.Uint16(src[2*i:])]
	}
}

// unpackBF16: the upper half of a float32.
func unpackBF16(dst []float32, src []byte) {
	for ; len(dst) >= 8; dst, src = dst[8:], src[16:] {
		b, y := (*[16]byte)(src), (*[8]float32)(dst)
		for j := range y {
			y[j] = math.Float32frombits(uint32(b[2*j])<<16 | uint32(b[2*j+1])<<24)
		}
	}
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
	}
}

// unpackQ8_0: scale f16, 32 signed bytes; q*d.
func unpackQ8_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[34:] {
		b, y := (*[34]byte)(src), (*[32]float32)(dst)
		d := half(b[:2])
		for j := range y {
			y[j] = float32(int8(b[2+j])) * d
		}
	}
}

// unpackQ4_0: scale f16, 16 bytes: value j in the low half of byte j, value 16+j in the high half; (q-8)*d.
func unpackQ4_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[18:] {
		b, y := (*[18]byte)(src), (*[32]float32)(dst)
		d := half(b[:2])
		for j := range 16 {
			q := b[2+j]
			y[j] = float32(int32(q&15)-8) * d
			y[j+16] = float32(int32(q>>4)-8) * d
		}
	}
}

// unpackQ4_1: scale f16, minimum f16, 16 bytes as in Q4_0; q*d + m.
func unpackQ4_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[20:] {
		b, y := (*[20]byte)(src), (*[32]float32)(dst)
		d, m := half(b[:2]), half(b[2:4])
		for j := range 16 {
			q := b[4+j]
			y[j] = float32(float32(int32(q&15))*d) + m
			y[j+16] = float32(float32(int32(q>>4))*d) + m
		}
	}
}

// unpackQ5_0: scale f16, the fifth bits of the 32 values, 16 bytes as in Q4_0; (q-16)*d.
func unpackQ5_0(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[22:] {
		b, y := (*[22]byte)(src), (*[32]float32)(dst)
		d := half(b[:2])
		high := binary.LittleEndian.Uint32(b[2:6])
		for j := range 16 {
			q := uint32(b[6+j])
			lo := q&15 | high>>j<<4&16
			hi := q>>4 | high>>(j+12)&16
			y[j] = float32(int32(lo)-16) * d
			y[j+16] = float32(int32(hi)-16) * d
		}
	}
}

// unpackQ5_1: scale f16, minimum f16, the fifth bits, 16 bytes as in Q4_0; q*d + m.
func unpackQ5_1(dst []float32, src []byte) {
	for ; len(dst) >= 32; dst, src = dst[32:], src[24:] {
		b, y := (*[24]byte)(src), (*[32]float32)(dst)
		d, m := half(b[:2]), half(b[2:4])
		high := binary.LittleEndian.Uint32(b[4:8])
		for j := range 16 {
			q := uint32(b[8+j])
			lo := q&15 | high>>j<<4&16
			hi := q>>4 | high>>(j+12)&16
			y[j] = float32(float32(int32(lo))*d) + m
			y[j+16] = float32(float32(int32(hi))*d) + m
		}
	}
}
