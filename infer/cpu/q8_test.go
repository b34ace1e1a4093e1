package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// quantisedTypes are the types with a form, in order.
func quantisedTypes() []quant.Type {
	var types []quant.Type
	for _, typ := range quant.Types() {
		if _, ok := typ.Form(); ok {
			types = append(types, typ)
		}
	}
	return types
}

// rowKinds make rows of activations: ordinary ones, and the edges of what quantising has to take.
var rowKinds = []func(r *rand.Rand, x []float32){
	func(r *rand.Rand, x []float32) {
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
	},
	func(r *rand.Rand, x []float32) { // one outlier a block takes nearly all the range
		for i := range x {
			x[i] = float32(r.NormFloat64())
			if i%qBlock == 7 {
				x[i] = 1e6
			}
		}
	},
	func(r *rand.Rand, x []float32) { // every integer at its limit
		for i := range x {
			x[i] = float32(1 - 2*r.IntN(2))
		}
	},
	func(_ *rand.Rand, x []float32) { clear(x) },
	func(r *rand.Rand, x []float32) { // halves, which round to even
		for i := range x {
			x[i] = float32(r.IntN(255)-127) / 2
		}
		for i := 0; i < len(x); i += qBlock {
			x[i] = 127
		}
	},
	func(r *rand.Rand, x []float32) { // denormal, tiny and huge blocks
		for i := range x {
			x[i] = float32(math.Ldexp(r.NormFloat64(), -150+i/qBlock*50%270))
		}
	},
}

