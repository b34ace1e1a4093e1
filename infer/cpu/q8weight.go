package cpu

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/batchmill/batchmill/infer/quant"
)

// qLayout says where the parts of a stored panel lie, in bytes from its start:
//
//	codes   [blocks][1024] signed bytes, or [blocks][512] bytes with the lower four bits of two codes each (see expandCodes)
//	high    [blocks][128 or 256]: the fifth bits, or the fifth and sixth, of codes of 5 and 6 bits
//	sub     [blocks][1 or 2][32] and subMin [blocks][32]: the small integers of types with Super
//	scale   float16 [blocks][32], or with Super one for 8 blocks; min: the same
type qLayout struct {
	form                                 quant.Form
	blocks                               int
	high, sub, subMin, scale, min, total int
}

func newQLayout(f quant.Form, kpad int) qLayout {
	l := qLayout{form: f, blocks: kpad / qBlock}
	at := l.blocks * codesPerBlock
	if f.Bits < 8 {
		at /= 2
	}
	l.high = at
	if f.Bits > 4 && f.Bits < 8 {
		at += l.blocks * codesPerBlock * (f.Bits - 4) / 8
	}
	scales := l.blocks
	if f.Super {
		l.sub = at
		at += l.blocks * (qBlock / f.Group) * panelCols
		l.subMin = at
		if f.Min {
			at += l.blocks * panelCols
		}
		scales = l.blocks / (quant.SuperBlock / qBlock)
	}
	l.scale = at
	at += scales * panelCols * 2
	l.min = at
	if f.Min {
		at += scales * panelCols * 2
	}
	l.total = roundUp(at, cacheLine)
	return l
}

// groups is the number of scales of a block.
func (l *qLayout) groups() int { return qBlock / l.form.Group }

// qPacker packs stored panels of one weight; a thread has its own.
type qPacker struct {
	m     *matrix
	parts *quant.Parts
}

// pack fills stored panel p, which is zero. False: a scale or minimum is not finite, which the integer arithmetic does not give
// as the reference does.
func (c *qPacker) pack(p int, panel []byte) bool {
	m := c.m
	l := &m.q
	halves := unsafe.Slice((*uint16)(unsafe.Pointer(&panel[0])), len(panel)/2)
	for o := range min(panelCols, m.src.Out-p*panelCols) {
		m.src.Type.Split(c.parts, m.rowBytes(p*panelCols+o))
		for i := range c.parts.Scale {
			halves[l.scale/2+i*panelCols+o] = c.parts.Scale[i]
			if !finiteHalf(c.parts.Scale[i]) {
				return false
			}
			if l.form.Min {
				halves[l.min/2+i*panelCols+o] = c.parts.Min[i]
				if !finiteHalf(c.parts.Min[i]) {
					return false
				}
			}
		}
		for i, s := range c.parts.SubScale {
			panel[l.sub+i*panelCols+o] = s
		}
		for i, s := range c.parts.SubMin {
			panel[l.subMin+i*panelCols+o] = s
		}
		l.packCodes(panel, o, c.parts.Codes)
	}
	return true
}

// finiteHalf tells whether a float16 is neither an infinity nor NaN.
func finiteHalf(h uint16) bool { return h>>10&31 != 31 }

// packCodes puts the codes of output o in their places.
func (l *qLayout) packCodes(panel []byte, o int, codes []byte) {
	for k, v := range codes {
		block, i := k/qBlock, k%qBlock/4*4*panelCols+4*o+k%4 // code i of the block
		if l.form.Bits == 8 {
			panel[block*codesPerBlock+i] = v
			continue
		}
		const half = codesPerBlock / 2
		panel[block*half+i%half] |= v & 15 << (i / half * 4)
		if width := l.form.Bits - 4; width > 0 {
			upper := codesPerBlock * width / 8
			panel[l.high+block*upper+i%upper] |= v >> 4 << (i / upper * width)
		}
	}
}

// storeAll packs all panels of a quantised weight on all threads. A streamed one is packed too, but not kept. False: it has a scale
// that is not finite, and has to be multiplied as float32.
func (d *Device) storeAll(ctx context.Context, m *matrix) (ok bool, err error) {
	var stored []float32
	free := func() {}
	if !m.src.Streamed {
		if stored, free, err = d.weights.allocate(m.panels * m.q.total / 4); err != nil {
			return false, fmt.Errorf("load %s: %w", m.src.Name, err)
		}
	}
	ok, err = d.eachPanel(ctx, m.panels, func() func(p int) bool {
		c := qPacker{m: m, parts: m.src.Type.NewParts(m.src.In)}
		var panel []float32
		if stored == nil {
			panel = aligned(m.q.total / 4)
		}
		return func(p int) bool {
			if stored != nil {
				panel = stored[p*m.q.total/4:][:m.q.total/4]
			} else {
				clear(panel)
			}
			return c.pack(p, bytesOf(panel))
		}
	})
	if !ok {
		free()
		return false, err
	}
	m.stored, m.free = stored, free
	if stored != nil {
		m.src.Data, m.src.Rows = nil, nil
	}
	return true, nil
}

