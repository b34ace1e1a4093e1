package cpu

import (
	"math"
	"math/big"
	"testing"
)

// checkFMA compares fma32 with exact arithmetic.
func checkFMA(t *testing.T, x, y, z float32) {
	t.Helper()
	got := fma32(x, y, z)
	for _, v := range []float32{x, y, z} {
		if math.IsInf(float64(v), 0) {
			want := float32(float64(x)*float64(y) + float64(z))
			if got != want && !(got != got && want != want) {
				t.Fatalf("fma32(%g, %g, %g) = %g, want %g", x, y, z, got, want)
			}
			return
		}
	}
	exact := new(big.Float).SetPrec(2000).SetFloat64(float64(x))
	exact.Mul(exact, new(big.Float).SetPrec(2000).SetFloat64(float64(y)))
	exact.Add(exact, new(big.Float).SetPrec(2000).SetFloat64(float64(z)))
	want, _ := exact.Float32()
	if got != want { // zeros of either sign are equal here; the tile tests compare signs
		t.Fatalf("fma32(%g, %g, %g) = %g (%08x), want %g (%08x)", x, y, z, got, math.Float32bits(got), want, math.Float32bits(want))
	}
}