// qProduct multiplies rows with a weight on one instruction set and returns [tokens][out].
func qProduct(t testing.TB, k *kernels, src device.MatrixSource, rows [][]float32, a Activations) []float32 {
	d, err := New(Config{Threads: 2, ISA: k.name, Activations: a})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	loaded, err := d.Matrix(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	defer loaded.Close()
	m := loaded.(*matrix)
	if !m.quantised {
		t.Fatal("the weight is not multiplied as integers")
	}
	made, err := d.Runner(device.Shape{Hidden: src.In, Intermediate: 32, Heads: 1, KVHeads: 1, HeadDim: 32, Vocab: 32})
	if err != nil {
		t.Fatal(err)
	}
	r := made.(*runner)
	n := len(rows)
	r.inputQ.resize(n)
	padded := aligned(r.hidden)
	for i, row := range rows {
		copy(padded, row)
		r.inputQ.row(&r.work[0].q8.quant, i, ptr(padded, 0))
	}
	out := m.panels * panelCols
	dst := make([]float32, n*out)
	r.products(nil, &r.inputQ, r.hidden, nil, part(device.Linear{Weight: m}, dst, out, false))
	return dst
}

// reference is the product in float64 of the weight's values and the activations as they were rounded, and a bound of its error.
func reference(src device.MatrixSource, rows [][]float32, most float64, o, token int) (sum, bound float64) {
	row, _ := src.Type.RowBytes(src.In)
	w := make([]float32, src.In)
	quant.Dequantize(src.Type, w, src.Data[o*row:(o+1)*row])
	for b := 0; b < src.In; b += qBlock {
		x := rows[token][b : b+qBlock]
		peak := 0.0
		for _, v := range x {
			peak = max(peak, math.Abs(float64(v)))
		}
		if peak < smallestMagnitude {
			continue
		}
		for i, v := range x {
			q := math.Round(float64(v)/peak*most) * peak / most
			sum += q * float64(w[b+i])
			// Rounding to integers may differ by one at halves, since the inverse is rounded.
			bound += math.Abs(q*float64(w[b+i]))*1e-5 + math.Abs(float64(w[b+i]))*peak/most*1.01*boolTo(nearHalf(float64(v)/peak*most))
		}
	}
	return sum, bound
}

func nearHalf(x float64) bool { return math.Abs(x-math.Floor(x)-0.5) < 1e-3 }

func boolTo(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// TestQuantisedProducts: for every type, both widths of activations and any number of tokens, all instruction sets give the bits of
// the portable kernels, and those are the product of the rounded activations with the weight's values.
func TestQuantisedProducts(t *testing.T) {
	for _, typ := range quantisedTypes() {
		for _, a := range []Activations{ActivationsInt8, ActivationsInt16} {
			t.Run(fmt.Sprintf("%v/%s", typ, a), func(t *testing.T) {
				r := rand.New(rand.NewPCG(21, uint64(typ)))
				for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 16, 17, 31, 33, 70} {
					in, out := 256*(1+r.IntN(3)), 1+r.IntN(80)
					if values, _ := typ.Block(); values == qBlock {
						in = qBlock * (1 + r.IntN(11))
					}
					src := anyBlocks(r, typ, out, in)
					rows := make([][]float32, n)
					for i := range rows {
						rows[i] = make([]float32, in)
						rowKinds[r.IntN(len(rowKinds))](r, rows[i])
					}
					want := qProduct(t, &kernelsPortable, src, rows, a)
					for _, k := range available() {
						if k.q8 != &qPortable {
							same(t, fmt.Sprintf("%s, %d tokens, %dx%d", k.name, n, out, in), qProduct(t, k, src, rows, a), want)
						}
					}
					most := 127.0
					if a == ActivationsInt16 {
						most = 32767
					}
					for range 40 {
						token, o := r.IntN(n), r.IntN(out)
						ref, bound := reference(src, rows, most, o, token)
						got := float64(want[token*roundUp(out, panelCols)+o])
						if math.IsInf(got, 0) || math.IsNaN(got) || math.Abs(ref) > 1e38 {
							continue // float16 scales near the limit times huge activations
						}
						if math.Abs(got-ref) > bound+1e-30 {
							t.Fatalf("token %d, output %d: %g, want %g within %g", token, o, got, ref, bound)
						}
					}
				}
			})
		}
	}
}

// TestQuantiseNonFinite: an infinity or a NaN spoils its own row and no other.
func TestQuantiseNonFinite(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	src := anyBlocks(r, quant.Q8_0, 32, 64)
	for i := range src.Data { // small scales, so that nothing else overflows
		if i%34 < 2 {
			src.Data[i] = [2]byte{0, 0x1c}[i%34]
		}
	}
	for _, k := range available() {
		for _, a := range []Activations{ActivationsInt8, ActivationsInt16} {
			rows := make([][]float32, 20)
			for i := range rows {
				rows[i] = make([]float32, 64)
				rowKinds[0](r, rows[i])
			}
			rows[3][40], rows[11][0], rows[17][63] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
			got := qProduct(t, k, src, rows, a)
			for i := range rows {
				bad := i == 3 || i == 11 || i == 17
				for _, v := range got[i*32 : (i+1)*32] {
					if finite := v-v == 0; finite == bad {
						t.Fatalf("%s, %s: row %d gives %g", k.name, a, i, v)
					}
				}
			}
		}
	}
}

// TestSaturation: sums of the largest activations and codes, of both signs, are exact: no intermediate of 16 bits overflows.
func TestSaturation(t *testing.T) {
	for _, typ := range quantisedTypes() {
		f, _ := typ.Form()
		const in = 512
		values, size := typ.Block()
		for _, fill := range []byte{0x00, 0xff, 0x7f, 0x80, 0xf0, 0x0f} {
			data := make([]byte, 32*in/values*size)
			for i := range data {
				data[i] = fill
			}
			for b := 0; b < len(data); b += size {
				for _, at := range halfFields[typ] {
					data[b+at], data[b+at+1] = 0, 0x3c // 1
				}
			}
			src := device.MatrixSource{Name: "w", Type: typ, Out: 32, In: in, Data: data}
			for _, sign := range []float32{1, -1} {
				row := make([]float32, in)
				for i := range row {
					row[i] = sign
				}
				for _, a := range []Activations{ActivationsInt8, ActivationsInt16} {
					want := qProduct(t, &kernelsPortable, src, [][]float32{row}, a)
					ref, bound := reference(src, [][]float32{row}, 127, 0, 0)
					if math.Abs(float64(want[0])-ref) > bound+1e-3*math.Abs(ref) {
						t.Errorf("%v of %d bits, %s, fill %x: %g, want %g", typ, f.Bits, a, fill, want[0], ref)
					}
					for _, k := range available() {
						same(t, fmt.Sprintf("%s, %v, %s, fill %x", k.name, typ, a, fill), qProduct(t, k, src, [][]float32{row}, a), want)
					}
				}
			}
		}
	}
}

// TestStreamedQuantised: a weight that is packed at every use gives the bits of one that is kept.
func TestStreamedQuantised(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	for _, typ := range quantisedTypes() {
		src := anyBlocks(r, typ, 70, 512)
		rows := [][]float32{make([]float32, 512), make([]float32, 512)}
		rowKinds[0](r, rows[0])
		rowKinds[1](r, rows[1])
		k := available()[0]
		want := qProduct(t, k, src, rows, ActivationsInt8)
		src.Streamed = true
		same(t, typ.String(), qProduct(t, k, src, rows, ActivationsInt8), want)
	}
}

// TestFloatPanel: a stored weight expands to the values of the reference.
func TestFloatPanel(t *testing.T) {
	r := rand.New(rand.NewPCG(35, 36))
	d, err := New(Config{Threads: 1, Activations: ActivationsInt8})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, typ := range quantisedTypes() {
		src := anyBlocks(r, typ, 97, 512)
		for _, o := range r.Perm(97) {
			src.Rows = append(src.Rows, int32(o))
		}
		loaded, err := d.Matrix(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		m := loaded.(*matrix)
		if m.Bytes() != d.MatrixBytes(typ, 97, 512) {
			t.Errorf("%v: it holds %d bytes, foretold %d", typ, m.Bytes(), d.MatrixBytes(typ, 97, 512))
		}
		var w scratch
		row, _ := typ.RowBytes(512)
		want := make([]float32, 512)
		for o := range 97 {
			at := int(src.Rows[o]) * row
			quant.Dequantize(typ, want, src.Data[at:at+row])
			panel := m.panel(d.kernels, &w, o/panelCols, &w.panel)
			for k, v := range want {
				if got := panel[k*panelCols+o%panelCols]; got != v {
					t.Fatalf("%v: output %d, k %d is %g, want %g", typ, o, k, got, v)
				}
			}
		}
		m.Close()
	}
}

// TestStoredSize: stored panels take hardly more than the file's bytes.
func TestStoredSize(t *testing.T) {
	d, err := New(Config{Threads: 1, Activations: ActivationsInt8})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const most = 1.15
	for _, typ := range quantisedTypes() {
		row, _ := typ.RowBytes(1536)
		if ratio := float64(d.MatrixBytes(typ, 576, 1536)) / float64(576*row); ratio > most {
			t.Errorf("%v takes %.3f times the bytes of the file, at most %v", typ, ratio, most)
		}
	}
}

// TestQArgsLayout: the generator knows the offsets of the arguments.
func TestQArgsLayout(t *testing.T) {
	var a qArgs
	for i, at := range []uintptr{
		unsafe.Offsetof(a.blocks), unsafe.Offsetof(a.a), unsafe.Offsetof(a.aStrip), unsafe.Offsetof(a.b), unsafe.Offsetof(a.sw), unsafe.Offsetof(a.min),
		unsafe.Offsetof(a.sa), unsafe.Offsetof(a.s1), unsafe.Offsetof(a.sStrip), unsafe.Offsetof(a.c), unsafe.Offsetof(a.ldc), unsafe.Offsetof(a.rows),
		unsafe.Offsetof(a.sums), unsafe.Offsetof(a.scratch), unsafe.Offsetof(a.ahead), unsafe.Offsetof(a.aheadEnd),
	} {
		if at != uintptr(8*i) {
			t.Errorf("field %d of qArgs is at %d", i, at)
		}
	}
	var f fewArgs
	for i, at := range []uintptr{
		unsafe.Offsetof(f.blocks), unsafe.Offsetof(f.a), unsafe.Offsetof(f.low), unsafe.Offsetof(f.high), unsafe.Offsetof(f.scale), unsafe.Offsetof(f.min),
		unsafe.Offsetof(f.sub), unsafe.Offsetof(f.subMin), unsafe.Offsetof(f.sa), unsafe.Offsetof(f.s1), unsafe.Offsetof(f.sums), unsafe.Offsetof(f.c),
		unsafe.Offsetof(f.ldc), unsafe.Offsetof(f.rows),
	} {
		if at != uintptr(8*i) {
			t.Errorf("field %d of fewArgs is at %d", i, at)
		}
	}
	var q quantArgs
	for i, at := range []uintptr{
		unsafe.Offsetof(q.count), unsafe.Offsetof(q.src), unsafe.Offsetof(q.stride), unsafe.Offsetof(q.half), unsafe.Offsetof(q.dst), unsafe.Offsetof(q.step),
		unsafe.Offsetof(q.scale), unsafe.Offsetof(q.s1), unsafe.Offsetof(q.sums), unsafe.Offsetof(q.scaleStep), unsafe.Offsetof(q.words), unsafe.Offsetof(q.wordsStep),
	} {
		if at != uintptr(8*i) {
			t.Errorf("field %d of quantArgs is at %d", i, at)
		}
	}
}

// BenchmarkQuantised measures the product alone on one thread, packed activations times stored panels, in shapes of SmolLM2-135M.
func BenchmarkQuantised(b *testing.B) {
	r := rand.New(rand.NewPCG(37, 38))
	for _, k := range available() {
		if k.q8 == &qPortable {
			continue
		}
		for _, typ := range []quant.Type{quant.Q4_0, quant.Q4_1, quant.Q8_0, quant.Q6_K} {
			for _, n := range []int{1, 2, 4, 8, 16, 32, 64, 128, 512} {
				b.Run(fmt.Sprintf("%s/%v/%d", k.name, typ, n), func(b *testing.B) { benchQuantised(b, r, k, typ, n) })
			}
		}
	}
}

func benchQuantised(b *testing.B, r *rand.Rand, k *kernels, typ quant.Type, n int) {
	const in, out = 576, 1536
	d, err := New(Config{Threads: 1, ISA: k.name, Activations: ActivationsInt8})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	loaded, err := d.Matrix(b.Context(), anyBlocks(r, typ, out, in))
	if err != nil {
		b.Fatal(err)
	}
	made, err := d.Runner(device.Shape{Hidden: in, Intermediate: 32, Heads: 1, KVHeads: 1, HeadDim: 32, Vocab: 32})
	if err != nil {
		b.Fatal(err)
	}
	run := made.(*runner)
	run.inputQ.resize(n)
	row := aligned(in)
	for i := range n {
		rowKinds[0](r, row)
		run.inputQ.row(&run.work[0].q8.quant, i, ptr(row, 0))
	}
	dst := make([]float32, n*out)
	for b.Loop() {
		run.products(nil, &run.inputQ, in, nil, part(device.Linear{Weight: loaded}, dst, out, false))
	}
	b.ReportMetric(2*in*out*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
}
