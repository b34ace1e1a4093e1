package infer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var q quantiles
	if q.at(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
	r := rand.New(rand.NewPCG(3, 4))
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(math.Exp(r.Float64()*25)) - 1 // to 72 seconds, as many short ones as long ones
		all = append(all, d)
		q.add(d)
	}
	slices.Sort(all)
	for _, p := range []float64{0, 0.001, 0.01, 0.2, 0.5, 0.9, 0.99} {
		want := all[max(int(math.Ceil(p*float64(len(all))))-1, 0)]
		if got := q.at(p); math.Abs(float64(got-want)) > float64(want)/31+1 {
			t.Errorf("%g of all are below %v, want %v", p, got, want)
		}
	}
	q.add(-time.Second)
	q.add(time.Hour)
	if q.n != 10_002 || q.at(0) != 0 || q.at(1) < time.Minute {
		t.Errorf("of %d durations the ends are %v and %v", q.n, q.at(0), q.at(1))
	}
	before := -1
	for d := time.Duration(1); d < 1<<37; d += max(d/40, 1) {
		b := durationBucket(d)
		if b < before || b > before+1 && before >= 0 || b >= len(q.count) {
			t.Fatalf("%v is in bucket %d, after %d of %d", d, b, before, len(q.count))
		}
		before = b
	}
}

// TestDecodeStepQuantiles: only steps that do nothing but decode count.
func TestDecodeStepQuantiles(t *testing.T) {
	e := newFake(t, nil)
	now := time.Unix(1_000_000, 0)
	e.now = func() time.Time { now = now.Add(time.Millisecond); return now }
	decode := int64(0)
	e.cfg.Events.OnStep = func(s StepStats) {
		if s.Prefill == 0 && s.Decode > 0 {
			decode++
		}
	}
	runAll(t, e, mixedRequests(10), 0)
	st := e.Stats()
	if st.DecodeSteps != decode || decode == 0 || st.Steps == decode || st.DecodeStepP50 < time.Millisecond || st.DecodeStepP99 < st.DecodeStepP50 ||
		st.DecodeStepP99 > 100*time.Millisecond {
		t.Errorf("%d steps decode, but stats %+v", decode, st)
	}
}