// bytesOf views float32 values as bytes.
func bytesOf(s []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), 4*len(s)) }

// storedPanel gives panel p as it is stored; of a streamed weight it is packed in w.
func (m *matrix) storedPanel(w *qScratchpad, p int) unsafe.Pointer {
	if m.stored != nil {
		return ptr(m.stored, p*m.q.total/4)
	}
	if len(w.stored) < m.q.total/4 {
		w.stored = aligned(m.q.total / 4)
	}
	panel := w.stored[:m.q.total/4]
	clear(panel)
	c := qPacker{m: m, parts: m.src.Type.NewParts(m.src.In)}
	c.pack(p, bytesOf(panel))
	return ptr(panel, 0)
}

// qPanel is a panel that is ready for a product, with the memory for it.
type qPanel struct {
	codes   unsafe.Pointer
	scratch qPanelScratch
}

// qPanelScratch is what one panel is expanded into.
type qPanelScratch struct {
	codes []float32 // bytes in aligned memory
	sw    []float32 // [blocks][groups][32]
	min   []float32 // [blocks][32]
	sums  []float32 // int32 [blocks][groups][32]
	words []float32 // 16-bit codes
}

// grow makes room for a panel.
func (s *qPanelScratch) grow(l *qLayout, k *qKernels) {
	n := l.blocks * panelCols
	if len(s.codes) < l.blocks*codesPerBlock/4 {
		s.codes, s.min = aligned(l.blocks*codesPerBlock/4), aligned(n)
	}
	if k.widen != nil && len(s.words) < l.blocks*codesPerBlock/2 {
		s.words = aligned(l.blocks * codesPerBlock / 2)
	}
	if len(s.sw) < n*l.groups() {
		s.sw, s.sums = aligned(n*l.groups()), aligned(n*l.groups())
	}
}

// sumStart is where integer sums start that are to be read as float32: the bits of 1.5*2^23. What is added to them counts in units of the
// last place.
const sumStart = 0x4b400000

// expand readies stored panel p. wide says that activations have 16 bits.
func (q *qPanel) expand(k *qKernels, l *qLayout, stored unsafe.Pointer, wide bool) {
	s := &q.scratch
	s.grow(l, k)
	f := l.form
	nibbles := k.nibblesFor(f, wide)
	q.codes = stored
	if f.Bits < 8 {
		bias := int8(f.Bias)
		if nibbles {
			bias = 0
		}
		q.codes = ptr(s.codes, 0)
		high := unsafe.Add(stored, l.high)
		switch f.Bits {
		case 4:
			k.expandCodes4(l.blocks, q.codes, stored, high, bias)
		case 5:
			k.expandCodes5(l.blocks, q.codes, stored, high, bias)
		case 6:
			k.expandCodes6(l.blocks, q.codes, stored, high, bias)
		}
	}
	scale, min := unsafe.Add(stored, l.scale), unsafe.Add(stored, l.min)
	switch {
	case !f.Super:
		k.halves(l.blocks, ptr(s.sw, 0), scale)
		if f.Min {
			k.halves(l.blocks, ptr(s.min, 0), min)
		}
	default:
		per := quant.SuperBlock / f.Group
		sub := unsafe.Add(stored, l.sub)
		if f.Min {
			k.subScales(l.blocks*l.groups()/per, per, ptr(s.sw, 0), sub, scale)
			k.subMins(l.blocks/per, per, ptr(s.min, 0), unsafe.Add(stored, l.subMin), min)
		} else {
			k.subScalesSigned(l.blocks*l.groups()/per, per, ptr(s.sw, 0), sub, scale)
		}
	}
	if k.codeSums != nil {
		start := int32(sumStart)
		if wide { // sums of 16-bit activations may have more than 22 bits
			start = 0
		}
		k.codeSums(l.blocks*l.groups(), qBlock/4/l.groups(), ptr(s.sums, 0), q.codes, start)
	}
	if k.widen != nil && !nibbles {
		k.widen(l.blocks*qBlock/4, ptr(s.words, 0), q.codes)
		q.codes = ptr(s.words, 0)
	}
}

// floatPanel makes the float32 panel, [kpad][32], of a stored one: for the rare product that needs it.
func (l *qLayout) floatPanel(stored unsafe.Pointer, dst []float32) {
	var q qPanel
	q.expand(&qPortable, l, stored, false)
	codes := unsafe.Slice((*int8)(q.codes), l.blocks*codesPerBlock)
	for i := range dst {
		k, o := i/panelCols, i%panelCols
		v := float32(codes[k/4*4*panelCols+4*o+k%4])
		sw := q.scratch.sw[k/l.form.Group*panelCols+o]
		if l.form.Min {
			dst[i] = fma32(v, sw, q.scratch.min[k/qBlock*panelCols+o])
		} else {
			dst[i] = v * sw
		}
	}
}
