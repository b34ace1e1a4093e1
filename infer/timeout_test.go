package infer

import (
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// timeoutRequests are rows of different lengths.
func timeoutRequests(tokens ...int) []*Request {
	var list []*Request
	for i, n := range tokens {
		p := DefaultParams()
		p.MaxTokens, p.IgnoreEOS = n, true
		list = append(list, &Request{ID: int64(i), Tokens: []int32{int32(i), 2, 3}, Params: p})
	}
	return list
}

// ticking makes an engine whose clock moves by a second in every step.
func ticking(t *testing.T, change func(*Config)) *Engine {
	now := time.Unix(1000, 0)
	m := &fakeModel{vocab: fakeVocab, positions: 1000, step: func(*device.Batch) { now = now.Add(time.Second) }}
	e := newFake(t, func(c *Config) {
		c.Model, c.NoSpeculation = m, true
		change(c)
	})
	e.now = func() time.Time { return now }
	return e
}

func TestRowTimeout(t *testing.T) {
	requests := timeoutRequests(100, 5, 60)
	want := runAll(t, ticking(t, func(*Config) {}), requests, 0)
	got := runAll(t, ticking(t, func(c *Config) { c.RowTimeout = 20 * time.Second }), requests, 0)
	if got[1].Err != nil || got[1].Text != want[1].Text {
		t.Errorf("a short row: %+v, want %+v", got[1], want[1])
	}
	for _, id := range []int64{0, 2} {
		c := got[id]
		if c.Err == nil || c.Err.Code != row.Timeout || !c.Err.Code.Retryable() || c.FinishReason != row.FinishError {
			t.Fatalf("row %d: %+v, want a timeout", id, c)
		}
		if c.CompletionTokens < 18 || c.CompletionTokens > 22 || c.Text == "" || !strings.HasPrefix(want[id].Text, c.Text) {
			t.Errorf("row %d has %d tokens %q, want about 20, the beginning of %q", id, c.CompletionTokens, c.Text, want[id].Text)
		}
	}
}

// TestRowTimeoutOfPreemptedRows has so few pages that rows time out while they wait to go on; all pages must come back.
func TestRowTimeoutOfPreemptedRows(t *testing.T) {
	preempted := 0
	e := ticking(t, func(c *Config) {
		c.RowTimeout, c.KVMemory = 150*time.Second, 9*kv.PageTokens
		c.Events.OnPreempt = func(int64, int) { preempted++ }
	})
	e.firstShare = 0
	late := 0
	for id, c := range runAll(t, e, timeoutRequests(200, 200, 200, 200, 10), 0) {
		if c.Err != nil {
			if late++; c.Err.Code != row.Timeout {
				t.Errorf("row %d: %v", id, c.Err)
			}
		}
	}
	if preempted == 0 || late == 0 {
		t.Fatalf("%d preemptions, %d timeouts: the test shows nothing", preempted, late)
	}
	if s := e.Stats(); s.Running != 0 || s.Waiting != 0 || s.KVUsed != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

func TestInStepTellsOfAStepThatHangs(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	m := &fakeModel{vocab: fakeVocab, positions: 1000, step: func(*device.Batch) {
		if entered != nil {
			close(entered)
			<-leave
			entered = nil
		}
	}}
	e := newFake(t, func(c *Config) { c.Model = m })
	if d := e.InStep(); d != 0 {
		t.Errorf("before the run: %v in a step", d)
	}
	done := make(chan map[int64]Completion)
	started := entered
	go func() { done <- runAll(t, e, timeoutRequests(3), 0) }()
	<-started
	time.Sleep(20 * time.Millisecond)
	if d := e.InStep(); d < 20*time.Millisecond || d > time.Minute {
		t.Errorf("while a step hangs: %v", d)
	}
	close(leave)
	if got := <-done; got[0].Err != nil {
		t.Error(got[0].Err)
	}
	if d := e.InStep(); d != 0 {
		t.Errorf("after the run: %v in a step", d)
	}
}
