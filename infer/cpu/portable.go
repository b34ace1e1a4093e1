package cpu

import (
	"math"
	"unsafe"
)

// portableStrip is the strip of the portable kernels; any number would do.
const portableStrip = 4

// kernelsPortable is plain Go, for every machine and as the reference of the others.
var kernelsPortable = kernels{
	name: "portable", strip: portableStrip,
	tile: tileGo, addRows: addRowsGo, sumSquares: sumSquaresGo, normRow: normRowGo, siluMul: siluMulGo,
	softmax: softmaxGo, scaleRows: scaleRowsGo, rotate: rotateGo,
	expand8: expand8Go, expand4: expand4Go,
	q8: &qPortable,
}

// floats views n values at p.
func floats(p unsafe.Pointer, n int) []float32 { return unsafe.Slice((*float32)(p), n) }

// at views n values at p plus so many bytes.
func at(p unsafe.Pointer, bytes, n int) []float32 { return floats(unsafe.Add(p, bytes), n) }

// tileGo: C[rows][32] (+)= A x B, one chain of FMAs an element. A is [blocks][strip][16], B rows are ldb bytes apart, C rows
// ldc bytes. add != 0 continues from C.
func tileGo(rows, blocks int, a, b, c unsafe.Pointer, ldb, ldc, add int, _ uintptr, _ int) {
	for r := range rows {
		out := at(c, r*ldc, panelCols)
		if add == 0 {
			clear(out)
		}
		for k := range blocks * lanes {
			x := at(a, (k/lanes*portableStrip+r)*lanes*4, lanes)[k%lanes]
			w := at(b, k*ldb, panelCols)
			for o := range out {
				out[o] = fma32(x, w[o], out[o])
			}
		}
	}
}

// addRowsGo: dst[rows][32] += src[rows][32].
func addRowsGo(rows int, dst, src unsafe.Pointer, ldd int) {
	for r := range rows {
		d, s := at(dst, r*ldd, panelCols), at(src, r*panelCols*4, panelCols)
		for o := range d {
			d[o] += s[o]
		}
	}
}

// fold adds up the lanes by the fixed tree.
func fold(v *[lanes]float32) float32 {
	for half := lanes / 2; half > 0; half /= 2 {
		for i := range half {
			v[i] += v[i+half]
		}
	}
	return v[0]
}

// sumSquaresGo sums the squares of 16*blocks values.
func sumSquaresGo(blocks int, x unsafe.Pointer) float32 {
	var v [lanes]float32
	for i, x := range floats(x, blocks*lanes) {
		v[i%lanes] = fma32(x, x, v[i%lanes])
	}
	return fold(&v)
}

// normRowGo: dst = (x*scale)*w; blocks of 16 of dst are step bytes apart.
func normRowGo(blocks int, dst, x, w unsafe.Pointer, scale float32, step int) {
	xs, ws := floats(x, blocks*lanes), floats(w, blocks*lanes)
	for b := range blocks {
		d := at(dst, b*step, lanes)
		for i := range d {
			d[i] = float32(xs[b*lanes+i]*scale) * ws[b*lanes+i]
		}
	}
}

// siluMulGo: dst = gate/(1+exp(-gate)) * up over [rows][32]; see the generator for dst's layout.
func siluMulGo(rows int, gate, up, dst unsafe.Pointer, step int) {
	g, u := floats(gate, rows*panelCols), floats(up, rows*panelCols)
	for i, x := range g {
		r, o := i/panelCols, i%panelCols
		at(dst, r*lanes*4+o/lanes*step, lanes)[o%lanes] = float32(x/(1+expf32(0-x))) * u[i]
	}
}

// softmaxGo is one page's step of the online softmax; see the generator.
func softmaxGo(rows int, s, p, st unsafe.Pointer, scale float32, step int) {
	states := unsafe.Slice((*state)(st), rows)
	for r := range rows {
		var x [panelCols]float32
		peak := float32(math.Inf(-1))
		for i, v := range at(s, r*panelCols*4, panelCols) {
			x[i] = v * scale
			if x[i] > peak {
				peak = x[i]
			}
		}
		st := &states[r]
		old := st.max
		if peak > old {
			st.max = peak
		}
		st.alpha = expf32(old - st.max)
		var v [lanes]float32
		for half := range 2 {
			d := at(p, r*lanes*4+half*step, lanes)
			for i := range d {
				d[i] = expf32(x[half*lanes+i] - st.max)
				v[i] += d[i] // 0 + the first half is exact
			}
		}
		st.sum = fma32(st.sum, st.alpha, fold(&v))
	}
}

// scaleRowsGo: x[r] *= factor[4*r] over 16*blocks values.
func scaleRowsGo(rows, blocks int, x unsafe.Pointer, ldx int, factor unsafe.Pointer) {
	f := floats(factor, 4*rows)
	for r := range rows {
		if f[4*r] == 1 {
			continue
		}
		for i, v := range at(x, r*ldx, blocks*lanes) {
			at(x, r*ldx, blocks*lanes)[i] = v * f[4*r]
		}
	}
}

// rotateGo: x, y = x*cos - y*sin, y*cos + x*sin over 16*blocks pairs.
func rotateGo(blocks int, x, y, cos, sin unsafe.Pointer) {
	n := blocks * lanes
	rotateSlices(floats(x, n), floats(y, n), floats(cos, n), floats(sin, n))
}

// rotateSlices is rotateGo for any length.
func rotateSlices(x, y, cos, sin []float32) {
	for i, c := range cos {
		a, b, s := x[i], y[i], sin[i]
		x[i] = float32(a*c) - float32(b*s)
		y[i] = float32(b*c) + float32(a*s)
	}
}

// The exponential's constants; internal/gen has the same and says where they come from.
const (
	expMin   = -87
	expMax   = 88
	log2e    = 1.44269504
	expMagic = 12582912 // 1.5 * 2^23
	ln2hi    = 0.693359375
	ln2lo    = -2.12194440e-4
)

var expPoly = [...]float32{
	math.Float32frombits(0x3ab688be), math.Float32frombits(0x3c0905f1), math.Float32frombits(0x3d2aaa8c),
	math.Float32frombits(0x3e2aaa6e), 0.5, 1, 1,
}

// expf32 is e^x with a relative error below 2^-22; exactly 0 below -87 and exactly 1 at 0. NaN stays NaN.
func expf32(x float32) float32 {
	if x < expMin {
		return 0
	}
	if x > expMax {
		x = expMax
	}
	t := fma32(x, log2e, expMagic)
	n := t - expMagic
	r := fma32(-n, ln2hi, x)
	r = fma32(-n, ln2lo, r)
	p := expPoly[0]
	for _, c := range expPoly[1:] {
		p = fma32(p, r, c)
	}
	return math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
}
