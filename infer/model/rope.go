package model

import (
	"fmt"
	"math"
	"math/big"

	"github.com/batchmill/batchmill/infer/device"
)

// defaultTheta is the base of the angles where a model does not say.
const defaultTheta = 10000

// ropeParams describe a rotary position embedding.
type ropeParams struct {
	kind   string // "", "default", "none", "linear", "llama3", "yarn"
	theta  float64
	dim    int     // values of a head that are rotated
	factor float64 // how far the context is stretched

	original          int // positions before the stretching
	lowFreq, highFreq float64

	attention            *float64 // YaRN's scale of cosine and sine; nil: from factor
	ggufAttention        float64  // multiplies that scale; 0 is 1
	betaFast, betaSlow   *float64
	mscale, mscaleAllDim float64
	exactRange           bool // YaRN's range is not rounded to whole dimensions
}

// check refuses kinds that are not known and numbers that make no sense.
func (r *ropeParams) check() error {
	switch r.kind {
	case "", "default", "none":
		return nil
	case "linear", "llama3", "yarn":
	default:
		return fmt.Errorf("read model description: rope scaling %q is not supported", r.kind)
	}
	if !(r.factor > 0) || r.original < 1 {
		return fmt.Errorf("read model description: rope scaling %s by %g from %d positions", r.kind, r.factor, r.original)
	}
	if r.kind == "llama3" && !(r.lowFreq > 0 && r.highFreq > r.lowFreq) {
		return fmt.Errorf("read model description: rope scaling llama3 with frequency factors %g and %g", r.lowFreq, r.highFreq)
	}
	return nil
}

// table computes the angles per position. divide, when not nil, holds a factor for each pair by which its frequency is
// divided (GGUF's rope_freqs.weight, which carries Llama 3's scaling).
func (r *ropeParams) table(divide []float32) (*device.Rope, error) {
	t := &device.Rope{InvFreq: make([]float64, r.dim/2), Scale: 1}
	// Products are converted before they are added, here and below: fused on some machines, they would give others bits.
	if divide != nil && len(divide) != len(t.InvFreq) {
		return nil, fmt.Errorf("read rope_freqs.weight: %d factors, want %d", len(divide), len(t.InvFreq))
	}
	rootPowers(t.InvFreq, r.theta)
	switch r.kind {
	case "linear":
		for i := range t.InvFreq {
			t.InvFreq[i] /= r.factor
		}
	case "llama3":
		for i, f := range t.InvFreq {
			t.InvFreq[i] = r.llama3(f)
		}
	case "yarn":
		r.yarn(t)
	}
	for i, d := range divide {
		if !(d > 0) {
			return nil, fmt.Errorf("read rope_freqs.weight: factor %d is %g", i, d)
		}
		t.InvFreq[i] /= float64(d)
	}
	return t, nil
}

// llama3 slows long waves by the factor, leaves short ones, and blends between; modeling_rope_utils of transformers.
func (r *ropeParams) llama3(freq float64) float64 {
	wave := 2 * math.Pi / freq
	n := float64(r.original)
	switch {
	case wave < n/r.highFreq:
		return freq
	case wave > n/r.lowFreq:
		return freq / r.factor
	}
	smooth := (n/wave - r.lowFreq) / (r.highFreq - r.lowFreq)
	return float64((1-smooth)*freq/r.factor) + float64(smooth*freq)
}

// yarn blends interpolated and original frequencies by the number of turns within the original context, and scales cosine
// and sine (https://arxiv.org/abs/2309.00071, with the defaults of its reference code).
func (r *ropeParams) yarn(t *device.Rope) {
	fast, slow := 32.0, 1.0
	if r.betaFast != nil {
		fast = *r.betaFast
	}
	if r.betaSlow != nil {
		slow = *r.betaSlow
	}
	dim := float64(r.dim)
	turns := func(n float64) float64 { // the dimension whose wave turns n times
		return dim * math.Log(float64(r.original)/(n*2*math.Pi)) / (2 * math.Log(r.theta))
	}
	low, high := turns(fast), turns(slow)
	if !r.exactRange {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	for i, f := range t.InvFreq {
		ramp := min(1, max(0, (float64(i)-low)/(high-low)))
		t.InvFreq[i] = float64(f/r.factor*ramp) + float64(f*(1-ramp))
	}
	scale := func(m float64) float64 {
		if r.factor <= 1 {
			return 1
		}
		return float64(0.1*m*math.Log(r.factor)) + 1
	}
	switch {
	case r.attention != nil:
		t.Scale = *r.attention
	case r.mscale != 0 && r.mscaleAllDim != 0:
		t.Scale = scale(r.mscale) / scale(r.mscaleAllDim)
	default:
		t.Scale = scale(1)
	}
	if r.ggufAttention > 0 {
		t.Scale *= r.ggufAttention
	}
}

// rootPowers sets f[i] = theta^(-i/len(f)), rounded once from a much higher precision: math.Pow may differ in the last bit
// between machines.
func rootPowers(f []float64, theta float64) {
	const precision = 200
	n := len(f)
	number := func(x float64) *big.Float { return new(big.Float).SetPrec(precision).SetFloat64(x) }
	root := number(math.Pow(theta, 1/float64(n)))
	for range 4 { // Newton's steps from 50 good bits double them each time
		below := number(1) // root^(n-1)
		square := new(big.Float).Set(root)
		for e := n - 1; e > 0; e >>= 1 {
			if e&1 == 1 {
				below.Mul(below, square)
			}
			square.Mul(square, square)
		}
		over := new(big.Float).Mul(below, root)
		over.Sub(over, number(theta))
		root.Sub(root, over.Quo(over, below.Mul(below, number(float64(n)))))
	}
	power := number(1)
	for i := range f {
		f[i], _ = power.Float64()
		power.Quo(power, root)
	}
}
