package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/internal/row"
)

func TestBadRowsFailAlone(t *testing.T) {
	requests := mixedRequests(12)
	requests[3].Tokens = nil
	requests[4].Tokens = make([]int32, 5000)
	requests[5].Tokens = []int32{1, fakeVocab, 2}
	requests[6].Tokens = []int32{-1}
	requests[7].Params.MaxTokens = 999
	requests[8].Params.Stop = []string{""}
	codes := map[int64]row.Code{3: row.EmptyPrompt, 4: row.ContextExceeded, 5: row.InvalidParams, 6: row.InvalidParams, 7: row.ContextExceeded, 8: row.InvalidParams}
	for id, c := range runAll(t, newFake(t, nil), requests, 3) {
		if code, bad := codes[id]; bad {
			if c.Err == nil || c.Err.Code != code || c.Attempts != 0 || c.Times != (row.Times{}) || c.FinishReason != row.FinishError {
				t.Errorf("row %d: %+v, want %s", id, c, code)
			}
			continue
		}
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
			t.Error(err)
		}
	}
}

func TestNonFiniteLogitsKeepTheTextSoFar(t *testing.T) {
	requests := mixedRequests(9)
	requests[4] = request(4, 20, func(p *Params) { p.MaxTokens, p.IgnoreEOS = 30, true })
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	prompt := fmt.Sprint(requests[4].Tokens)
	model.spoil = func(_ int32, seq []int32, logits []float32) {
		if len(seq) == 27 && fmt.Sprint(seq[:20]) == prompt {
			logits[fakeVocab-1] = float32(math.NaN())
		}
	}
	e := newFake(t, func(c *Config) { c.Model = model })
	for id, c := range runAll(t, e, requests, 0) {
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if id == 4 {
			short := *requests[4]
			short.Params.MaxTokens = 7
			want = expected(&short)
			want.FinishReason, want.Err = row.FinishError, row.Errorf(row.NonFiniteLogits, "")
		}
		if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
			t.Error(err)
		}
	}
}

func TestFailedStepsAreRepeatedRowByRow(t *testing.T) {
	for _, panics := range []bool{false, true} {
		requests := mixedRequests(14)
		culprit := requests[6]
		culprit.Tokens = []int32{38, 38, 38, 1}
		culprit.Params = DefaultParams()
		culprit.Params.MaxTokens, culprit.Params.IgnoreEOS = 20, true
		// No other row has this id at position 7.
		poison := expected(culprit).TokenIDs[3]
		once := true
		model := &fakeModel{vocab: fakeVocab, positions: 1000}
		model.broken = func(b *device.Batch) error {
			bad := once && len(b.Seqs) > 8 // one failure that is nobody's
			if bad {
				once = false
			}
			for _, s := range b.Seqs {
				// the token at position 7, the culprit's fourth, fails whatever chunk it comes in
				at := 7 - s.Past
				bad = bad || (at >= 0 && at < s.Len && b.Tokens[s.Start+at] == poison)
			}
			if bad && panics {
				panic("broken")
			}
			if bad {
				return errors.New("broken")
			}
			return nil
		}
		failures := 0
		e := newFake(t, func(c *Config) { c.Model = model; c.Events.OnFailure = func(error, int) { failures++ } })
		got := runAll(t, e, requests, 0)
		short := *culprit
		short.Params.MaxTokens = 4
		retried := 0
		for id, c := range got {
			want := expected(requests[id])
			want.Logprobs = c.Logprobs
			if id == culprit.ID {
				want = expected(&short)
				want.FinishReason, want.Err = row.FinishError, row.Errorf(row.Internal, "")
				if c.Err == nil || !strings.Contains(c.Err.Message, "broken") || strings.Contains(c.Err.Message, "\n") || !c.Err.Code.Retryable() {
					t.Errorf("the culprit's error: %v", c.Err)
				}
			}
			if err := errors.Join(same(c, want), wellFormed(c)); err != nil {
				t.Error(err)
			}
			if c.Attempts > 1 {
				retried++
			}
		}
		st := e.Stats()
		if failures < 3 || int64(failures) != st.FailedSteps || retried == 0 || st.Failed != 1 || st.KVUsed != 0 || st.RecomputedTokens == 0 {
			t.Errorf("%d failures, %d rows retried, stats %+v", failures, retried, st)
		}
	}
}

type panicMask struct{}

func (panicMask) Allowed(bits []uint64) { panic("mask") }

func (panicMask) Accept(int32) error { return nil }

type letterMask struct{ taken *[]int32 }

