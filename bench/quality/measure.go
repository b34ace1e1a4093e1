package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/gguf"
	"github.com/batchmill/batchmill/infer/model"
)

const (
	// chunk is how many tokens a step computes: their logits are held for every mode at once.
	chunk = 128
	// window and its scored half follow llama-perplexity's defaults, so that its figure can stand beside ours.
	window = 512
)

// subject is a model in one mode.
type subject struct {
	mode  cpu.Activations
	dev   *cpu.Device
	model *model.Model
	cache *model.Cache
	rows  [][]float32 // [chunk][vocab]
	tally tally
}

// tally adds up what is scored.
type tally struct {
	n, agree     int
	nll          float64
	kl, worst    float64
	windows      int
	windowsTotal float64
}

// measure computes the text once as a whole and once by windows. The first mode is the reference.
func measure(ctx context.Context, file string, s *sample, modes []cpu.Activations, threads int) (results []*result, err error) {
	f, err := gguf.OpenPath(ctx, file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []*subject
	defer func() {
		for _, a := range all {
			err = errors.Join(err, a.close())
		}
	}()
	for _, mode := range modes {
		a, err := open(ctx, f, mode, threads, len(s.IDs))
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	if err := whole(ctx, all, s.IDs); err != nil {
		return nil, err
	}
	if err := byWindows(ctx, all, s.IDs); err != nil {
		return nil, err
	}
	reference := all[0].tally.perplexity()
	for _, a := range all {
		t := &a.tally
		r := &result{
			File: file, Mode: string(a.mode), Tokens: t.n, Perplexity: t.perplexity(), Change: t.perplexity()/reference - 1,
			MeanKL: t.kl / float64(t.n), MaxKL: t.worst, Agreement: float64(t.agree) / float64(t.n),
		}
		if t.windows > 0 {
			r.Windows = math.Exp(t.windowsTotal / float64(t.windows))
		}
		if filepath.Base(file) == s.File {
			r.Golden = s.Perplexity
		}
		results = append(results, r)
	}
	return results, nil
}

func (t *tally) perplexity() float64 { return math.Exp(t.nll / float64(t.n)) }

// open loads the file in one mode, with a cache for so many tokens.
func open(ctx context.Context, f *gguf.File, mode cpu.Activations, threads, tokens int) (*subject, error) {
	dev, err := cpu.New(cpu.Config{Threads: threads, Activations: mode})
	if err != nil {
		return nil, err
	}
	a := &subject{mode: mode, dev: dev}
	if a.model, err = model.Load(ctx, model.Source{Weights: f, Metadata: f}, dev, model.Options{}); err != nil {
		return nil, errors.Join(err, a.close())
	}
	conf := a.model.Config()
	if tokens > conf.MaxPositions {
		return nil, errors.Join(fmt.Errorf("the text has %d tokens, the model %d positions", tokens, conf.MaxPositions), a.close())
	}
	if a.cache, err = a.model.NewCache(device.PagesFor(tokens)); err != nil {
		return nil, errors.Join(err, a.close())
	}
	for range chunk {
		a.rows = append(a.rows, make([]float32, conf.VocabSize))
	}
	return a, nil
}

func (a *subject) close() error {
	var errs []error
	if a.cache != nil {
		errs = append(errs, a.cache.Close())
	}
	if a.model != nil {
		errs = append(errs, a.model.Close())
	}
	return errors.Join(append(errs, a.dev.Close())...)
}

// step computes ids at positions from past on and returns the logits of each.
func (a *subject) step(ctx context.Context, ids []int32, past int) ([][]float32, error) {
	n := len(ids)
	b := &device.Batch{Tokens: ids, Positions: make([]int32, n), Logits: make([]int32, n)}
	pages := make([]int32, device.PagesFor(past+n))
	for i := range pages {
		pages[i] = int32(i)
	}
	for i := range n {
		b.Positions[i], b.Logits[i] = int32(past+i), int32(i)
	}
	b.Seqs = []device.Seq{{Len: n, Past: past, Pages: pages}}
	if err := a.model.Forward(ctx, a.cache, b, a.rows[:n]); err != nil {
		return nil, err
	}
	return a.rows[:n], nil
}

// whole scores every token of the text behind the first, each with all before it in sight.
func whole(ctx context.Context, all []*subject, ids []int32) error {
	var reference, other []float64
	for from := 0; from < len(ids)-1; from += chunk {
		part := ids[from:min(from+chunk, len(ids)-1)]
		var want [][]float32
		for i, a := range all {
			got, err := a.step(ctx, part, from)
			if err != nil {
				return err
			}
			if i == 0 {
				want = got
			}
			for j := range part {
				reference, other = logSoftmax(reference, want[j]), logSoftmax(other, got[j])
				next := ids[from+j+1]
				a.tally.add(reference, other, int(next))
			}
		}
	}
	return nil
}

// byWindows scores the later half of each whole window, which sees nothing before the window.
func byWindows(ctx context.Context, all []*subject, ids []int32) error {
	var logp []float64
	for start := 0; start+window <= len(ids); start += window {
		for _, a := range all {
			for from := 0; from < window; from += chunk {
				got, err := a.step(ctx, ids[start+from:start+from+chunk], from)
				if err != nil {
					return err
				}
				for j := range got {
					if at := from + j; at >= window/2 && at < window-1 {
						logp = logSoftmax(logp, got[j])
						a.tally.windows++
						a.tally.windowsTotal -= logp[ids[start+at+1]]
					}
				}
			}
		}
	}
	return nil
}

// add scores one token: reference and other are log-probabilities.
func (t *tally) add(reference, other []float64, next int) {
	t.n++
	t.nll -= other[next]
	kl, best, same := 0.0, 0, 0
	for i, r := range reference {
		kl += math.Exp(r) * (r - other[i])
		if r > reference[best] {
			best = i
		}
		if other[i] > other[same] {
			same = i
		}
	}
	t.kl += kl
	t.worst = max(t.worst, kl)
	if best == same {
		t.agree++
	}
}

// logSoftmax writes the log-probabilities of a row of logits to dst, which it may have to make larger.
func logSoftmax(dst []float64, logits []float32) []float64 {
	if cap(dst) < len(logits) {
		dst = make([]float64, len(logits))
	}
	dst = dst[:len(logits)]
	top := math.Inf(-1)
	for i, l := range logits {
		dst[i] = float64(l)
		top = max(top, dst[i])
	}
	sum := 0.0
	for _, l := range dst {
		sum += math.Exp(l - top)
	}
	shift := top + math.Log(sum)
	for i := range dst {
		dst[i] -= shift
	}
	return dst
}
