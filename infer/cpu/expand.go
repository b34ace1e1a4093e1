package cpu

import "unsafe"

// A compact panel is [blocks] of: 32 scales and 32 offsets (float32), then the codes of its k, [k][32] signed bytes or half
// as many bytes of two 4-bit codes each. A value is fma(scale, code, offset).
const (
	blockScales = 2 * panelCols * 4 // bytes of a block's scales and offsets
	nibbleBlock = 32                // k of a block of 4-bit codes
)

// expand8Go is the portable twin of expand8: see the generator.
func expand8Go(blocks, group int, dst, src unsafe.Pointer) {
	for range blocks {
		scale, offset := at(src, 0, panelCols), at(src, blockScales/2, panelCols)
		codes := unsafe.Slice((*int8)(unsafe.Add(src, blockScales)), group*panelCols)
		d := floats(dst, group*panelCols)
		for i, c := range codes {
			d[i] = fma32(scale[i%panelCols], float32(c), offset[i%panelCols])
		}
		src = unsafe.Add(src, blockScales+group*panelCols)
		dst = unsafe.Add(dst, group*panelCols*4)
	}
}

// expand4Go is the portable twin of expand4: see the generator.
func expand4Go(blocks int, dst, src unsafe.Pointer, bias float32) {
	const half = nibbleBlock / 2 * panelCols
	for range blocks {
		scale, offset := at(src, 0, panelCols), at(src, blockScales/2, panelCols)
		codes := unsafe.Slice((*byte)(unsafe.Add(src, blockScales)), half)
		d := floats(dst, 2*half)
		for i, c := range codes {
			o := i % panelCols
			d[i] = fma32(scale[o], float32(c&15)-bias, offset[o])
			d[half+i] = fma32(scale[o], float32(c>>4)-bias, offset[o])
		}
		src = unsafe.Add(src, blockScales+half)
		dst = unsafe.Add(dst, 2*half*4)
	}
}
