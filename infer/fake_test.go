package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// fakeModel is a model without arithmetic: the logits of a token are a hash of its whole sequence, which is read back
// from the pages, so that a page given to two rows, a wrong position or a page read too far changes the result.
type fakeModel struct {
	vocab, positions int
	broken           func(b *device.Batch) error                   // an error, or a panic, of a whole step
	spoil            func(id int32, seq []int32, logits []float32) // after the logits of a row
	step             func(b *device.Batch)

	// toxic, where not 0, is a token of which the values are NaN: rows before it in its page, once it was written, become
	// NaN too.
	toxic int32
}

func (m *fakeModel) Limits() ModelLimits {
	return ModelLimits{VocabSize: m.vocab, MaxPositions: m.positions, KVBytesPerPage: kv.PageTokens}
}

func (m *fakeModel) NewCache(pages int) (Cache, error) {
	c := &fakeCache{m: m, ids: make([]int32, pages*kv.PageTokens)}
	for i := range c.ids {
		c.ids[i] = -1
	}
	return c, nil
}

type fakeCache struct {
	m   *fakeModel
	ids []int32 // [page][slot]
	seq []int32 // scratch
}

func (c *fakeCache) Close() error { return nil }

func (c *fakeCache) CopyPage(dst, src int32, tokens int) {
	to, from := c.ids[int(dst)*kv.PageTokens:][:kv.PageTokens], c.ids[int(src)*kv.PageTokens:]
	for i := range to {
		to[i] = -1
		if i < tokens {
			to[i] = from[i]
		}
	}
}

func (c *fakeCache) Forward(ctx context.Context, b *device.Batch, logits [][]float32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	limits := device.Limits{Vocab: c.m.vocab, Positions: c.m.positions, Pages: len(c.ids) / kv.PageTokens}
	if err := b.Validate(limits); err != nil {
		panic(err) // a fault of the scheduler, which must not look like a row's
	}
	if len(logits) != len(b.Logits) {
		panic("rows of logits")
	}
	if c.m.step != nil {
		c.m.step(b)
	}
	// Written in two passes: a page in two tables would show as a wrong token in one of them.
	for _, s := range b.Seqs {
		for i, id := range b.Tokens[s.Start : s.Start+s.Len] {
			pos := s.Past + i
			page := c.ids[int(s.Pages[pos/kv.PageTokens])*kv.PageTokens:][:kv.PageTokens]
			if page[pos%kv.PageTokens] = id; pos%kv.PageTokens == 0 {
				for j := range page[1:] {
					page[1+j] = -1
				}
			}
		}
	}
	if c.m.broken != nil {
		if err := c.m.broken(b); err != nil {
			for _, s := range b.Seqs { // the pages it wrote to are spoilt as a whole
				for _, page := range s.Pages[s.Past/kv.PageTokens : kv.PagesFor(s.Past+s.Len)] {
					for i := range kv.PageTokens {
						c.ids[int(page)*kv.PageTokens+i] = -2
					}
				}
			}
			return err
		}
	}
	for i, at := range b.Logits {
		for _, s := range b.Seqs {
			if int(at) < s.Start || int(at) >= s.Start+s.Len {
				continue
			}
			n := s.Past + int(at) - s.Start + 1
			seq := c.seq[:0]
			for pos := range n {
				seq = append(seq, c.ids[int(s.Pages[pos/kv.PageTokens])*kv.PageTokens+pos%kv.PageTokens])
			}
			c.seq = seq
			fakeLogits(seq, logits[i][:c.m.vocab])
			if c.m.spoil != nil {
				c.m.spoil(b.Tokens[at], seq, logits[i])
			}
			rest := c.ids[int(s.Pages[(n-1)/kv.PageTokens])*kv.PageTokens:][:kv.PageTokens][(n-1)%kv.PageTokens+1:]
			if c.m.toxic != 0 && slices.Contains(rest, c.m.toxic) {
				logits[i][0] = float32(math.NaN())
			}
		}
	}
	return nil
}

func fakeLogits(seq []int32, logits []float32) {
	h := uint64(len(seq))
	for _, id := range seq {
		h = mix64(h*31 + uint64(id) + 1)
	}
	for i := range logits {
		h = mix64(h + uint64(i))
		logits[i] = float32(h>>40) * 0x1p-24 * 8 // 0 to 8
	}
}

