package model

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
)

// benchDevice takes the instruction set, the threads and the activations of a benchmark from the environment:
// BATCHMILL_BENCH_ISA, BATCHMILL_BENCH_THREADS, BATCHMILL_BENCH_ACTIVATIONS.
func benchDevice(b *testing.B) *cpu.Device {
	threads, _ := strconv.Atoi(os.Getenv("BATCHMILL_BENCH_THREADS"))
	return newDevice(b, cpu.Config{
		ISA: os.Getenv("BATCHMILL_BENCH_ISA"), Threads: threads, Activations: cpu.Activations(os.Getenv("BATCHMILL_BENCH_ACTIVATIONS")),
	})
}

// benchBatch makes a step of several sequences of equal length in a cache of their own.
func benchBatch(seqs, past, tokens int) *device.Batch {
	b := &device.Batch{}
	pages := device.PagesFor(past + tokens)
	for s := range seqs {
		q := device.Seq{Start: len(b.Tokens), Len: tokens, Past: past}
		for p := range pages {
			q.Pages = append(q.Pages, int32(s*pages+p))
		}
		for i := range tokens {
			b.Tokens = append(b.Tokens, int32((s*7919+i*104729)%49152))
			b.Positions = append(b.Positions, int32(past+i))
		}
		b.Logits = append(b.Logits, int32(len(b.Tokens)-1))
		b.Seqs = append(b.Seqs, q)
	}
	return b
}

func rowsFor(b *device.Batch, vocab int) [][]float32 {
	rows := make([][]float32, len(b.Logits))
	for i := range rows {
		rows[i] = make([]float32, vocab)
	}
	return rows
}

// BenchmarkPrefill computes prompts of 512 tokens, one a step, as llama-bench -p 512 does.
func BenchmarkPrefill(b *testing.B) {
	m := load(b, smollm2(b), benchDevice(b), Options{})
	c, err := m.NewCache(device.PagesFor(512))
	if err != nil {
		b.Fatal(err)
	}
	batch := benchBatch(1, 0, 512)
	rows := rowsFor(batch, m.Config().VocabSize)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Forward(b.Context(), c, batch, rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

// BenchmarkDecode computes one token of each of several sequences with some tokens behind them.
func BenchmarkDecode(b *testing.B) {
	m := load(b, smollm2(b), benchDevice(b), Options{})
	for _, c := range []struct{ seqs, past int }{{1, 65}, {4, 65}, {14, 65}, {16, 65}, {16, 257}, {64, 257}} {
		b.Run(fmt.Sprintf("%dx%d", c.seqs, c.past), func(b *testing.B) {
			n, past := c.seqs, c.past
			batch := benchBatch(n, past, 1)
			c, err := m.NewCache(n * device.PagesFor(past+1))
			if err != nil {
				b.Fatal(err)
			}
			rows := rowsFor(batch, m.Config().VocabSize)
			b.ReportAllocs()
			for b.Loop() {
				if err := m.Forward(b.Context(), c, batch, rows); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}
