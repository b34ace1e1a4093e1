package cpu

import "testing"

// TestPeak: every instruction set has peaks, and vectors beat plain Go.
func TestPeak(t *testing.T) {
	peaks := map[string][2]float64{}
	for _, k := range available() {
		d, err := New(Config{Threads: 1, ISA: k.name})
		if err != nil {
			t.Fatal(err)
		}
		f, i := d.Peak()
		d.Close()
		t.Logf("%s: float32 %.1f Gop/s, 8 bits %.1f", k.name, f, i)
		peaks[k.name] = [2]float64{f, i}
	}
	plain := peaks["portable"]
	for name, p := range peaks {
		if p[0] <= 0 || p[1] <= 0 || name != "portable" && (p[0] < 2*plain[0] || p[1] < 2*plain[1]) {
			t.Errorf("%s reaches %v Gop/s, plain Go %v", name, p, plain)
		}
	}
}
