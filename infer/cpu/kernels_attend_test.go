package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// each8 runs a test for every implementation of integer attention that this machine has, but the reference.
func each8(t *testing.T, f func(t *testing.T, k *kernels8)) {
	t.Helper()
	seen := map[*kernels8]bool{&kernels8Portable: true}
	for _, k := range available() {
		if a := k.attention(); !seen[a] {
			seen[a] = true
			t.Run(a.name, func(t *testing.T) { f(t, a) })
		}
	}
	if len(seen) == 1 {
		t.Skip("this machine has the portable kernels only: nothing to compare")
	}
}

// rawBytes views memory of aligned.
func rawBytes(f []float32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&f[0])), 4*len(f)) }

func newRows8() *rows8 {
	return (*rows8)(unsafe.Pointer(&aligned(int(unsafe.Sizeof(rows8{})) / 4)[0]))
}

// randomCodes fills with codes; extreme takes -127 and 127 only.
func randomCodes(r *rand.Rand, b []byte, extreme bool) {
	for i := range b {
		c := r.IntN(2*codeMax+1) - codeMax
		if extreme {
			c = codeMax * (1 - 2*r.IntN(2))
		}
		b[i] = byte(int8(c))
	}
}

// randomSpan makes pages of random codes and scales.
func randomSpan(r *rand.Rand, dim int, extreme bool) *span8 {
	var span span8
	for p := range span {
		page := aligned(pageBytes8(dim) / 4)
		randomCodes(r, rawBytes(page)[:scalesAt(dim)], extreme)
		for i := scalesAt(dim) / 4; i < len(page); i++ {
			page[i] = float32(math.Abs(r.NormFloat64())) * 0.01
			if r.IntN(64) == 0 {
				page[i] = []float32{0, 1e-38, 1e-45, 1e-25, 1, 1e30}[r.IntN(6)]
			}
		}
		span[p] = unsafe.Pointer(&page[0])
	}
	return &span
}

func TestQuantise8EqualsPortable(t *testing.T) {
	each8(t, func(t *testing.T, k *kernels8) {
		r := rand.New(rand.NewPCG(1, 2))
		for round := range 400 {
			blocks := 1 + r.IntN(16)
			x := random(r, blocks*lanes, math.Pow(10, float64(r.IntN(60)-35)))
			switch round % 8 {
			case 1:
				clear(x)
			case 2:
				x[r.IntN(len(x))] = float32(math.Inf(1 - 2*r.IntN(2)))
			case 3:
				x[r.IntN(len(x))] = float32(math.NaN())
			case 4: // halves, which go to the even code
				for i := range x {
					x[i] = float32(r.IntN(255)-127) / 2
				}
				x[0] = 127
			}
			got, want := make([]byte, len(x)), make([]byte, len(x))
			var g, w quantised
			k.quantise(blocks, unsafe.Pointer(&got[0]), ptr(x, 0), &g)
			quantise8Go(blocks, unsafe.Pointer(&want[0]), ptr(x, 0), &w)
			same(t, "scale", []float32{g.scale}, []float32{w.scale})
			if g.sum != w.sum || !bytes.Equal(got, want) {
				t.Fatalf("codes %v (%d), want %v (%d)", got, g.sum, want, w.sum)
			}
			if (round%8 == 2 || round%8 == 3) && w.scale == w.scale {
				t.Fatal("a value that is not finite gives a finite scale")
			}
			for i, v := range x {
				if w.scale > 0 && math.Abs(float64(float32(int8(want[i]))*w.scale-v)) > 0.5001*float64(w.scale) {
					t.Fatalf("%g comes back as %g", v, float32(int8(want[i]))*w.scale)
				}
			}
		}
	})
}

