package cpu

import "math"

// fma32 is x*y + z rounded once to float32, as the hardware's fused multiply-add does it.
//
// The product of two float32 is exact in float64. The sum is then rounded twice, to 53 and to 24 bits, which differs
// from one rounding only where the first one lands on the border between two float32. So the sum is rounded to odd
// there: if it was inexact, its last bit is set, which keeps the second rounding on the right side.
func fma32(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	c := float64(z)
	s := p + c
	const low = 1<<29 - 1 // bits of a float64's mantissa that a float32 lacks
	bits := math.Float64bits(s)
	if bits&low != 1<<28 && bits>>52&0x7ff > 1023-126 {
		return float32(s) // not on a border of the normal range
	}
	// The error of the sum, exactly (Knuth's TwoSum). It is NaN where s is not finite, and then s stands.
	t := s - p
	e := (p - (s - t)) + (c - t)
	if e != 0 && e == e && bits&1 == 0 {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}
