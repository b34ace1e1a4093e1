package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// halfAt is where the blocks of a type hold float16 numbers.
var halfAt = map[Type][]int{
	Q8_0: {0}, Q4_0: {0}, Q5_0: {0}, Q6_K: {208}, Q4_1: {0, 2}, Q5_1: {0, 2}, Q4_K: {0, 2}, Q5_K: {0, 2},
}

// TestSplitGivesTheValues: the parts of random blocks, put together, are what Dequantize gives.
func TestSplitGivesTheValues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, typ := range Types() {
		values, size := typ.Block()
		f, ok := typ.Form()
		if ok != (values > 1) {
			t.Errorf("%v has blocks of %d values, form %v", typ, values, ok)
		}
		if !ok {
			continue
		}
		const blocks = 5
		n := blocks * values
		src := make([]byte, blocks*size)
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		for b := range blocks {
			for _, at := range halfAt[typ] {
				binary.LittleEndian.PutUint16(src[b*size+at:], uint16(r.Uint32())&0xbfff) // finite
			}
		}
		want := make([]float32, n)
		Dequantize(typ, want, src)
		p := typ.NewParts(n)
		typ.Split(p, src)
		for i, w := range want {
			if got := p.value(f, i); math.Float32bits(got) != math.Float32bits(w) && !(got == 0 && w == 0) {
				t.Fatalf("%v: value %d is %g, want %g", typ, i, got, w)
			}
		}
	}
}

// value puts value i together.
func (p *Parts) value(f Form, i int) float32 {
	code := float32(int(p.Codes[i]) - f.Bias)
	if f.Bits == 8 {
		code = float32(int8(p.Codes[i]))
	}
	if !f.Super {
		v := code * HalfToFloat32(p.Scale[i/32])
		if f.Min {
			v = float32(v) + HalfToFloat32(p.Min[i/32])
		}
		return v
	}
	sub := float32(p.SubScale[i/f.Group])
	if f.Group == 16 {
		sub = float32(int8(p.SubScale[i/f.Group]))
	}
	v := code * (HalfToFloat32(p.Scale[i/SuperBlock]) * sub)
	if f.Min {
		v = float32(v) - float32(HalfToFloat32(p.Min[i/SuperBlock])*float32(p.SubMin[i/f.Group]))
	}
	return v
}
