package cpu

import (
	"math"
	"testing"
)

func TestSincos(t *testing.T) {
	worst := 0.0
	for i := range 400000 {
		x := float64(i) * 0.37
		if i%3 == 0 {
			x = float64(i%131072) * math.Pow(10000, -float64(i%32)/32)
		}
		if i%5 == 0 {
			x = -x
		}
		s, c := sincos(x)
		ws, wc := math.Sincos(x)
		worst = max(worst, math.Abs(s-ws), math.Abs(c-wc))
	}
	if worst > 1.0/(1<<48) {
		t.Errorf("the largest error is %g", worst)
	}
	if s, c := sincos(0); s != 0 || c != 1 {
		t.Errorf("at 0: %g, %g", s, c)
	}
}

func BenchmarkSincos(b *testing.B) {
	x := 0.0
	for b.Loop() {
		s, _ := sincos(x)
		x += 1 + s
	}
}
