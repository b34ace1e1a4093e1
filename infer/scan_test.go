package infer

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestScanFinite compares the scan with what it should find, value by value.
func TestScanFinite(t *testing.T) {
	plain := func(logits []float32) (int32, bool) {
		best := 0
		for i, l := range logits {
			if l > logits[best] {
				best = i
			}
			if math.IsInf(float64(l), 0) || l != l {
				return 0, false
			}
		}
		return int32(best), len(logits) > 0
	}
	nan := float32(math.NaN())
	odd := []float32{0, float32(math.Copysign(0, -1)), math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32}
	bad := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), nan, float32(math.Copysign(float64(nan), -1))}
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		for range 60 {
			logits := make([]float32, n)
			for i := range logits {
				switch r.IntN(8) {
				case 0:
					logits[i] = odd[r.IntN(len(odd))]
				case 1: // ties
					logits[i] = float32(r.IntN(3))
				default:
					logits[i] = float32(r.NormFloat64())
				}
			}
			if n > 0 && r.IntN(3) == 0 {
				logits[r.IntN(n)] = bad[r.IntN(len(bad))]
			}
			best, finite := scanFinite(logits)
			want, ok := plain(logits)
			if finite != ok || ok && best != want {
				t.Fatalf("%v: token %d, finite %v; want %d, %v", logits, best, finite, want, ok)
			}
		}
	}
}

func BenchmarkScanFinite(b *testing.B) {
	logits := make([]float32, 49152)
	for i := range logits {
		logits[i] = float32(i*7919%1000) / 100
	}
	for b.Loop() {
		scanFinite(logits)
	}
}
