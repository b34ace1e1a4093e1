package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/device"
)

// The simulation runs the real engine over a model whose completions are known and whose steps have a price: orders are
// compared by what they cost, without a clock.

// simVocab is also the longest completion: a token n is followed by n-1, and 0 is the end token, so that a prompt's last
// token says how long its completion is.
const simVocab = 512

// simFloor is the price of a step in tokens below which it does not fall: reading the weights takes as long as computing
// so many tokens. 40 is that of a small model on two cores: 100 MB at 10 GB/s against 4,000 tokens/s.
const simFloor = 40

type simModel struct {
	steps, tokens, cost int
}

func (m *simModel) Limits() infer.ModelLimits {
	return infer.ModelLimits{VocabSize: simVocab, MaxPositions: 1 << 14, KVBytesPerPage: infer.PageTokens}
}

func (m *simModel) NewCache(int) (infer.Cache, error) { return m, nil }

func (m *simModel) Close() error { return nil }

func (m *simModel) CopyPage(dst, src int32, tokens int) {}

func (m *simModel) Forward(_ context.Context, b *device.Batch, logits [][]float32) error {
	m.steps++
	m.tokens += len(b.Tokens)
	m.cost += max(simFloor, len(b.Tokens))
	for i, at := range b.Logits {
		clear(logits[i])
		logits[i][max(0, b.Tokens[at]-1)] = 1
	}
	return nil
}

type simTokenizer struct{}

type simDecoder struct{}

func (simDecoder) Push(int32) string            { return "x" }
func (simDecoder) Flush() string                { return "" }
func (simTokenizer) NewDecoder(bool) simDecoder { return simDecoder{} }
func (simTokenizer) Token(int32) (string, bool) { return "x", true }
func (simTokenizer) Bytes(int32) []byte         { return []byte("x") }
func simUnit(prompt, output, maxTokens, row int) *Unit {
	return simShared(nil, prompt, output, maxTokens, row)
}

// simShared is a unit whose prompt is a shared head, a body of its own, and the length of its completion.
func simShared(head []int32, body, output, maxTokens, row int) *Unit {
	u := &Unit{Request: infer.Request{Params: infer.DefaultParams()}}
	u.Key.Row = int64(row)
	u.Request.Params.MaxTokens = maxTokens
	r := rand.New(rand.NewSource(int64(row)))
	u.Request.Tokens = append(u.Request.Tokens, head...)
	for range body - 1 {
		u.Request.Tokens = append(u.Request.Tokens, int32(1+r.Intn(simVocab-1)))
	}
	u.Request.Tokens = append(u.Request.Tokens, int32(output)+1)
	return u
}

// simSource keeps the window as full as it may be, as a producer does that is faster than the engine.
type simSource struct {
	source
	units []*Unit
}

func (s *simSource) Next(ctx context.Context, wait bool) (*infer.Request, error) {
	for len(s.units) > 0 && len(s.w.next)+len(s.w.current) < s.w.maxRows {
		if err := s.w.push(ctx, s.units[0]); err != nil {
			return nil, err
		}
		s.units = s.units[1:]
	}
	if len(s.units) == 0 && !s.w.closed {
		s.w.close(nil)
	}
	return s.source.Next(ctx, wait)
}

