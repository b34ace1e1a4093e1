package model

import (
	"math"
	"slices"
	"testing"
)

func TestRootPowers(t *testing.T) {
	for _, theta := range []float64{10000, 100000, 500000, 1e6, 5e7, 1.5} {
		for _, n := range []int{1, 8, 32, 48, 64, 128} {
			f := make([]float64, n)
			rootPowers(f, theta)
			for i, got := range f {
				if want := math.Pow(theta, -float64(i)/float64(n)); math.Abs(got-want) > 1e-14*want {
					t.Errorf("%g^(-%d/%d) = %g, want %g", theta, i, n, got, want)
				}
			}
		}
	}
}

// TestRopeBands checks the scalings where their effect is plain: short waves stay, long ones are slowed by the factor.
func TestRopeBands(t *testing.T) {
	for _, kind := range []string{"llama3", "yarn", "linear"} {
		r := ropeParams{kind: kind, theta: 10000, dim: 64, factor: 8, original: 256, lowFreq: 1, highFreq: 4}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		scaled, err := r.table(nil)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := (&ropeParams{theta: 10000, dim: 64}).table(nil)
		if err != nil {
			t.Fatal(err)
		}
		var ratios []float64
		for i := range plain.InvFreq {
			ratios = append(ratios, plain.InvFreq[i]/scaled.InvFreq[i])
		}
		first, last := 1.0, 8.0
		if kind == "linear" {
			first = 8
		}
		if math.Abs(ratios[0]-first) > 1e-9 || math.Abs(ratios[31]-last) > 1e-9 || !slices.IsSorted(ratios) {
			t.Errorf("%s slows the waves by %v", kind, ratios)
		}
		if scale := 0.1*math.Log(8) + 1; kind == "yarn" && math.Abs(scaled.Scale-scale) > 1e-12 {
			t.Errorf("yarn scales by %g, want %g", scaled.Scale, scale)
		}
	}
}
