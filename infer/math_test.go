package infer

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestExpNeg(t *testing.T) {
	if expNeg(0) != 1 || expNeg(math.Inf(-1)) != 0 || expNeg(-701) != 0 || expNeg(math.NaN()) != 0 {
		t.Errorf("exp at its borders: %v %v %v %v", expNeg(0), expNeg(math.Inf(-1)), expNeg(-701), expNeg(math.NaN()))
	}
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for i := range 300_000 {
		x := -r.Float64() * []float64{1e-9, 0.01, 1, 30, 700}[i%5]
		want := math.Exp(x)
		worst = max(worst, math.Abs(expNeg(x)-want)/want)
	}
	if worst > 6e-16 { // ours and the library's error together
		t.Errorf("relative error %g", worst)
	}
}

func TestExpNegIsMonotonic(t *testing.T) {
	// Selection by probability relies on a smaller logit never getting a larger weight, also across table steps.
	for step := range 4000 {
		x := -float64(step) * math.Ln2 / 512
		a, b, c := expNeg(x-1e-9), expNeg(x), expNeg(min(x+1e-9, 0))
		if a > b || b > c {
			t.Fatalf("exp falls around %v: %v %v %v", x, a, b, c)
		}
	}
}

func TestExpScaledIsExpNeg(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	logits := make([]float32, 5000)
	best := float32(math.Inf(-1))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 40)
		best = max(best, logits[i])
	}
	logits[17] = float32(math.Inf(-1))
	dst := make([]float64, len(logits))
	for _, inverse := range []float64{1, 1 / 0.7, 50} {
		expScaled(dst, logits, best, inverse)
		for i, l := range logits {
			if want := expNeg(float64((float64(l) - float64(best)) * inverse)); dst[i] != want {
				t.Fatalf("logit %v: %v, want %v", l, dst[i], want)
			}
		}
	}
}

func TestLogPos(t *testing.T) {
	if logPos(1) != 0 {
		t.Errorf("log(1) = %v", logPos(1))
	}
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 200_000 {
		x := 1 + r.Float64()*[]float64{1e-12, 0.5, 3, 1e5, 1e300}[i%5]
		want := math.Log(x)
		if d := math.Abs(logPos(x) - want); d > 6e-16*max(1, want) {
			t.Fatalf("log(%v) = %v, want %v", x, logPos(x), want)
		}
	}
}

func TestSum4(t *testing.T) {
	for n := range 20 {
		var w []float64
		want := 0.0
		for i := range n {
			w = append(w, float64(i+1))
			want += float64(i + 1)
		}
		if got := sum4(w); got != want {
			t.Errorf("the sum of 1..%d is %v", n, got)
		}
	}
}

// The first draws are pinned: another generator would change every sampled result of every user.
func TestUniformIsPinned(t *testing.T) {
	for _, c := range []struct {
		seed int64
		pos  int
		want float64
	}{{0, 0, 0.6524484863740322}, {0, 1, 0.7012121095215252}, {7, 0, 0.7215081806049702},
		{-1, 0, 0.3662420901697574}, {1 << 52, 1000, 0.5885336045677981}} {
		if got := uniform(c.seed, c.pos); got != c.want {
			t.Errorf("draw %d of seed %d is %v, want %v", c.pos, c.seed, got, c.want)
		}
	}
}

func TestUniformLooksUniform(t *testing.T) {
	// Along positions, and along seeds at one position (neighbouring rows): 64 bins, chi-square with 63 degrees of
	// freedom; 120 has a probability of 2e-5 and the draws are fixed.
	const n, bins = 64_000, 64
	for name, at := range map[string]func(i int) float64{
		"positions": func(i int) float64 { return uniform(42, i) },
		"seeds":     func(i int) float64 { return uniform(int64(i), 0) },
		"both":      func(i int) float64 { return uniform(int64(i/250), i%250) },
		// the pair of a draw and its successor must not be tied either
		"differences": func(i int) float64 {
			d := uniform(9, i+1) - uniform(9, i)
			return d - math.Floor(d)
		},
		"seed differences": func(i int) float64 {
			d := uniform(int64(i+1), 5) - uniform(int64(i), 5)
			return d - math.Floor(d)
		},
	} {
		var count [bins]float64
		for i := range n {
			u := at(i)
			if u < 0 || u >= 1 {
				t.Fatalf("%s: %v is outside [0, 1)", name, u)
			}
			count[int(u*bins)]++
		}
		chi := 0.0
		for _, c := range count {
			chi += (c - n/bins) * (c - n/bins) / (n / bins)
		}
		if chi > 120 || chi < 25 {
			t.Errorf("%s: chi-square %.1f over 63 degrees of freedom", name, chi)
		}
	}
}