func (m letterMask) Allowed(bits []uint64) { bits[0] = 1<<1 | 1<<4 }

func (m letterMask) Accept(id int32) error {
	*m.taken = append(*m.taken, id)
	if len(*m.taken) == 5 {
		return errors.New("enough")
	}
	return nil
}

func TestMasksBelongToTheirRow(t *testing.T) {
	requests := mixedRequests(6)
	requests[2].Mask = panicMask{}
	var taken []int32
	requests[3] = request(3, 8, nil)
	requests[3].Mask = letterMask{&taken}
	got := runAll(t, newFake(t, nil), requests, 0)
	if err := got[2].Err; err == nil || err.Code != row.Internal {
		t.Errorf("a mask that panics: %v", err)
	}
	c := got[3]
	if c.Err == nil || c.Err.Code != row.InvalidConstraint || len(c.TokenIDs) != 4 || strings.Trim(c.Text, "be") != "" || len(c.Text) != 4 {
		t.Errorf("a mask of b and e that fails at the fifth: %+v", c)
	}
	for _, id := range []int64{0, 1, 4, 5} {
		want := expected(requests[id])
		want.Logprobs = got[id].Logprobs
		if err := same(got[id], want); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelDropsWhatIsInFlight(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	model := &fakeModel{vocab: fakeVocab, positions: 1000}
	steps := 0
	model.step = func(*device.Batch) {
		if steps++; steps == 5 {
			cancel()
		}
	}
	model.broken = func(*device.Batch) error { return ctx.Err() } // as between layers
	e := newFake(t, func(c *Config) { c.Model = model })
	var reported []Completion
	src := &listSource{requests: mixedRequests(50)}
	err := e.Run(ctx, src, func(c Completion) error { reported = append(reported, c); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Run returned %v", err)
	}
	for _, c := range reported {
		if c.Err != nil || len(c.TokenIDs) > 5 {
			t.Errorf("row %d was reported: %+v", c.ID, c)
		}
	}
	if st := e.Stats(); st.KVUsed != 0 || st.Running != 0 || st.Waiting != 0 || steps != 5 {
		t.Errorf("after a cancel: %+v", st)
	}
	model.step, model.broken = nil, nil
	requests := mixedRequests(20)
	for id, c := range runAll(t, e, requests, 0) { // the engine can be used again
		want := expected(requests[id])
		want.Logprobs = c.Logprobs
		if err := same(c, want); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelledBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	src := &listSource{requests: mixedRequests(3)}
	err := newFake(t, nil).Run(ctx, src, func(Completion) error { return nil })
	if !errors.Is(err, context.Canceled) || src.calls != 0 {
		t.Errorf("%v after %d requests", err, src.calls)
	}
}

// blockingSource waits for the context, as one does that is behind a slow reader.
type blockingSource struct{ calls int }

func (s *blockingSource) Next(ctx context.Context, wait bool) (*Request, error) {
	s.calls++
	if s.calls == 1 {
		return request(1, 4, nil), nil
	}
	if !wait {
		return nil, nil
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestCancelWhileWaitingForTheSource(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	n := 0
	err := newFake(t, nil).Run(ctx, &blockingSource{}, func(Completion) error { n++; return nil })
	if !errors.Is(err, context.DeadlineExceeded) || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
}

type brokenSource struct {
	err  error
	left int
}

func (s *brokenSource) Next(context.Context, bool) (*Request, error) {
	if s.left == 0 {
		return nil, s.err
	}
	s.left--
	return request(int64(s.left), 4, nil), nil
}

func TestSourceAndSinkErrorsEndTheRun(t *testing.T) {
	boom := errors.New("boom")
	e := newFake(t, nil)
	if err := e.Run(context.Background(), &brokenSource{boom, 3}, func(Completion) error { return nil }); !errors.Is(err, boom) {
		t.Errorf("a source's error: %v", err)
	}
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 3}, func(Completion) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("a sink's error: %v", err)
	}
	if err := e.Run(context.Background(), &brokenSource{nil, 0}, func(Completion) error { return nil }); err == nil {
		t.Error("a source that waits for nothing was accepted")
	}
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 0}, func(Completion) error { return nil }); err != nil {
		t.Errorf("an empty source: %v", err)
	}
	inner := func(Completion) error { return e.Run(context.Background(), &brokenSource{io.EOF, 0}, nil) }
	if err := e.Run(context.Background(), &brokenSource{io.EOF, 1}, inner); err == nil {
		t.Error("two runs at once were accepted")
	}
}