// fakeTokenizer spells ids 0..25 as letters, 26 and 27 as the two bytes of é, the rest as nothing.
type fakeTokenizer struct{}

const (
	fakeVocab = 40
	fakeEOS   = 39
)

func (fakeTokenizer) Bytes(id int32) []byte {
	switch {
	case id < 26:
		return []byte{'a' + byte(id)}
	case id == 26:
		return []byte{0xc3}
	case id == 27:
		return []byte{0xa9}
	}
	return nil
}

func (t fakeTokenizer) Token(id int32) (string, bool) {
	if id == fakeEOS {
		return "</s>", true
	}
	return string(t.Bytes(id)), id < 28
}

func (t fakeTokenizer) NewDecoder(skipSpecial bool) *fakeDecoder {
	if !skipSpecial {
		panic("special tokens belong to no completion")
	}
	return &fakeDecoder{}
}

type fakeDecoder struct{ held []byte }

func (d *fakeDecoder) Push(id int32) string {
	d.held = append(d.held, fakeTokenizer{}.Bytes(id)...)
	keep := 0
	if n := len(d.held); n > 0 && d.held[n-1] == 0xc3 {
		keep = 1
	}
	out := strings.ToValidUTF8(string(d.held[:len(d.held)-keep]), "\ufffd")
	d.held = append(d.held[:0], d.held[len(d.held)-keep:]...)
	return out
}

func (d *fakeDecoder) Flush() string {
	out := strings.ToValidUTF8(string(d.held), "\ufffd")
	d.held = nil
	return out
}

// listSource hands out requests, now and then claiming that none is ready.
type listSource struct {
	requests []*Request
	stutter  int // every so many calls without wait there is none; 0: never
	calls    int
	taken    func(*Request)
	closed   bool
}