func TestPlace8EqualsPortable(t *testing.T) {
	each8(t, func(t *testing.T, k *kernels8) {
		r := rand.New(rand.NewPCG(9, 10))
		for range 60 {
			dim := headUnit * (1 + r.IntN(8))
			got, want, codes := aligned(pageBytes8(dim)/4), aligned(pageBytes8(dim)/4), aligned(2*dim/4)
			randomCodes(r, rawBytes(got), false)
			copy(want, got)
			randomCodes(r, rawBytes(codes), false)
			slot := r.IntN(device.PageTokens)
			for _, to := range []struct {
				page []float32
				k    *kernels8
			}{{got, k}, {want, &kernels8Portable}} {
				p := ptr(to.page, 0)
				to.k.place(dim, ptr(codes, 0), ptr(codes, dim/4), unsafe.Add(p, slot*quadWidth),
					unsafe.Add(p, valuesAt(dim)+slot/quadWidth*dim*quadWidth), slot%quadWidth)
			}
			if !bytes.Equal(rawBytes(got), rawBytes(want)) {
				t.Fatalf("a page differs after slot %d of %d values", slot, dim)
			}
		}
	})
}

func TestProducts8EqualPortable(t *testing.T) {
	each8(t, func(t *testing.T, k *kernels8) {
		r := rand.New(rand.NewPCG(3, 4))
		for round := range 80 {
			rows, pages, dim := 1+r.IntN(stripRows8), 1+r.IntN(spanPages), headUnit*(1+r.IntN(8))
			extreme := round%4 == 0
			ldq := roundUp(dim, queryUnit)
			span := randomSpan(r, dim, extreme)
			q := aligned(stripRows8 * ldq / 4)
			st := newRows8()
			for i := range rows {
				row := rawBytes(q)[i*ldq:][:ldq]
				randomCodes(r, row[:dim], extreme)
				for _, c := range row {
					st.offset[i] -= 128 * int32(int8(c))
				}
			}
			got, want := aligned(stripRows8*spanTokens), aligned(stripRows8*spanTokens)
			k.scores(rows, pages, dim, ldq, ptr(q, 0), span, ptr(got, 0), st)
			scores8Go(rows, pages, dim, ldq, ptr(q, 0), span, ptr(want, 0), st)
			if !bytes.Equal(rawBytes(got), rawBytes(want)) {
				t.Fatalf("scores of %d rows, %d pages of %d differ", rows, pages, dim)
			}

			p := aligned(stripRows8 * spanTokens / 4)
			for i := range rawBytes(p) {
				rawBytes(p)[i] = byte(r.IntN(codeMax + 1))
				if extreme {
					rawBytes(p)[i] = codeMax
				}
			}
			got, want = aligned(stripRows8*dim), aligned(stripRows8*dim)
			k.values(rows, pages, dim, ptr(p, 0), span, ptr(got, 0))
			values8Go(rows, pages, dim, ptr(p, 0), span, ptr(want, 0))
			if !bytes.Equal(rawBytes(got), rawBytes(want)) {
				t.Fatalf("values of %d rows, %d pages of %d differ", rows, pages, dim)
			}

			gotAcc, wantAcc := random(r, stripRows8*dim, 1), aligned(stripRows8*dim)
			for i := range rows {
				st.alpha[i], st.scale[i] = r.Float32(), r.Float32()*0.01
				if r.IntN(3) == 0 { // saw nothing
					st.alpha[i], st.scale[i] = 1, 0
					gotAcc[i*dim] = float32(math.Copysign(0, -1))
				}
			}
			copy(wantAcc, gotAcc)
			k.add(rows, dim, ptr(got, 0), ptr(gotAcc, 0), st)
			add8Go(rows, dim, ptr(want, 0), ptr(wantAcc, 0), st)
			same(t, "sums", gotAcc, wantAcc)

			var gotTo, wantTo [stripRows8]unsafe.Pointer
			gotOut, wantOut := aligned(stripRows8*dim), aligned(stripRows8*dim)
			for i := range rows {
				st.sum[i] = r.Float32() * 100
				gotTo[i], wantTo[i] = ptr(gotOut, (rows-1-i)*dim), ptr(wantOut, (rows-1-i)*dim)
			}
			blocks := 1 + r.IntN(dim/lanes)
			k.finish(rows, blocks, dim*4, ptr(gotAcc, 0), st, &gotTo[0])
			finish8Go(rows, blocks, dim*4, ptr(wantAcc, 0), st, &wantTo[0])
			same(t, "results", gotOut, wantOut)
		}
	})
}

