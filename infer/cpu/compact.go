package cpu

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/quant"
)

// A weight of 16-bit floats is kept as it is, and a quantised one, where activations are float32, as codes with their scales; a
// panel is expanded into the second-level cache right before it is used: a step with few tokens is bound by the memory that its
// weights are read from, and 16 bits are half, codes a third to a fifth of the float32 values. The values are the same bits. Every panel is compared when it is packed, and a
// weight with a block that is not the same (a scale that is no number, say) is kept as float32.

// compactForm says how a quantised type is taken apart. A block is a scale, an offset and codes; all three are read off
// quant.Dequantize by unpacking a block in which the other fields have been filled, so that nothing here knows the order of
// its bits.
type compactForm struct {
	group int     // k that share a scale
	bits  int     // of a code: 4, or 8 with a sign. 16: values are float16 or bfloat16, without scales
	brain bool    // the 16 bits are bfloat16
	bias  float32 // what is subtracted from a 4-bit code
	unit  []fill  // scale 1 and offset 0: the values are the codes
	one   []fill  // codes 1 and offset 0: the values are the scales
	zero  []fill  // codes 0: the values are the offsets. Nil: there are none
}

// fill sets bytes from..to of a block.
type fill struct {
	from, to int
	value    byte
}

// The upper bytes of two float16: 1, and the -0 which added to a number leaves it as it is, where +0 makes +0 of -0.
const (
	unitHalf  = 0x3c
	minusZero = 0x80
)

// compactForms lists the types that can be compact; the layouts of their blocks are described in package quant.
var compactForms = map[quant.Type]*compactForm{
	quant.F16:  {group: qBlock, bits: 16},
	quant.BF16: {group: qBlock, bits: 16, brain: true},
	quant.Q4_0: {group: 32, bits: 4, bias: 8, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}}, one: []fill{{2, 18, 0x99}}},
	quant.Q4_1: {group: 32, bits: 4, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}, {2, 4, 0}},
		one: []fill{{2, 3, 0}, {3, 4, minusZero}, {4, 20, 0x11}}, zero: []fill{{4, 20, 0}}},
	quant.Q5_0: {group: 32, bits: 8, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}}, one: []fill{{2, 6, 0xff}, {6, 22, 0x11}}},
	quant.Q5_1: {group: 32, bits: 8, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}, {2, 4, 0}},
		one: []fill{{2, 3, 0}, {3, 4, minusZero}, {4, 8, 0}, {8, 24, 0x11}}, zero: []fill{{4, 24, 0}}},
	quant.Q8_0: {group: 32, bits: 8, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}}, one: []fill{{2, 34, 1}}},
	quant.Q4_K: {group: 32, bits: 4, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}, {2, 4, 0}, {4, 8, 1}, {8, 12, 0}, {12, 16, 1}},
		one: []fill{{2, 4, 0}, {16, 144, 0x11}}, zero: []fill{{16, 144, 0}}},
	quant.Q5_K: {group: 32, bits: 8, unit: []fill{{0, 1, 0}, {1, 2, unitHalf}, {2, 4, 0}, {4, 8, 1}, {8, 12, 0}, {12, 16, 1}},
		one: []fill{{2, 4, 0}, {16, 48, 0}, {48, 176, 0x11}}, zero: []fill{{16, 176, 0}}},
	quant.Q6_K: {group: 16, bits: 8, unit: []fill{{192, 208, 1}, {208, 209, 0}, {209, 210, unitHalf}},
		one: []fill{{0, 128, 0x11}, {128, 192, 0xaa}}},
}

// panelBytes is the size of a compact panel.
func (f *compactForm) panelBytes(k int) int {
	if f.bits == 16 {
		return k * panelCols * 2
	}
	return k / f.group * (blockScales + f.group*panelCols*f.bits/8)
}