func (s *listSource) Next(ctx context.Context, wait bool) (*Request, error) {
	s.calls++
	if s.closed {
		return nil, errors.New("called after io.EOF")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !wait && s.stutter > 0 && s.calls%s.stutter == 0 {
		return nil, nil
	}
	if len(s.requests) == 0 {
		s.closed = true
		return nil, io.EOF
	}
	q := s.requests[0]
	s.requests = s.requests[1:]
	if s.taken != nil {
		s.taken(q)
	}
	return q, nil
}

func fakeConfig(m *fakeModel) Config {
	return Config{Model: m, Tokenizer: FromTokenizer(fakeTokenizer{}), EOS: []int32{fakeEOS}, Threads: 1}
}

func newFake(t testing.TB, change func(*Config)) *Engine {
	t.Helper()
	cfg := fakeConfig(&fakeModel{vocab: fakeVocab, positions: 1000})
	if change != nil {
		change(&cfg)
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// runAll runs copies of the requests and returns the completions by id.
func runAll(t testing.TB, e *Engine, requests []*Request, stutter int) map[int64]Completion {
	t.Helper()
	got, err := tryAll(e, requests, stutter)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func tryAll(e *Engine, requests []*Request, stutter int) (map[int64]Completion, error) {
	src := &listSource{stutter: stutter}
	for _, q := range requests {
		c := *q
		src.requests = append(src.requests, &c)
	}
	got := map[int64]Completion{}
	err := e.Run(context.Background(), src, func(c Completion) error {
		if _, twice := got[c.ID]; twice {
			return fmt.Errorf("row %d completed twice", c.ID)
		}
		got[c.ID] = c
		return nil
	})
	if err == nil && len(got) != len(requests) {
		err = fmt.Errorf("%d completions of %d requests", len(got), len(requests))
	}
	return got, err
}

// expected computes a completion the plain way: one row, no batch, no pages, all text decoded at once.
func expected(q *Request) Completion {
	p := q.Params
	if p.MaxTokens == 0 {
		p.MaxTokens = DefaultMaxTokens
	}
	c := Completion{ID: q.ID, PromptTokens: len(q.Tokens), FinishReason: row.FinishLength}
	var sm sampler
	seq := append([]int32(nil), q.Tokens...)
	var hist *history
	if p.penalises() {
		hist = newHistory(seq)
	}
	text := func() string {
		d := &fakeDecoder{}
		s := ""
		for _, id := range c.TokenIDs {
			s += d.Push(id)
		}
		return s
	}
	for len(c.TokenIDs) < p.MaxTokens {
		logits := make([]float32, fakeVocab)
		fakeLogits(seq, logits)
		ch, err := sm.sample(logits, &p, hist, nil, q.Seed, len(c.TokenIDs))
		if err != nil {
			panic(err)
		}
		if ch.id == fakeEOS && !p.IgnoreEOS {
			c.FinishReason, c.StopReason, c.HasStop = row.FinishStop, "</s>", true
			break
		}
		seq = append(seq, ch.id)
		c.TokenIDs = append(c.TokenIDs, ch.id)
		if hist != nil {
			hist.add(ch.id)
		}
		if at, stop := earliestStop(text(), p.Stop); at >= 0 {
			c.Text, c.FinishReason, c.StopReason, c.HasStop = text()[:at], row.FinishStop, stop, true
			c.CompletionTokens = len(c.TokenIDs)
			return c
		}
	}
	c.Text = text()
	if n := len(c.TokenIDs); n > 0 && lastSpelled(c.TokenIDs) == 26 {
		c.Text += "\ufffd" // half a character at the end
	}
	c.CompletionTokens = len(c.TokenIDs)
	return c
}

// lastSpelled is the last id that has bytes.
func lastSpelled(ids []int32) int32 {
	for i := len(ids) - 1; i >= 0; i-- {
		if ids[i] < 28 {
			return ids[i]
		}
	}
	return -1
}

func earliestStop(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (at < 0 || i < at || i == at && len(s) < len(stop)) {
			at, stop = i, s
		}
	}
	return at, stop
}

// same compares what is part of a row's result.
func same(a, b Completion) error {
	key := func(c Completion) string {
		var code row.Code
		if c.Err != nil {
			code = c.Err.Code
		}
		logprobs := ""
		for _, l := range c.Logprobs {
			logprobs += fmt.Sprintf("%d:%x", l.ID, math.Float64bits(l.Logprob))
			for _, o := range l.Top {
				logprobs += fmt.Sprintf("/%d:%x", o.ID, math.Float64bits(o.Logprob))
			}
		}
		return fmt.Sprintf("text %q ids %v reason %s stop %q %v tokens %d+%d code %q logprobs %s", c.Text, c.TokenIDs,
			c.FinishReason, c.StopReason, c.HasStop, c.PromptTokens, c.CompletionTokens, code, logprobs)
	}
	if key(a) != key(b) {
		return fmt.Errorf("row %d:\n%s\nwant\n%s", a.ID, key(a), key(b))
	}
	return nil
}

// wellFormed checks what holds for every completion.
func wellFormed(c Completion) error {
	switch {
	case !utf8.ValidString(c.Text):
		return fmt.Errorf("row %d: text %q is no UTF-8", c.ID, c.Text)
	case c.CompletionTokens != len(c.TokenIDs):
		return fmt.Errorf("row %d: %d completion tokens and %d ids", c.ID, c.CompletionTokens, len(c.TokenIDs))
	case c.Logprobs != nil && len(c.Logprobs) != len(c.TokenIDs):
		return fmt.Errorf("row %d: %d logprobs and %d ids", c.ID, len(c.Logprobs), len(c.TokenIDs))
	case (c.Err != nil) != (c.FinishReason == row.FinishError):
		return fmt.Errorf("row %d: finish reason %s with error %v", c.ID, c.FinishReason, c.Err)
	case c.HasStop != (c.FinishReason == row.FinishStop):
		return fmt.Errorf("row %d: finish reason %s with stop %v", c.ID, c.FinishReason, c.HasStop)
	case c.Times.Queue < 0 || c.Times.Prefill < 0 || c.Times.Decode < 0:
		return fmt.Errorf("row %d: times %+v", c.ID, c.Times)
	case c.Times.E2E() != c.Times.Queue+c.Times.Prefill+c.Times.Decode || c.Times.TTFT() != c.Times.Queue+c.Times.Prefill:
		return fmt.Errorf("row %d: times %+v do not add up", c.ID, c.Times)
	case c.CompletionTokens < 2 && c.Times.Decode != 0:
		return fmt.Errorf("row %d: %d tokens took %v to decode", c.ID, c.CompletionTokens, c.Times.Decode)
	}
	return nil
}

// tick is a clock that moves by one millisecond whenever it is read.
func tick() func() time.Time {
	now := time.Unix(1_000_000, 0)
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}
