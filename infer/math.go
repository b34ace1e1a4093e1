package infer

import (
	"math"
	"math/big"
)

// Probabilities and log-probabilities are part of a row's result, which must not depend on the machine. The standard
// library's Exp and Log differ in their last bit between architectures (assembly here, fused multiply-add there), so
// the two functions below use single rounded operations only: float64(x*y) is never fused into the sum around it.

const (
	expSteps = 256 // table entries per power of two
	// ln2/256 in two parts: the first has so few bits that its product with any step number below is exact.
	stepHi = 0x1.62e42feep-1 / expSteps
	stepLo = (math.Ln2 - 0x1.62e42feep-1) / expSteps
	// expFloor keeps results normal; e^-700 is 1e-304, nothing beside the largest weight, which is 1.
	expFloor = -700
	// roundShift added to a float64 leaves it rounded half-even to an integer in the low mantissa bits.
	roundShift = 0x1.8p52
)

// exp2Table[j] is 2^(j/256), correctly rounded.
var exp2Table = func() (t [expSteps]float64) {
	const precision = 160
	root := new(big.Float).SetPrec(precision).SetInt64(2)
	for n := 1; n < expSteps; n *= 2 {
		root.Sqrt(root)
	}
	x := new(big.Float).SetPrec(precision).SetInt64(1)
	for j := range t {
		t[j], _ = x.Float64()
		x.Mul(x, root)
	}
	return t
}()

// expNeg is e^x for x <= 0 with a relative error below 4e-16, and 0 below expFloor. expNeg(0) is exactly 1.
// With x = n*ln2/256 + r, |r| <= ln2/512, it is 2^(n/256) * (1 + r + r^2/2 + r^3/6 + r^4/24).
func expNeg(x float64) float64 {
	if !(x >= expFloor) {
		return 0
	}
	shifted := float64(x*(expSteps/math.Ln2)) + roundShift
	n := int64(math.Float64bits(shifted)<<13) >> 13 // sign-extends the 51 low bits, which hold the integer
	k := shifted - roundShift
	r := (x - float64(k*stepHi)) - float64(k*stepLo)
	q := float64(r*(1.0/24)) + 1.0/6
	q = float64(r*q) + 0.5
	q = float64(r*q) + 1
	base := exp2Table[n&(expSteps-1)]
	y := base + float64(base*float64(r*q))
	return math.Float64frombits(math.Float64bits(y) + uint64(n>>8)<<52)
}

// expScaled sets dst[i] = e^((logits[i]-best)*inverse), best being the largest logit and inverse 1/temperature: expNeg
// written into the loop, since a call per vocabulary entry would take longer than the arithmetic.
func expScaled(dst []float64, logits []float32, best float32, inverse float64) {
	dst = dst[:len(logits)]
	b := float64(best)
	for i, l := range logits {
		x := float64((float64(l) - b) * inverse)
		if !(x >= expFloor) {
			dst[i] = 0
			continue
		}
		shifted := float64(x*(expSteps/math.Ln2)) + roundShift
		n := int64(math.Float64bits(shifted)<<13) >> 13
		k := shifted - roundShift
		r := (x - float64(k*stepHi)) - float64(k*stepLo)
		q := float64(r*(1.0/24)) + 1.0/6
		q = float64(r*q) + 0.5
		q = float64(r*q) + 1
		base := exp2Table[n&(expSteps-1)]
		y := base + float64(base*float64(r*q))
		dst[i] = math.Float64frombits(math.Float64bits(y) + uint64(n>>8)<<52)
	}
}

// logPos is the natural logarithm of a finite x >= 1 with an error below 4e-16 of the larger of 1 and the result.
// With x = 2^e * m, m in [sqrt(1/2), sqrt(2)), and s = (m-1)/(m+1), log m = 2*(s + s^3/3 + s^5/5 + ...).
func logPos(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	s := (m - 1) / (m + 1)
	z := float64(s * s) // at most 0.0295: ten terms leave 0.0295^10/21, below 3e-17
	sum := 0.0
	for odd := 21.0; odd >= 3; odd -= 2 {
		sum = float64(z*sum) + 1/odd
	}
	sum = float64(z * sum)
	small := float64(2*s) + float64(float64(2*s)*sum)
	const ln2Hi, ln2Lo = 0x1.62e42feep-1, math.Ln2 - 0x1.62e42feep-1
	return float64(float64(e)*ln2Hi) + (small + float64(float64(e)*ln2Lo))
}

// sum4 adds w in four interleaved lanes, which the processor can overlap; the order is fixed by position alone.
func sum4(w []float64) float64 {
	var a, b, c, d float64
	i := 0
	for ; i+4 <= len(w); i += 4 {
		a += w[i]
		b += w[i+1]
		c += w[i+2]
		d += w[i+3]
	}
	for ; i < len(w); i++ {
		a += w[i]
	}
	return (a + b) + (c + d)
}

// uniform is the number in [0, 1) that decides the draw of completion token pos (from 0) of a unit with this seed. It
// is a counter-based generator: SplitMix64 (Steele, Lea, Flood 2014) started from the mixed seed and read at index pos,
// its upper 53 bits scaled by 2^-53. So a draw depends on seed and position only, and needs no state to be kept,
// replayed after a preemption, or shared between rows.
func uniform(seed int64, pos int) float64 {
	const gamma = 0x9e3779b97f4a7c15
	x := mix64(mix64(uint64(seed)+gamma) + (uint64(pos)+1)*gamma)
	return float64(x>>11) * 0x1p-53
}

// mix64 is SplitMix64's output function, a bijection that spreads every input bit over all output bits.
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
