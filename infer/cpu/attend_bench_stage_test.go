package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/batchmill/batchmill/infer/device"
)

// BenchmarkStages8 measures the kernels of integer attention one by one: 16 rows and a span of 128 keys, heads of 64.
func BenchmarkStages8(b *testing.B) {
	const dim, ldq = 64, 64
	r := rand.New(rand.NewPCG(1, 1))
	span := randomSpan(r, dim, false)
	for _, page := range span {
		for i := range at(page, scalesAt(dim), 2*device.PageTokens) {
			at(page, scalesAt(dim), 2*device.PageTokens)[i] = 0.02 + 0.01*r.Float32()
		}
	}
	q, s, p := aligned(stripRows8*ldq/4), aligned(stripRows8*spanTokens), aligned(stripRows8*spanTokens/4)
	o, acc := aligned(stripRows8*dim), aligned(stripRows8*dim)
	randomCodes(r, rawBytes(q), false)
	st := newRows8()
	st.start(stripRows8)
	for i := range stripRows8 {
		st.c[i] = 0.001 * (1 + r.Float32())
	}
	scores8Go(stripRows8, spanPages, dim, ldq, ptr(q, 0), span, ptr(s, 0), st)
	pad := newScratch8(dim)
	for i := range pad.strips {
		pad.strips[i].q, pad.strips[i].st = ptr(q, 0), st
	}
	saved := append([]float32{}, s...)
	for _, isa := range available() {
		if isa.name == "portable" {
			continue
		}
		k := isa.attention()
		for _, stage := range []struct {
			name string
			f    func(rows int)
		}{
			{"scores", func(rows int) { k.scores(rows, spanPages, dim, ldq, ptr(q, 0), span, ptr(s, 0), st) }},
			{"softmax", func(rows int) {
				copy(s, saved)
				k.softmax(rows, spanPages, scalesAt(dim), ptr(s, 0), ptr(p, 0), span, st, 0)
			}},
			{"values", func(rows int) { k.values(rows, spanPages, dim, ptr(p, 0), span, ptr(o, 0)) }},
			{"add", func(rows int) { k.add(rows, dim, ptr(o, 0), ptr(acc, 0), st) }},
			{"all", func(rows int) {
				strips := pad.strips[:min(itemStrips, rows)]
				for i := range strips {
					strips[i].rows, strips[i].pages = rows, spanPages
				}
				k.span(strips, dim, ldq, span, &pad.pad)
			}},
		} {
			for _, rows := range []int{3, 16} {
				b.Run(isa.name+"/"+stage.name+"/"+string(rune('0'+rows/10))+string(rune('0'+rows%10)), func(b *testing.B) {
					for b.Loop() {
						stage.f(rows)
					}
					n := 1
					if stage.name == "all" {
						n = min(itemStrips, rows)
					}
					b.ReportMetric(float64(n)*float64(4*dim*rows*spanTokens*b.N)/b.Elapsed().Seconds()/1e9, "Gop/s")
				})
			}
		}
	}
}
