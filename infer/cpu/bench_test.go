package cpu

import (
	"fmt"
	"testing"
)

// BenchmarkTile measures one thread's tile with panel and strip in the caches, for a full strip and for few rows.
func BenchmarkTile(b *testing.B) {
	const k = 576 // SmolLM2-135M's hidden size
	for _, kn := range available() {
		for _, rows := range []int{1, 4, 8, kn.strip} {
			if rows > kn.strip {
				continue
			}
			b.Run(fmt.Sprintf("%s/%dx32", kn.name, rows), func(b *testing.B) {
				x, w, c := aligned(k*kn.strip), aligned(k*panelCols), aligned(kn.strip*panelCols)
				for b.Loop() {
					kn.tile(rows, k/lanes, ptr(x, 0), ptr(w, 0), ptr(c, 0), panelCols*4, panelCols*4, 0, address(w, 0), 64)
				}
				b.ReportMetric(float64(2*k*rows*panelCols*b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
			})
		}
	}
}
