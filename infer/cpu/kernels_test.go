package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// eachFast runs a test for every instruction set of this machine but the portable one, the reference.
func eachFast(t *testing.T, f func(t *testing.T, k *kernels)) {
	t.Helper()
	ran := 0
	for _, k := range available() {
		if k.name != kernelsPortable.name {
			t.Run(k.name, func(t *testing.T) { f(t, k) })
			ran++
		}
	}
	if ran == 0 {
		t.Skip("this machine has the portable kernels only: nothing to compare")
	}
}

// awkward are values that find double roundings, lost signs and overflow.
var awkward = []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1e-38, -1e-38, 1e-45, 3e38, -3e38, 1.0000001, 16777216, 16777217, 0.33333334}

func random(r *rand.Rand, n int, scale float64) []float32 {
	s := aligned(n)
	for i := range s {
		s[i] = float32(r.NormFloat64() * scale)
		if r.IntN(64) == 0 {
			s[i] = awkward[r.IntN(len(awkward))]
		}
	}
	return s
}

// same compares bits; all NaNs are equal.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s: value %d: got %g (%08x), want %g (%08x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// restrip moves packed activations from one strip height to another.
func restrip(src []float32, from, to, rows, blocks int) []float32 {
	dst := aligned(blocks * to * lanes)
	for b := range blocks {
		for r := range rows {
			copy(dst[(b*to+r)*lanes:][:lanes], src[(b*from+r)*lanes:])
		}
	}
	return dst
}

func TestTileEqualsPortable(t *testing.T) {
	eachFast(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(1, 2))
		for rows := 1; rows <= k.strip; rows++ {
			for _, blocks := range []int{1, 2, 5, 12} {
				for _, add := range []int{0, 1} {
					ldb, ldc := 32+16*r.IntN(3), 32+16*r.IntN(3)
					a := random(r, blocks*maxStrip*lanes, 1)
					b := random(r, blocks*lanes*ldb, 1)
					c := random(r, rows*ldc, 1)
					want := aligned(len(c))
					copy(want, c)
					k.tile(rows, blocks, ptr(restrip(a, maxStrip, k.strip, rows, blocks), 0), ptr(b, 0), ptr(c, 0), ldb*4, ldc*4, add, 0, 0)
					for first := 0; first < rows; first += portableStrip {
						n := min(portableStrip, rows-first)
						tileGo(n, blocks, ptr(restrip(a[first*lanes:], maxStrip, portableStrip, n, blocks), 0), ptr(b, 0), ptr(want, first*ldc), ldb*4, ldc*4, add, 0, 0)
					}
					same(t, "tile", c, want)
				}
			}
		}
	})
}

func TestVectorKernelsEqualPortable(t *testing.T) {
	eachFast(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(3, 4))
		for round := range 50 {
			rows, blocks := 1+r.IntN(k.strip), 1+r.IntN(9)
			scale := []float64{1, 20, 1e-3}[round%3]

			x, w := random(r, blocks*lanes, scale), random(r, blocks*lanes, 1)
			same(t, "sumSquares", []float32{k.sumSquares(blocks, ptr(x, 0))}, []float32{sumSquaresGo(blocks, ptr(x, 0))})

			got, want := aligned(blocks*k.strip*lanes), aligned(blocks*k.strip*lanes)
			k.normRow(blocks, ptr(got, 0), ptr(x, 0), ptr(w, 0), 0.7, k.stripBytes())
			normRowGo(blocks, ptr(want, 0), ptr(x, 0), ptr(w, 0), 0.7, k.stripBytes())
			same(t, "normRow", got, want)

			gate, up := random(r, rows*panelCols, scale*4), random(r, rows*panelCols, scale)
			got, want = aligned(2*k.strip*lanes), aligned(2*k.strip*lanes)
			k.siluMul(rows, ptr(gate, 0), ptr(up, 0), ptr(got, 0), k.stripBytes())
			siluMulGo(rows, ptr(gate, 0), ptr(up, 0), ptr(want, 0), k.stripBytes())
			same(t, "siluMul", got, want)

			ld := 32 + 16*r.IntN(3)
			got, want = random(r, rows*ld, 1), aligned(rows*ld)
			copy(want, got)
			k.addRows(rows, ptr(got, 0), ptr(gate, 0), ld*4)
			addRowsGo(rows, ptr(want, 0), ptr(gate, 0), ld*4)
			same(t, "addRows", got, want)

			cos, sin := random(r, blocks*lanes, 1), random(r, blocks*lanes, 1)
			gx, gy := random(r, blocks*lanes, 1), random(r, blocks*lanes, 1)
			wx, wy := append([]float32{}, gx...), append([]float32{}, gy...)
			k.rotate(blocks, ptr(gx, 0), ptr(gy, 0), ptr(cos, 0), ptr(sin, 0))
			rotateGo(blocks, ptr(wx, 0), ptr(wy, 0), ptr(cos, 0), ptr(sin, 0))
			same(t, "rotate x", gx, wx)
			same(t, "rotate y", gy, wy)
		}
	})
}

