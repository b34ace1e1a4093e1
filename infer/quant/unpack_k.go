package quant

// The K formats: 256 values a block, in sub-blocks with scales of their own, which a float16 scales in turn.

// scalesK unpacks the eight 6-bit scales and eight 6-bit minima of Q4_K and Q5_K from their 12 bytes.
func scalesK(b *[12]byte, scale, min *[8]uint8) {
	for j := range 4 {
		scale[j] = b[j] & 63
		min[j] = b[j+4] & 63
		scale[j+4] = b[j+8]&15 | b[j]>>6<<4
		min[j+4] = b[j+8]>>4 | b[j+4]>>6<<4
	}
}

// unpackQ4_K: d f16, dmin f16, 12 bytes of scales, 128 bytes of which each run of 32 holds two sub-blocks: the low
// halves, then the high ones; (d*scale)*q - (dmin*min).
func unpackQ4_K(dst []float32, src []byte) {
	var scale, min [8]uint8
	for ; len(dst) >= 256; dst, src = dst[256:], src[144:] {
		b := (*[144]byte)(src)
		d, dmin := half(b[:2]), half(b[2:4])
		scalesK((*[12]byte)(b[4:16]), &scale, &min)
		for s := range 4 {
			q, y := (*[32]byte)(b[16+32*s:]), (*[64]float32)(dst[64*s:])
			d0, m0 := d*float32(scale[2*s]), dmin*float32(min[2*s])
			d1, m1 := d*float32(scale[2*s+1]), dmin*float32(min[2*s+1])
			for j, v := range q {
				y[j] = float32(d0*float32(int32(v&15))) - m0
				y[j+32] = float32(d1*float32(int32(v>>4))) - m1
			}
		}
	}
}

// unpackQ5_K: as Q4_K, with 32 bytes between scales and values: bit s of byte j is the fifth bit of value j of
// sub-block s.
func unpackQ5_K(dst []float32, src []byte) {
	var scale, min [8]uint8
	for ; len(dst) >= 256; dst, src = dst[256:], src[176:] {
		b := (*[176]byte)(src)
		d, dmin := half(b[:2]), half(b[2:4])
		scalesK((*[12]byte)(b[4:16]), &scale, &min)
		high := (*[32]byte)(b[16:48])
		for s := range 4 {
			q, y := (*[32]byte)(b[48+32*s:]), (*[64]float32)(dst[64*s:])
			d0, m0 := d*float32(scale[2*s]), dmin*float32(min[2*s])
			d1, m1 := d*float32(scale[2*s+1]), dmin*float32(min[2*s+1])
			for j, v := range q {
				h := high[j] >> (2 * s)
				y[j] = float32(d0*float32(int32(v&15|h&1<<4))) - m0
				y[j+32] = float32(d1*float32(int32(v>>4|h>>1&1<<4))) - m1
			}
		}
	}
}

// unpackQ6_K: 128 bytes of low halves, 64 bytes of upper bit pairs, 16 signed scales, d f16; (d*scale)*(q-32). Each
// half of 128 values takes 64 low bytes and 32 upper bytes; a scale serves 16 values.
func unpackQ6_K(dst []float32, src []byte) {
	for ; len(dst) >= 256; dst, src = dst[256:], src[210:] {
		b := (*[210]byte)(src)
		d := half(b[208:210])
		for h := range 2 {
			low, up := (*[64]byte)(b[64*h:]), (*[32]byte)(b[128+32*h:])
			y := (*[128]float32)(dst[128*h:])
			var scale [8]float32
			for i := range scale {
				scale[i] = d * float32(int8(b[192+8*h+i]))
			}
			for j := range 32 {
				l0, l1, u := low[j], low[j+32], up[j]
				i := j / 16
				y[j] = scale[i] * float32(int32(l0&15|u&3<<4)-32)
				y[j+32] = scale[i+2] * float32(int32(l1&15|u>>2&3<<4)-32)
				y[j+64] = scale[i+4] * float32(int32(l0>>4|u>>4&3<<4)-32)
				y[j+96] = scale[i+6] * float32(int32(l1>>4|u>>6<<4)-32)
			}
		}
	}
}
