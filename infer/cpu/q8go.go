package cpu

import (
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/quant"
)

// qPortable is plain Go, for every machine and as the reference of the others. Its activations are words,
// [strip][blocks][4][32] int16, whatever their width.
var qPortable = qKernels{
	name: "portable", strip: portableStrip, block8: 2 * qBlock * portableStrip, block16: 2 * qBlock * portableStrip, rowStep: 2 * qBlock,
	expandCodes4: func(blocks int, dst, low, high unsafe.Pointer, bias int8) {
		expandCodesGo(4, blocks, dst, low, high, bias)
	},
	expandCodes5: func(blocks int, dst, low, high unsafe.Pointer, bias int8) {
		expandCodesGo(5, blocks, dst, low, high, bias)
	},
	expandCodes6: func(blocks int, dst, low, high unsafe.Pointer, bias int8) {
		expandCodesGo(6, blocks, dst, low, high, bias)
	},
	halves: halvesGo,
	brains: brainsGo,
	subScales: func(supers, groups int, dst, sub, scale unsafe.Pointer) {
		subScalesGo(supers, groups, dst, sub, scale, func(b byte) float32 { return float32(b) })
	},
	subScalesSigned: func(supers, groups int, dst, sub, scale unsafe.Pointer) {
		subScalesGo(supers, groups, dst, sub, scale, func(b byte) float32 { return float32(int8(b)) })
	},
	subMins: func(supers, groups int, dst, sub, scale unsafe.Pointer) {
		subScalesGo(supers, groups, dst, sub, scale, func(b byte) float32 { return -float32(b) })
	},
	quant8:  func(args *quantArgs) { quantGo(args, math.MaxInt8) },
	quant16: func(args *quantArgs) { quantGo(args, math.MaxInt16) },
	gemm8:   func(args *qArgs) { gemmGo(args, 1, false) }, gemm8Min: func(args *qArgs) { gemmGo(args, 1, true) }, gemm8Sub: func(args *qArgs) { gemmGo(args, 2, false) },
	gemm16: func(args *qArgs) { gemmGo(args, 1, false) }, gemm16Min: func(args *qArgs) { gemmGo(args, 1, true) }, gemm16Sub: func(args *qArgs) { gemmGo(args, 2, false) },
}

// expandCodesGo is the portable twin of expandCodes4, 5 and 6: see the generator.
func expandCodesGo(bits, blocks int, dst, low, high unsafe.Pointer, bias int8) {
	upper := codesPerBlock * (bits - 4) / 8 // bytes of upper bits
	for b := range blocks {
		d := unsafe.Slice((*int8)(unsafe.Add(dst, b*codesPerBlock)), codesPerBlock)
		l := unsafe.Slice((*byte)(unsafe.Add(low, b*codesPerBlock/2)), codesPerBlock/2)
		for i, v := range l {
			d[i], d[len(l)+i] = int8(v&15), int8(v>>4)
		}
		if bits > 4 {
			h := unsafe.Slice((*byte)(unsafe.Add(high, b*upper)), upper)
			width := bits - 4
			for i := range d {
				d[i] |= int8(h[i%upper] >> (i / upper * width) & (1<<width - 1) << 4)
			}
		}
		for i := range d {
			d[i] -= bias
		}
	}
}

func halvesGo(vectors int, dst, src unsafe.Pointer) {
	d, s := floats(dst, vectors*panelCols), unsafe.Slice((*uint16)(src), vectors*panelCols)
	for i, h := range s {
		d[i] = quant.HalfToFloat32(h)
	}
}

func brainsGo(vectors int, dst, src unsafe.Pointer) {
	d, s := floats(dst, vectors*panelCols), unsafe.Slice((*uint16)(src), vectors*panelCols)
	for i, h := range s {
		d[i] = math.Float32frombits(uint32(h) << 16)
	}
}