// simulate runs the units in a window of some rows and an order, and returns what it cost.
func simulate(t *testing.T, units []*Unit, rows int, kv int64, arrange func(*calibrator) func([]*Unit) []*Unit) (*simModel, infer.Stats) {
	t.Helper()
	m := &simModel{}
	eng, err := infer.New(infer.Config{Model: m, Tokenizer: infer.FromTokenizer(simTokenizer{}), EOS: []int32{0}, Threads: 1, KVMemory: kv, MaxSeqs: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	calib := newCalibrator()
	w := newWindow(rows, 1<<40, 0, arrange(calib), calib.epoch)
	src := &simSource{source: source{w: w, running: map[int64]*Unit{}}, units: slices.Clone(units)}
	done := 0
	err = eng.Run(context.Background(), src, func(c infer.Completion) error {
		u := src.finish(c.ID)
		if want := int(u.Request.Tokens[len(u.Request.Tokens)-1]) - 1; c.Err != nil || c.CompletionTokens != min(want, u.Request.Params.MaxTokens) {
			return fmt.Errorf("row %d came to %d tokens, %v", u.Key.Row, c.CompletionTokens, c.Err)
		}
		calib.note(u.Request.Params.MaxTokens, c.PromptTokens, c.CompletionTokens)
		done++
		return nil
	})
	if err != nil || done != len(units) {
		t.Fatalf("%d of %d rows, %v", done, len(units), err)
	}
	return m, eng.Stats()
}

func planned(c *calibrator) func([]*Unit) []*Unit { return (&order{expect: c.expect}).arrange }

func fifo(*calibrator) func([]*Unit) []*Unit {
	return func(units []*Unit) []*Unit { return slices.Clone(units) }
}

func longestPromptFirst(*calibrator) func([]*Unit) []*Unit {
	return func(units []*Unit) []*Unit {
		units = slices.Clone(units)
		slices.SortStableFunc(units, func(a, b *Unit) int { return cmp.Compare(len(b.Request.Tokens), len(a.Request.Tokens)) })
		return units
	}
}

// mixedLoad has three kinds of rows in random order: chats, long documents with short answers, short questions with long
// answers.
func mixedLoad(n int, limit func(output int) int) []*Unit {
	r := rand.New(rand.NewSource(5))
	var units []*Unit
	for i := range n {
		prompt, output := 20+r.Intn(80), 16+r.Intn(48)
		switch r.Intn(10) {
		case 0:
			prompt, output = 20+r.Intn(40), 350+r.Intn(150)
		case 1, 2:
			prompt, output = 400+r.Intn(1200), 4+r.Intn(12)
		}
		units = append(units, simUnit(prompt, output, limit(output), i))
	}
	return units
}

// learntLoad has one max_tokens for all rows, far above what they need: short prompts ask for long completions and long
// ones for short completions, which only rows that ended can tell.
func learntLoad(n int) []*Unit {
	r := rand.New(rand.NewSource(6))
	var units []*Unit
	for i := range n {
		prompt, output := 20+r.Intn(40), 200+r.Intn(200)
		if r.Intn(4) > 0 {
			prompt, output = 260+r.Intn(240), 4+r.Intn(12)
		}
		units = append(units, simUnit(prompt, output, simVocab, i))
	}
	return units
}

// TestThePlannedOrderCostsLess compares what an order costs above the least that any order can cost: all tokens in full
// steps.
func TestThePlannedOrderCostsLess(t *testing.T) {
	exact := func(output int) int { return output }
	for _, l := range []struct {
		name  string
		units []*Unit
		rows  int // of the window
	}{
		{"max_tokens of each row known", mixedLoad(400, exact), 2048},
		{"several generations", mixedLoad(1200, exact), 300},
		{"one max_tokens for all", learntLoad(600), 2048},
	} {
		above := func(arrange func(*calibrator) func([]*Unit) []*Unit) float64 {
			m, _ := simulate(t, l.units, l.rows, 1<<30, arrange)
			return float64(m.cost)/float64(m.tokens) - 1
		}
		ours, in, longest := above(planned), above(fifo), above(longestPromptFirst)
		t.Logf("%s: above the bound: planned %.2f%%, as they come %.2f%%, longest prompt first %.2f%%", l.name, 100*ours, 100*in, 100*longest)
		if ours > 0.7*min(in, longest) {
			t.Errorf("%s: planned %.4f, as they come %.4f, longest prompt first %.4f", l.name, ours, in, longest)
		}
	}
}

// TestGroupsOfPrefixesAreComputedOnce: in a pool that holds the prefixes of a few groups only, rows that come in any order
// compute prefixes again and again.
func TestGroupsOfPrefixesAreComputedOnce(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	units := treeLoad(r, 10, 4, 12)
	prompts := int64(0)
	for _, u := range units {
		prompts += int64(len(u.Request.Tokens))
	}
	best := SharedTokens(slices.Clone(units))
	for _, pages := range []int64{200, 100_000} {
		ours, st := simulate(t, units, 2048, pages*infer.PageTokens, planned)
		in, other := simulate(t, units, 2048, pages*infer.PageTokens, fifo)
		t.Logf("%d pages: of %d prompt tokens %d can be shared; planned %d, cost %d; as they come %d, cost %d", pages, prompts, best, st.CachedTokens, ours.cost, other.CachedTokens, in.cost)
		if st.PrefillTokens+st.CachedTokens != prompts {
			t.Errorf("%d pages: %d tokens computed and %d shared, of %d", pages, st.PrefillTokens, st.CachedTokens, prompts)
		}
		if float64(st.CachedTokens) < 0.9*float64(best) {
			t.Errorf("%d pages: %d tokens shared, of %d that can be", pages, st.CachedTokens, best)
		}
		if pages == 200 && ours.cost > in.cost/2 {
			t.Errorf("%d pages: planned %d, as they come %d", pages, ours.cost, in.cost)
		}
	}
}
