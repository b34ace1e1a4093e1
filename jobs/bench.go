package jobs

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/internal/objstore"
)

// BenchOptions size a measurement. Zero values are the defaults in parentheses.
type BenchOptions struct {
	Model        string
	Threads      int
	PromptTokens int // length of a prompt (512)
	Prompts      int // prompts of the prefill measurement (4)
	Seqs         int // sequences that decode at once (16)
	DecodeTokens int // tokens each of them decodes (64)
	DecodePast   int // prompt tokens of each of them (32)
	Repeat       int // the best of so many runs counts (3)
	BatchTokens  int
}

// BenchResult is what the machine did, the best of the repeats; rates are tokens per second.
type BenchResult struct {
	Model        string  `json:"model"`
	ModelDigest  string  `json:"model_digest"`
	Device       string  `json:"device"`
	PromptTokens int     `json:"prompt_tokens"`
	Prompts      int     `json:"prompts"`
	Seqs         int     `json:"seqs"`
	DecodeTokens int     `json:"decode_tokens"`
	Repeat       int     `json:"repeat"`
	Load         float64 `json:"load_s"`
	Prefill      float64 `json:"prefill_tokens_per_s"`
	Decode       float64 `json:"decode_tokens_per_s"`
	Single       float64 `json:"decode_single_tokens_per_s"` // one sequence alone
	PeakRSS      *int64  `json:"peak_rss_bytes"`
}

func (o BenchOptions) withDefaults() BenchOptions {
	for _, d := range []struct {
		p *int
		v int
	}{{&o.PromptTokens, 512}, {&o.Prompts, 4}, {&o.Seqs, 16}, {&o.DecodeTokens, 64}, {&o.DecodePast, 32}, {&o.Repeat, 3}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	return o
}

// Bench measures prefill and decode of the engine alone, on synthetic prompts.
func Bench(ctx context.Context, store *objstore.Store, o BenchOptions) (*BenchResult, error) {
	o = o.withDefaults()
	b, err := OpenModel(ctx, o.Model, store, nil)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	began := time.Now()
	l, err := loadModel(ctx, b, o.Threads)
	if err != nil {
		return nil, err
	}
	defer l.close()
	res := &BenchResult{
		Model: b.Name, ModelDigest: b.Digest, Device: l.dev.Name(), PromptTokens: o.PromptTokens, Prompts: o.Prompts, Seqs: o.Seqs,
		DecodeTokens: o.DecodeTokens, Repeat: o.Repeat, Load: seconds(time.Since(began).Seconds()),
	}
	length := max(o.PromptTokens+1, o.DecodePast+o.DecodeTokens)
	if most := l.config.MaxPositions; length > most {
		return nil, Errorf(Usage, "use shorter prompts", "%d tokens a sequence exceed the model's %d", length, most)
	}
	pages := int64(device.PagesFor(length)) * int64(max(o.Prompts, o.Seqs))
	meter := &stepMeter{}
	eng, err := infer.New(infer.Config{
		Model: l.forwarder(), Tokenizer: infer.FromTokenizer(b.Tokenizer), BatchTokens: o.BatchTokens, MaxSeqs: max(o.Prompts, o.Seqs), MaxModelLen: length,
		KVMemory: pages * l.config.KVBytesPerPage, Threads: o.Threads, Events: infer.Events{OnStep: meter.step},
	})
	if err != nil {
		return nil, Errorf(Config, "", "start the engine: %w", err)
	}
	defer eng.Close()
	runs := []struct {
		seqs, prompt, tokens int
		rate                 func() float64
		to                   *float64
	}{
		{o.Prompts, o.PromptTokens, 1, meter.prefillRate, &res.Prefill},
		{o.Seqs, o.DecodePast, o.DecodeTokens, meter.decodeRate, &res.Decode},
		{1, o.DecodePast, o.DecodeTokens, meter.decodeRate, &res.Single},
	}
	for range o.Repeat {
		for _, run := range runs {
			*meter = stepMeter{}
			src := &benchSource{vocab: l.config.VocabSize, seqs: run.seqs, prompt: run.prompt, tokens: run.tokens}
			if err := eng.Run(ctx, src, func(c infer.Completion) error {
				if c.Err != nil {
					return fmt.Errorf("a synthetic row failed: %w", c.Err)
				}
				return nil
			}); err != nil {
				return nil, err
			}
			*run.to = max(*run.to, run.rate())
		}
	}
	res.PeakRSS = peakRSS()
	return res, nil
}

// stepMeter tells prefill from decode by what a step computed.
type stepMeter struct {
	prefill, decode         int
	prefillTime, decodeTime time.Duration
}

func (m *stepMeter) step(s infer.StepStats) {
	if s.Prefill > 0 {
		m.prefill += s.Prefill
		m.prefillTime += s.Duration
		return
	}
	m.decode += s.Decode
	m.decodeTime += s.Duration
}

func (m *stepMeter) prefillRate() float64 { return perSecond(m.prefill, m.prefillTime) }
func (m *stepMeter) decodeRate() float64  { return perSecond(m.decode, m.decodeTime) }

func perSecond(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// benchSource makes prompts of pseudo-random ids, no two alike.
type benchSource struct {
	vocab, seqs, prompt, tokens int
	made                        int
}

// Next implements infer.Source.
func (s *benchSource) Next(ctx context.Context, _ bool) (*infer.Request, error) {
	if s.made == s.seqs {
		return nil, io.EOF
	}
	r := &infer.Request{ID: int64(s.made), Tokens: make([]int32, s.prompt), Params: infer.DefaultParams()}
	r.Params.MaxTokens, r.Params.IgnoreEOS = s.tokens, true
	for i := range r.Tokens {
		r.Tokens[i] = int32((uint64(s.made+1)*1_000_003 + uint64(i)*7919) % uint64(s.vocab))
	}
	s.made++
	return r, ctx.Err()
}
