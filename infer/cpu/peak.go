package cpu

import (
	"math"
	"sync"
	"time"

	"github.com/batchmill/batchmill/infer/quant"
)

// Sizes of a measurement of peaks: operands that stay in the first cache, so that nothing but the units is measured, and long enough
// that the clock has settled.
const (
	peakK     = 256
	peakRound = 20 * time.Millisecond
	peakBest  = 5
)

// Peak measures how many operations a second, in Gop/s, the device's threads reach together with everything in the first cache: of
// the float32 tile, and of the tile of 8-bit weights with 8-bit activations. A multiplication and an addition are two
// operations. It takes half a second, and no step may run meanwhile.
func (d *Device) Peak() (f32, int8 float64) {
	f32 = d.rate(func() (run func() float64) {
		k := d.kernels
		a, b, c := aligned(k.strip*peakK), aligned(peakK*panelCols), aligned(k.strip*panelCols)
		return func() float64 {
			k.tile(k.strip, peakK/lanes, ptr(a, 0), ptr(b, 0), ptr(c, 0), panelCols*4, panelCols*4, 0, address(b, 0), 0)
			return 2 * peakK * panelCols * float64(k.strip)
		}
	})
	int8 = d.rate(func() (run func() float64) {
		s := newQStrips(d.kernels, peakK, false)
		n := 4 * d.kernels.q8.strip
		s.resize(n)
		form, _ := quant.Q8_0.Form()
		l := newQLayout(form, peakK)
		stored := aligned(l.total / 4)
		var w qScratchpad
		w.sums = aligned(qScratch / 4)
		c := aligned(n * panelCols)
		return func() float64 {
			panel := &w.panel
			panel.expand(s.k, &l, ptr(stored, 0), false)
			args := qArgs{
				b: uintptr(panel.codes), sw: address(panel.scratch.sw, 0), sums: address(panel.scratch.sums, 0),
				c: address(c, 0), ldc: 4 * panelCols, rows: n, scratch: address(w.sums, 0),
			}
			w.args = args
			s.product(&w.args, 0, false)
			s.k.product(form, false)(&w.args)
			return 2 * peakK * panelCols * float64(n)
		}
	})
	return f32, int8
}

// rate runs a piece of work on as many threads as the device has and returns the best sum of Gop/s. start makes a thread's own
// operands.
func (d *Device) rate(start func() func() float64) float64 {
	best := 0.0
	for range peakBest {
		rates := make([]float64, d.pool.workers)
		var wg sync.WaitGroup
		for i := range rates {
			wg.Go(func() {
				run := start()
				ops := 0.0
				began := time.Now()
				for time.Since(began) < peakRound {
					for range 16 {
						ops += run()
					}
				}
				rates[i] = ops / time.Since(began).Seconds() / 1e9
			})
		}
		wg.Wait()
		sum := 0.0
		for _, r := range rates {
			sum += r
		}
		best = math.Max(best, sum)
	}
	return best
}