func TestSoftmax8EqualsPortable(t *testing.T) {
	each8(t, func(t *testing.T, k *kernels8) {
		r := rand.New(rand.NewPCG(5, 6))
		for round := range 200 {
			const dim = headUnit
			rows := 1 + r.IntN(stripRows8)
			got, want := newRows8(), newRows8()
			for i := range rows {
				got.c[i] = float32(math.Abs(r.NormFloat64())) * 0.02
			}
			switch round % 10 {
			case 1:
				got.c[r.IntN(rows)] = float32(math.NaN())
			case 2:
				got.c[r.IntN(rows)] = 0
			case 3:
				got.c[r.IntN(rows)] = 1e30
			}
			got.start(rows)
			*want = *got
			for step := range 4 {
				pages := 1 + r.IntN(spanPages)
				span := randomSpan(r, dim, false)
				if r.IntN(4) == 0 {
					at(span[r.IntN(pages)], scalesAt(dim)+128*r.IntN(2), device.PageTokens)[r.IntN(device.PageTokens)] = float32(math.NaN())
				}
				masked := r.IntN(3)
				hidden := r.IntN(rows)
				for i := range rows {
					got.low[i] = int32(r.IntN(20) - 10)
					got.high[i] = int32(r.IntN(pages*device.PageTokens+1) + 1)
					if i == hidden {
						got.high[i] = int32(-r.IntN(2))
					}
				}
				want.low, want.high = got.low, got.high
				before := *got
				s, ws := aligned(stripRows8*spanTokens), aligned(stripRows8*spanTokens)
				for i := range s {
					s[i] = math.Float32frombits(uint32(int32(r.NormFloat64() * 50000)))
				}
				copy(ws, s)
				gp, wp := aligned(stripRows8*spanTokens/4), aligned(stripRows8*spanTokens/4)
				k.softmax(rows, pages, scalesAt(dim), ptr(s, 0), ptr(gp, 0), span, got, masked)
				softmax8Go(rows, pages, scalesAt(dim), ptr(ws, 0), ptr(wp, 0), span, want, masked)
				for i := range rows {
					if failed := want.sum[i] != want.sum[i] || want.scale[i] != want.scale[i]; failed {
						if got.sum[i] == got.sum[i] && got.scale[i] == got.scale[i] {
							t.Fatal("a row that must fail has not")
						}
						got.max[i], want.max[i] = 0, 0
						continue
					}
					same(t, "state", []float32{got.max[i], got.sum[i], got.alpha[i], got.inverse[i], got.scale[i]},
						[]float32{want.max[i], want.sum[i], want.alpha[i], want.inverse[i], want.scale[i]})
					g, w := rawBytes(gp)[i*spanTokens:][:pages*device.PageTokens], rawBytes(wp)[i*spanTokens:][:pages*device.PageTokens]
					if !bytes.Equal(g, w) {
						t.Fatalf("round %d, step %d, row %d: probabilities %v, want %v", round, step, i, g, w)
					}
					for j, c := range g {
						if c > codeMax || (masked == maskBoth && j < int(got.low[i]) || masked != maskNone && j >= int(got.high[i])) && c != 0 {
							t.Fatalf("key %d of %d to %d has the code %d", j, got.low[i], got.high[i], c)
						}
					}
				}
				if i := hidden; masked != maskNone && before.sum[i] == before.sum[i] && before.c[i] == before.c[i] &&
					(got.alpha[i] != 1 || math.Float32bits(got.scale[i]) != 0 || got.sum[i] != before.sum[i] || got.max[i] != before.max[i]) {
					t.Fatalf("a span that a row does not see changes it: alpha %g, scale %g", got.alpha[i], got.scale[i])
				}
			}
		}
	})
}

