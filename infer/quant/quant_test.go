package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestGoldens compares every block with what the gguf package on PyPI makes of it, bit by bit; see
// testdata/make_goldens.py.
func TestGoldens(t *testing.T) {
	for _, typ := range Types() {
		t.Run(typ.String(), func(t *testing.T) {
			src, err := os.ReadFile(filepath.Join("testdata", typ.String()+".blocks"))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", typ.String()+".f32"))
			if err != nil {
				t.Fatal(err)
			}
			values, size := typ.Block()
			if len(src) == 0 || len(src)%size != 0 || len(want) != len(src)/size*values*4 {
				t.Fatalf("goldens have %d and %d bytes", len(src), len(want))
			}
			dst := make([]float32, len(want)/4)
			Dequantize(typ, dst, src)
			for i, got := range dst {
				w := binary.LittleEndian.Uint32(want[4*i:])
				if g := math.Float32bits(got); g != w {
					t.Fatalf("block %d value %d: got %g (%08x), want %g (%08x)",
						i/values, i%values, got, g, math.Float32frombits(w), w)
				}
			}
		})
	}
}

// TestHalfs compares all float16 values with their definition in float64.
func TestHalfs(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac := h>>10&0x1f, float64(h&0x3ff)
		want := math.Ldexp(1+frac/1024, exp-15)
		switch {
		case exp == 0:
			want = math.Ldexp(frac/1024, -14)
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		}
		if h&0x8000 != 0 {
			want = -want
		}
		got := HalfToFloat32(uint16(h))
		if math.IsNaN(want) {
			if !math.IsNaN(float64(got)) || math.Float32bits(got)>>13&0x3ff != uint32(h&0x3ff) {
				t.Fatalf("%04x: got %08x, want a NaN with that payload", h, math.Float32bits(got))
			}
			continue
		}
		if float64(got) != want || math.Signbit(float64(got)) != math.Signbit(want) {
			t.Fatalf("%04x: got %g, want %g", h, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	seen := map[uint32]Type{}
	for _, typ := range Types() {
		values, size := typ.Block()
		if values <= 0 || size <= 0 || formats[typ].unpack == nil || formats[typ].name == "" {
			t.Errorf("%d: entry incomplete", typ)
		}
		if other, ok := seen[typ.GGML()]; ok {
			t.Errorf("%v and %v share number %d", typ, other, typ.GGML())
		}
		seen[typ.GGML()] = typ
		if got, ok := FromGGML(typ.GGML()); !ok || got != typ {
			t.Errorf("FromGGML(%d) = %v, %v", typ.GGML(), got, ok)
		}
		if got, ok := Parse(typ.String()); !ok || got != typ {
			t.Errorf("Parse(%q) = %v, %v", typ, got, ok)
		}
	}
	if _, ok := FromGGML(99); ok {
		t.Error("FromGGML(99) found a type")
	}
	if Type(0).Valid() || Type(200).Valid() || Type(0).String() != "invalid type 0" {
		t.Error("invalid types are not told apart")
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		typ   Type
		shape []int
		want  int64 // -1: an error
	}{
		{F32, nil, 4},
		{F32, []int{3}, 12},
		{BF16, []int{2, 3, 5}, 60},
		{F32, []int{0, 3}, 0},
		{Q8_0, []int{4, 64}, 4 * 2 * 34},
		{Q4_K, []int{2, 512}, 2 * 2 * 144},
		{Q4_K, []int{2, 128}, -1}, // no whole block
		{Q4_0, []int{32, 2}, -1},  // whole blocks, but not in a row
		{F32, []int{1 << 31, 1 << 31, 4}, -1},
		{Q6_K, []int{2, math.MaxInt / 256 * 256}, -1},
		{F32, []int{-1, 4}, -1},
		{F32, []int{-4}, -1},
		{0, []int{4}, -1},
	} {
		got, err := Size(c.typ, c.shape)
		if c.want < 0 {
			if err == nil {
				t.Errorf("Size(%v, %v) = %d, want an error", c.typ, c.shape, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("Size(%v, %v) = %d, %v, want %d", c.typ, c.shape, got, err, c.want)
		}
	}
}

func TestDequantizeRefusesWrongLengths(t *testing.T) {
	for _, c := range []struct{ values, bytes int }{{32, 17}, {32, 19}, {31, 18}, {64, 18}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d values of %d bytes: no panic", c.values, c.bytes)
				}
			}()
			Dequantize(Q4_0, make([]float32, c.values), make([]byte, c.bytes))
		}()
	}
}

func BenchmarkDequantize(b *testing.B) {
	for _, typ := range Types() {
		b.Run(typ.String(), func(b *testing.B) {
			const n = 1 << 16
			size, err := typ.RowBytes(n)
			if err != nil {
				b.Fatal(err)
			}
			src, dst := make([]byte, size), make([]float32, n)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range src {
				src[i] = byte(r.Uint32()) & 0xbf // no infinite scales
			}
			for b.Loop() {
				Dequantize(typ, dst, src)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/value")
		})
	}
}