func TestSoftmaxEqualsPortable(t *testing.T) {
	eachFast(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(5, 6))
		for range 40 {
			rows, blocks := 1+r.IntN(k.strip), 1+r.IntN(4)
			var got, want [maxStrip]state
			for i := range got {
				got[i] = state{max: maskedMax}
			}
			want = got
			ga, wa := random(r, rows*blocks*lanes, 1), aligned(rows*blocks*lanes)
			copy(wa, ga)
			for range 4 {
				s := random(r, rows*panelCols, 10)
				for i := range s {
					if r.IntN(3) == 0 {
						s[i] = float32(math.Inf(-1))
					}
				}
				masked := r.IntN(rows)
				for i := range panelCols {
					s[masked*panelCols+i] = float32(math.Inf(-1))
				}
				gp, wp := aligned(2*k.strip*lanes), aligned(2*k.strip*lanes)
				k.softmax(rows, ptr(s, 0), ptr(gp, 0), unsafe.Pointer(&got), 0.125, k.stripBytes())
				softmaxGo(rows, ptr(s, 0), ptr(wp, 0), unsafe.Pointer(&want), 0.125, k.stripBytes())
				same(t, "probabilities", gp, wp)
				for i := range rows {
					same(t, "state", []float32{got[i].max, got[i].sum, got[i].alpha}, []float32{want[i].max, want[i].sum, want[i].alpha})
					for j := range panelCols {
						if math.IsInf(float64(s[i*panelCols+j]), -1) && gp[j/lanes*k.strip*lanes+i*lanes+j%lanes] != 0 {
							t.Fatal("a masked key has a probability")
						}
					}
				}
				if got[masked].alpha != 1 {
					t.Fatalf("a page that is masked for a row corrects it by %g", got[masked].alpha)
				}
				k.scaleRows(rows, blocks, ptr(ga, 0), blocks*lanes*4, unsafe.Pointer(&got[0].alpha))
				scaleRowsGo(rows, blocks, ptr(wa, 0), blocks*lanes*4, unsafe.Pointer(&want[0].alpha))
				same(t, "scaleRows", ga, wa)
			}
		}
	})
}

// TestExponential holds the polynomial to the true one, and the vectors to it through siluMul above.
func TestExponential(t *testing.T) {
	worst := 0.0
	for x := float32(-86.9); x < 87.9; x += 0.00391 {
		want := math.Exp(float64(x))
		worst = max(worst, math.Abs(float64(expf32(x))-want)/want)
	}
	if worst > 1.0/(1<<22) {
		t.Errorf("relative error %g, want below 2^-22", worst)
	}
	if expf32(0) != 1 || expf32(-88) != 0 || expf32(float32(math.Inf(-1))) != 0 {
		t.Errorf("exp(0), exp(-88), exp(-inf) = %g, %g, %g", expf32(0), expf32(-88), expf32(float32(math.Inf(-1))))
	}
	if x := expf32(float32(math.NaN())); x == x {
		t.Errorf("exp(NaN) = %g", x)
	}
}

// TestFMA32 compares with arbitrary precision on values that are likely to fall on the border of two float32.
func TestFMA32(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 300000 {
		x := math.Float32frombits(r.Uint32())
		y := math.Float32frombits(r.Uint32())
		z := math.Float32frombits(r.Uint32())
		if r.IntN(2) == 0 { // near cancellation and near half a unit
			x = float32(r.IntN(1<<13)) + 1
			y = float32(r.IntN(1<<12)) + 0.5
			z = float32(math.Ldexp(float64(1+r.IntN(1<<24)), r.IntN(80)-60))
			if r.IntN(2) == 0 {
				z = -z
			}
		}
		if x != x || y != y || z != z {
			continue
		}
		checkFMA(t, x, y, z)
	}
	// The border case that rounding twice gets wrong: 1 + 2^-24 + a bit is above the middle, but 53 bits lose the bit.
	checkFMA(t, float32(math.Ldexp(1, -60)), 1, 1)
	checkFMA(t, 1+1.0/(1<<23), 1+1.0/(1<<23), float32(math.Ldexp(1, 60)))
	checkFMA(t, float32(math.Ldexp(1, -75)), float32(math.Ldexp(1, -75)), 1e-45)
}
