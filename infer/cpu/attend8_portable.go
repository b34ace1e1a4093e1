package cpu

import (
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// kernels8Portable is plain Go, for every machine and as the reference of the others.
var kernels8Portable = kernels8{
	name: "portable", quantise: quantise8Go, place: place8Go,
	steps8: steps8{scores: scores8Go, softmax: softmax8Go, values: values8Go, add: add8Go}, finish: finish8Go,
}

// codes views n codes at p plus so many bytes.
func codes(p unsafe.Pointer, bytes, n int) []int8 {
	return unsafe.Slice((*int8)(unsafe.Add(p, bytes)), n)
}

// ints views n sums at p plus so many bytes.
func ints(p unsafe.Pointer, bytes, n int) []int32 {
	return unsafe.Slice((*int32)(unsafe.Add(p, bytes)), n)
}

// roundCode is x rounded half to even; NaN gives 0.
func roundCode(x float32) int32 {
	if x != x {
		return 0
	}
	return int32(math.RoundToEven(float64(x)))
}

// quantise8Go: scale = amax/127 and codes = x*(127/amax). An infinity or NaN makes the scale NaN, and all codes 0.
func quantise8Go(blocks int, dst, x unsafe.Pointer, out *quantised) {
	n := blocks * lanes
	var peak uint32
	for _, v := range floats(x, n) {
		peak = max(peak, math.Float32bits(v)&^(1<<31))
	}
	d := codes(dst, 0, n)
	*out = quantised{}
	amax := math.Float32frombits(peak)
	if peak >= math.Float32bits(float32(math.Inf(1))) || amax < tiny {
		clear(d)
		if !(amax < tiny) {
			out.scale = float32(math.NaN())
		}
		return
	}
	out.scale = amax / codeMax
	inverse := codeMax / amax
	for i, v := range floats(x, n) {
		c := roundCode(v * inverse)
		d[i] = int8(c)
		out.sum += c
	}
}

func place8Go(dim int, k, v, keys, values unsafe.Pointer, at int) {
	for j, c := range codes(k, 0, dim) {
		codes(keys, j/quadWidth*device.PageTokens*quadWidth, quadWidth)[j%quadWidth] = c
	}
	for j, c := range codes(v, 0, dim) {
		codes(values, j*quadWidth, quadWidth)[at] = c
	}
}

func scores8Go(rows, pages, dim, ldq int, q unsafe.Pointer, span *span8, s unsafe.Pointer, _ *rows8) {
	const page = device.PageTokens
	for r := range rows {
		query := codes(q, r*ldq, dim)
		for p := range pages {
			k := codes(span[p], 0, dim*page)
			out := ints(s, (r*spanTokens+p*page)*4, page)
			for t := range out {
				var sum int32
				for i, c := range query {
					sum += int32(c) * int32(k[(i/quadWidth*page+t)*quadWidth+i%quadWidth])
				}
				out[t] = sum
			}
		}
	}
}

func softmax8Go(rows, pages, scales int, s, p unsafe.Pointer, span *span8, st *rows8, masked int) {
	for r := range rows {
		n := pages * device.PageTokens
		low, high := 0, n
		if masked != maskNone {
			high = int(st.high[r])
		}
		if masked == maskBoth {
			low = int(st.low[r])
		}
		seen := func(i int) bool { return low <= i && i < high }
		scale := func(i, which int) float32 {
			return at(span[i/device.PageTokens], scales+which*4*device.PageTokens, device.PageTokens)[i%device.PageTokens]
		}
		var u [spanTokens]float32
		peak := float32(math.Inf(-1))
		for i, v := range ints(s, r*spanTokens*4, n) {
			if u[i] = float32(v) * scale(i, 0); !seen(i) {
				u[i] = float32(math.Inf(-1))
			}
			if u[i] > peak {
				peak = u[i]
			}
		}
		old := st.max[r]
		if peak *= st.c[r]; peak > old {
			st.max[r] = peak
		}
		st.alpha[r] = exp2f32(old - st.max[r])
		var sums [lanes]float32
		var top uint32
		for i := range n {
			var e, w float32
			if seen(i) {
				e = exp2f32(float32(u[i]*st.c[r]) - st.max[r])
				w = e * scale(i, 1)
			}
			sums[i%lanes] += e // 0 + the first is exact
			u[i] = w
			top = max(top, math.Float32bits(w))
		}
		st.sum[r] = fma32(st.sum[r], st.alpha[r], fold(&sums))
		st.inverse[r], st.scale[r] = 0, 0
		if amax := math.Float32frombits(top); !(amax < tiny) {
			st.inverse[r], st.scale[r] = codeMax/amax, amax/codeMax
		}
		d := codes(p, r*spanTokens, n)
		for i := range d {
			d[i] = int8(roundCode(u[i] * st.inverse[r]))
		}
	}
}

func values8Go(rows, pages, dim int, p unsafe.Pointer, span *span8, o unsafe.Pointer) {
	const page = device.PageTokens
	for r := range rows {
		out := ints(o, r*dim*4, dim)
		clear(out)
		for i, c := range codes(p, r*spanTokens, pages*page) {
			if c == 0 {
				continue
			}
			v := codes(span[i/page], valuesAt(dim), dim*page)
			for j := range out {
				out[j] += int32(c) * int32(v[(i%page/quadWidth*dim+j)*quadWidth+i%quadWidth])
			}
		}
	}
}

func add8Go(rows, dim int, o, acc unsafe.Pointer, st *rows8) {
	for r := range rows {
		if st.alpha[r] == 1 && math.Float32bits(st.scale[r]) == 0 {
			continue
		}
		a := at(acc, r*dim*4, dim)
		for j, v := range ints(o, r*dim*4, dim) {
			a[j] = fma32(float32(v), st.scale[r], float32(a[j]*st.alpha[r]))
		}
	}
}

func finish8Go(rows, blocks, lda int, acc unsafe.Pointer, st *rows8, dst *unsafe.Pointer) {
	for r, to := range unsafe.Slice(dst, rows) {
		factor := 1 / st.sum[r]
		out := floats(to, blocks*lanes)
		for i, v := range at(acc, r*lda, len(out)) {
			out[i] = v * factor
		}
	}
}

// exp2Min is the least exponent of exp2f32: 2^-127 comes out as exactly 0.
const exp2Min = -127

// exp2Poly is 2^x on [-1/2, 1/2] with a relative error of 2.9e-6, the least of degree 4 among those with 1 at 0.
var exp2Poly = [...]float32{
	math.Float32frombits(0x3c1d0178), math.Float32frombits(0x3d64fe2e), math.Float32frombits(0x3e7601bc), math.Float32frombits(0x3f317096), 1,
}

// exp2f32 is 2^x for x up to 0: exactly 1 at 0, and exactly 0 from -127 down. NaN stays NaN.
func exp2f32(x float32) float32 {
	if x < exp2Min {
		x = exp2Min
	}
	t := x + expMagic
	f := x - (t - expMagic)
	p := exp2Poly[0]
	for _, c := range exp2Poly[1:] {
		p = fma32(p, f, c)
	}
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}
