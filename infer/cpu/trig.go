package cpu

import "math"

// sincos gives the sine and cosine of x, the same bits on every machine: math.Sincos may fuse multiply-adds on some. The
// error is below 2^-48 for |x| up to 2^20 and grows slowly beyond; what is rounded to float32 afterwards needs less.
func sincos(x float64) (sin, cos float64) {
	// x = n*pi/2 + r with |r| <= pi/4. pi/2 in three parts, the first two of 33 bits, so that their products with n below
	// 2^20 are exact.
	const (
		part1 = 1.57079632673412561417e+00
		part2 = 6.07710050630396597660e-11
		part3 = 2.02226624879595063154e-21
	)
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(n*part1)
	r -= float64(n * part2)
	r -= float64(n * part3)
	s, c := sinPoly(r), cosPoly(r)
	switch int64(n) & 3 {
	case 1:
		s, c = c, -s
	case 2:
		s, c = -s, -c
	case 3:
		s, c = -c, s
	}
	return s, c
}

// Taylor series: at |r| <= pi/4 the first term left out is below 2^-56.
func sinPoly(r float64) float64 {
	z := float64(r * r)
	p := 1.0
	for k := 16.0; k >= 2; k -= 2 {
		p = 1 - float64(float64(z/float64(k*(k+1)))*p)
	}
	return float64(r * p)
}

func cosPoly(r float64) float64 {
	z := float64(r * r)
	p := 1.0
	for k := 17.0; k >= 1; k -= 2 {
		p = 1 - float64(float64(z/float64(k*(k+1)))*p)
	}
	return p
}