func subScalesGo(supers, groups int, dst, sub, scale unsafe.Pointer, value func(byte) float32) {
	d := floats(dst, supers*groups*panelCols)
	s := unsafe.Slice((*byte)(sub), supers*groups*panelCols)
	h := unsafe.Slice((*uint16)(scale), supers*panelCols)
	for i, b := range s {
		d[i] = quant.HalfToFloat32(h[i/panelCols/groups*panelCols+i%panelCols]) * value(b)
	}
}

// smallestMagnitude is where a block's values begin to count as zero: the inverse of a smaller magnitude could be infinite.
const smallestMagnitude = 0x1p-100

// blockScale gives the scale of a block whose largest magnitude is peak, and its inverse, for integers of at most most.
func blockScale(peak, most float32) (scale, inverse float32) {
	switch {
	case peak < smallestMagnitude:
		return 0, 0
	case peak-peak != 0: // an infinity or NaN
		return float32(math.NaN()), 0
	}
	return peak / most, most / peak
}

// roundEven rounds to an integer, half to even.
func roundEven(x float32) int32 { return int32(math.RoundToEven(float64(x))) }

// quantGo is the portable twin of quant8 and quant16: see the generator.
func quantGo(args *quantArgs, most float32) {
	for i := range args.count {
		src := unsafe.Add(args.src, i*args.stride)
		lo, hi := floats(src, lanes), at(src, args.half, lanes)
		peak := float32(0)
		for _, half := range [][]float32{lo, hi} {
			for _, v := range half {
				if b := math.Float32bits(v) &^ (1 << 31); b > math.Float32bits(peak) { // as bits, since NaN has to count
					peak = math.Float32frombits(b)
				}
			}
		}
		scale, inverse := blockScale(peak, most)
		dst := unsafe.Slice((*int16)(unsafe.Add(args.dst, i*args.step)), qBlock)
		sum := int32(0)
		for j := range lanes {
			dst[j], dst[lanes+j] = int16(roundEven(lo[j]*inverse)), int16(roundEven(hi[j]*inverse))
			sum += int32(dst[j]) + int32(dst[lanes+j])
		}
		*(*float32)(unsafe.Add(args.scale, i*args.scaleStep)) = scale
		*(*float32)(unsafe.Add(args.s1, i*args.scaleStep)) = float32(sum) * scale
		*(*int32)(unsafe.Add(args.sums, i*args.scaleStep)) = sum
	}
}

// pointer makes an address of qArgs a pointer again.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// gemmGo is the portable twin of all products.
func gemmGo(args *qArgs, groups int, min bool) {
	var dots [panelCols]int32
	per := qBlock / groups
	for r := range args.rows {
		strip, row := r/portableStrip, r%portableStrip
		out := at(pointer(args.c), r*args.ldc, panelCols)
		clear(out)
		for b := range args.blocks {
			a := unsafe.Slice((*int16)(unsafe.Add(pointer(args.a), strip*args.aStrip+(b*portableStrip+row)*2*qBlock)), qBlock)
			codes := unsafe.Slice((*int8)(unsafe.Add(pointer(args.b), b*codesPerBlock)), codesPerBlock)
			sa := at(pointer(args.sa), strip*args.sStrip+b*portableStrip*4, portableStrip)[row]
			for g := range groups {
				clear(dots[:])
				for k := g * per; k < (g+1)*per; k++ {
					x := int32(a[k])
					for o := range dots {
						dots[o] += x * int32(codes[k/4*4*panelCols+4*o+k%4])
					}
				}
				sw := at(pointer(args.sw), (b*groups+g)*panelCols*4, panelCols)
				for o, d := range dots {
					out[o] = fma32(float32(d)*sw[o], sa, out[o])
				}
			}
			if min {
				s1 := at(pointer(args.s1), strip*args.sStrip+b*portableStrip*4, portableStrip)[row]
				m := at(pointer(args.min), b*panelCols*4, panelCols)
				for o := range out {
					out[o] = fma32(m[o], s1, out[o])
				}
			}
		}
	}
}
