package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// halfFields is where a type's blocks hold float16 numbers.
var halfFields = map[quant.Type][]int{
	quant.F16:  {0},
	quant.Q8_0: {0}, quant.Q4_0: {0}, quant.Q5_0: {0}, quant.Q6_K: {208},
	quant.Q4_1: {0, 2}, quant.Q5_1: {0, 2}, quant.Q4_K: {0, 2}, quant.Q5_K: {0, 2},
}

// extremeHalfs are float16 zeros of both signs, the smallest and largest numbers, and 1.
var extremeHalfs = []uint16{0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x3c00, 0xbc00}

// anyBlocks makes blocks of random bits whose float16 numbers are finite; one in four is all zeros or all ones but for those.
func anyBlocks(r *rand.Rand, typ quant.Type, out, in int) device.MatrixSource {
	_, size := typ.Block()
	row, _ := typ.RowBytes(in)
	data := make([]byte, out*row)
	for b := 0; b < len(data); b += size {
		block := data[b : b+size]
		kind := r.IntN(8)
		for i := range block {
			block[i] = byte(r.Uint32())
			if kind < 2 {
				block[i] = byte(-kind)
			}
		}
		for _, at := range halfFields[typ] {
			h := uint16(r.Uint32())
			if h>>10&31 == 31 || r.IntN(3) == 0 {
				h = extremeHalfs[r.IntN(len(extremeHalfs))]
			}
			binary.LittleEndian.PutUint16(block[at:], h)
		}
	}
	return device.MatrixSource{Name: "w", Type: typ, Out: out, In: in, Data: data}
}

// TestCompactIsExact: whatever is in its blocks, a compact weight has the bits of the reference, on every instruction set.
func TestCompactIsExact(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, k := range available() {
		d, err := New(Config{Threads: 2, ISA: k.name})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for typ := range compactForms {
			for _, out := range []int{7, 64, 97} {
				const in = 512
				src := anyBlocks(r, typ, out, in)
				for _, o := range r.Perm(out) {
					src.Rows = append(src.Rows, int32(o))
				}
				packed, err := d.Matrix(t.Context(), src)
				if err != nil {
					t.Fatal(err)
				}
				m := packed.(*matrix)
				if m.form == nil {
					t.Fatalf("%s: %v is kept as float32", k.name, typ)
				}
				if m.Bytes() != d.MatrixBytes(typ, out, in) {
					t.Errorf("%v: it holds %d bytes, foretold %d", typ, m.Bytes(), d.MatrixBytes(typ, out, in))
				}
				checkPanels(t, k, m, src)
				m.Close()
			}
		}
	}
}

// checkPanels compares all values of a weight with the reference, bit by bit.
func checkPanels(t *testing.T, k *kernels, m *matrix, src device.MatrixSource) {
	t.Helper()
	row, _ := src.Type.RowBytes(src.In)
	var w scratch
	want := make([]float32, src.In)
	for o := range m.panels * panelCols {
		clear(want)
		if o < src.Out {
			at := int(src.Rows[o]) * row
			quant.Dequantize(src.Type, want, src.Data[at:at+row])
		}
		panel := m.panel(k, &w, o/panelCols, &w.panel)
		for i, v := range want {
			if got := panel[i*panelCols+o%panelCols]; math.Float32bits(got) != math.Float32bits(v) {
				t.Fatalf("%s, %v: output %d, k %d is %x, want %x", k.name, src.Type, o, i, math.Float32bits(got), math.Float32bits(v))
			}
		}
	}
}

// TestInexactIsNotCompact: an infinite scale gives NaN for code 0 and infinities for the others, which no offset does; such a
// weight is kept as float32.
func TestInexactIsNotCompact(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	d, err := New(Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	src := anyBlocks(r, quant.Q4_1, 64, 64)
	const infinite = 0x7c00
	binary.LittleEndian.PutUint32(src.Data[40*40:], infinite) // the minimum is 0
	src.Data[40*40+4] = 0xf0
	for o := range src.Out {
		src.Rows = append(src.Rows, int32(o))
	}
	packed, err := d.Matrix(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	m := packed.(*matrix)
	defer m.Close()
	if m.form != nil {
		t.Error("a weight that codes cannot give is compact")
	}
	checkPanels(t, d.kernels, m, src)
}

// TestTypesAreCompact: all types but float32 have a compact form.
func TestTypesAreCompact(t *testing.T) {
	for _, typ := range quant.Types() {
		if (typ != quant.F32) != (compactForms[typ] != nil) {
			t.Errorf("%v: compact form %v", typ, compactForms[typ])
		}
	}
}

func TestExpandEqualsPortable(t *testing.T) {
	eachFast(t, func(t *testing.T, k *kernels) {
		r := rand.New(rand.NewPCG(15, 16))
		for range 40 {
			blocks := 1 + r.IntN(5)
			for typ, f := range compactForms {
				n := blocks * f.group
				src := aligned(f.panelBytes(n) / 4)
				if f.bits == 16 {
					halves := unsafe.Slice((*uint16)(unsafe.Pointer(&src[0])), 2*len(src))
					for i := range halves {
						halves[i] = uint16(r.Uint32())
						if halves[i]&0x7c00 == 0x7c00 { // a NaN's bits may differ; there is none in packed weights
							halves[i] = extremeHalfs[r.IntN(len(extremeHalfs))]
						}
					}
					got, want := aligned(n*panelCols), aligned(n*panelCols)
					f.expand(k, n, ptr(got, 0), ptr(src, 0))
					f.expand(&kernelsPortable, n, ptr(want, 0), ptr(src, 0))
					same(t, typ.String(), got, want)
					continue
				}
				block := f.panelBytes(f.group) / 4
				for b := range blocks {
					copy(src[b*block:], random(r, blockScales/4, 1))
					codes := unsafe.Slice((*byte)(unsafe.Pointer(&src[b*block+blockScales/4])), 4*block-blockScales)
					for i := range codes {
						codes[i] = byte(r.Uint32())
					}
				}
				got, want := aligned(n*panelCols), aligned(n*panelCols)
				f.expand(k, n, ptr(got, 0), ptr(src, 0))
				f.expand(&kernelsPortable, n, ptr(want, 0), ptr(src, 0))
				same(t, typ.String(), got, want)
			}
		}
	})
}

// BenchmarkExpand measures one thread with source and destination in the caches.
func BenchmarkExpand(b *testing.B) {
	const k = chunkK
	for _, kn := range available() {
		for _, typ := range []quant.Type{quant.Q4_1, quant.Q8_0} {
			b.Run(kn.name+"/"+typ.String(), func(b *testing.B) {
				f := compactForms[typ]
				src, dst := aligned(f.panelBytes(k)/4), aligned(k*panelCols)
				for b.Loop() {
					f.expand(kn, k, ptr(dst, 0), ptr(src, 0))
				}
				b.ReportMetric(float64(k*panelCols*b.N)/b.Elapsed().Seconds()/1e9, "Gvalue/s")
			})
		}
	}
}