// randomStrips makes strips of random queries in state st(i), the first one the largest.
func randomStrips(r *rand.Rand, dim, ldq int, extreme bool) []strip8 {
	strips := make([]strip8, 1+r.IntN(itemStrips))
	for i := range strips {
		q := aligned(stripRows8 * ldq / 4)
		s := strip8{rows: 1 + r.IntN(stripRows8), pages: 1 + r.IntN(spanPages), masked: r.IntN(3), st: newRows8(), q: ptr(q, 0)}
		if i > 0 {
			s.rows = min(s.rows, strips[0].rows)
		}
		s.st.start(s.rows)
		s.acc = ptr(random(r, stripRows8*dim, 1), 0)
		for j := range s.rows {
			row := rawBytes(q)[j*ldq:][:ldq]
			randomCodes(r, row[:dim], extreme)
			for _, c := range row {
				s.st.offset[j] -= 128 * int32(int8(c))
			}
			s.st.c[j] = float32(math.Abs(r.NormFloat64())) * 0.02
			s.st.low[j], s.st.high[j] = int32(r.IntN(20)-10), int32(r.IntN(s.pages*device.PageTokens)+1)
		}
		strips[i] = s
	}
	return strips
}

// TestSpan8EqualsPortable: a whole span, strip by strip or as the implementation likes.
func TestSpan8EqualsPortable(t *testing.T) {
	each8(t, func(t *testing.T, k *kernels8) {
		r := rand.New(rand.NewPCG(7, 8))
		for round := range 60 {
			dim := headUnit * (1 + r.IntN(8))
			ldq := roundUp(dim, queryUnit)
			got := randomStrips(r, dim, ldq, round%4 == 0)
			want := slices.Clone(got)
			for i := range want {
				st, acc := newRows8(), aligned(stripRows8*dim)
				*st = *got[i].st
				copy(acc, at(got[i].acc, 0, len(acc)))
				want[i].st, want[i].acc = st, ptr(acc, 0)
			}
			span := randomSpan(r, dim, round%4 == 0)
			pad := newScratch8(dim).pad
			k.span(got, dim, ldq, span, &pad)
			kernels8Portable.span(want, dim, ldq, span, &pad)
			for i := range got {
				n := got[i].rows
				same(t, "maximum", got[i].st.max[:n], want[i].st.max[:n])
				same(t, "sum", got[i].st.sum[:n], want[i].st.sum[:n])
				same(t, fmt.Sprintf("strip %d of %d: %d rows, %d pages, %d values", i, len(got), n, got[i].pages, dim), at(got[i].acc, 0, n*dim), at(want[i].acc, 0, n*dim))
			}
		}
	})
}

// TestExp2 holds the polynomial to the true one.
func TestExp2(t *testing.T) {
	worst := 0.0
	for x := float32(-125.9); x <= 0; x += 0.00391 {
		want := math.Exp2(float64(x))
		worst = max(worst, math.Abs(float64(exp2f32(x))-want)/want)
	}
	if worst > 1.0/(1<<18) {
		t.Errorf("relative error %g, want below 2^-18", worst)
	}
	if exp2f32(0) != 1 || exp2f32(-128) != 0 || exp2f32(-math.MaxFloat32) != 0 || exp2f32(float32(math.Inf(-1))) != 0 {
		t.Errorf("2^0, 2^-128, 2^-huge, 2^-inf = %g, %g, %g, %g", exp2f32(0), exp2f32(-128), exp2f32(-math.MaxFloat32), exp2f32(float32(math.Inf(-1))))
	}
	if x := exp2f32(float32(math.NaN())); x == x {
		t.Errorf("2^NaN = %g", x)
	}
}