// expand makes the float32 panel.
func (f *compactForm) expand(kn *kernels, k int, dst, src unsafe.Pointer) {
	switch {
	case f.brain:
		kn.q8.brains(k, dst, src)
		return
	case f.bits == 16:
		kn.q8.halves(k, dst, src)
		return
	case f.bits == 4:
		kn.expand4(k/nibbleBlock, dst, src, f.bias)
		return
	}
	kn.expand8(k/f.group, f.group, dst, src)
}

// compactPacker packs panels of one weight; a thread has its own.
type compactPacker struct {
	m             *matrix
	kn            *kernels
	blocks        []byte    // a row with fields filled
	scale, offset []float32 // [In]
	codes         []float32 // [In]
	panel, tmp    []float32 // what the reference makes of the panel, and room for it
	expanded      []float32
}

func newCompactPacker(kn *kernels, m *matrix) *compactPacker {
	in := m.src.In
	return &compactPacker{
		m: m, kn: kn, blocks: make([]byte, m.row), scale: make([]float32, in), offset: make([]float32, in), codes: make([]float32, in),
		panel: make([]float32, in*panelCols), tmp: make([]float32, panelScratch(in)), expanded: aligned(in * panelCols),
	}
}

// probe unpacks a row after its blocks have been filled.
func (c *compactPacker) probe(dst []float32, row []byte, fills []fill) {
	copy(c.blocks, row)
	_, size := c.m.src.Type.Block()
	for b := 0; b < len(row); b += size {
		for _, f := range fills {
			for i := f.from; i < f.to; i++ {
				c.blocks[b+i] = f.value
			}
		}
	}
	quant.Dequantize(c.m.src.Type, dst, c.blocks)
}

// pack fills compact panel p, which is zero, and tells whether it expands to the exact values.
func (c *compactPacker) pack(p int, dst []float32) bool {
	m, f := c.m, c.m.form
	if f.bits == 16 {
		return c.packHalves(p, dst)
	}
	in := m.src.In
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst))
	block := f.panelBytes(f.group)
	for o := range min(panelCols, m.src.Out-p*panelCols) {
		row := m.rowBytes(p*panelCols + o)
		c.probe(c.codes, row, f.unit)
		c.probe(c.scale, row, f.one)
		if f.zero != nil {
			c.probe(c.offset, row, f.zero)
		}
		for g := range in / f.group {
			k := g * f.group
			scales := dst[g*block/4:]
			scales[o] = c.scale[k]
			scales[panelCols+o] = c.offset[k]
			if f.zero == nil {
				// x*y + -0 is x*y, and keeps the sign of a zero.
				scales[panelCols+o] = float32(math.Copysign(0, -1))
			}
			codes := bytes[g*block+blockScales:][:block-blockScales]
			for i, v := range c.codes[k : k+f.group] {
				if f.bits == 8 {
					codes[i*panelCols+o] = byte(int8(v))
					continue
				}
				half := nibbleBlock / 2
				codes[i%half*panelCols+o] |= byte(v+f.bias) & 15 << (i / half * 4)
			}
		}
	}
	m.pack(p, c.panel, c.tmp)
	f.expand(c.kn, in, ptr(c.expanded, 0), ptr(dst, 0))
	for i, v := range c.panel {
		if math.Float32bits(v) != math.Float32bits(c.expanded[i]) {
			return false
		}
	}
	return true
}

// packHalves fills a panel of 16-bit floats, [kpad][32]. A signalling NaN, which widening would quiet, has to be float32.
func (c *compactPacker) packHalves(p int, dst []float32) bool {
	m := c.m
	panel := unsafe.Slice((*uint16)(unsafe.Pointer(&dst[0])), 2*len(dst))
	for o := range min(panelCols, m.src.Out-p*panelCols) {
		row := m.rowBytes(p*panelCols + o)
		for k := range m.src.In {
			h := binary.LittleEndian.Uint16(row[2*k:])
			const exponent, quiet, payload = 0x7c00, 0x200, 0x1ff
			if !m.form.brain && h&(exponent|quiet) == exponent && h&payload != 0 {
				return false
			}
			panel[k*panelCols+o] = h
		}
	}
	return true
}
