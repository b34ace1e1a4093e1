package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"strings"
	"sync"
	"testing"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/internal/row"
)

func asking(source string, n int64, text ...int32) *Unit {
	u := &Unit{Key: row.UnitKey{Source: source, Row: n}, Request: infer.Request{Tokens: text, Params: infer.DefaultParams(), Seed: n}}
	u.Request.Params.MaxTokens = 5
	return u
}

func TestFingerprints(t *testing.T) {
	base := asking("f", 1, 3, 4, 5)
	want, ok := FingerprintOf(base)
	if !ok {
		t.Fatal("no fingerprint")
	}
	for name, c := range map[string]struct {
		change func(*Unit)
		equal  bool
	}{
		"the row and its id":    {func(u *Unit) { id := "x"; u.Key.Row, u.Key.Sample, u.CustomID = 7, 1, &id }, true},
		"a seed that is unused": {func(u *Unit) { u.Request.Seed = 99 }, true},
		"the source":            {func(u *Unit) { u.Key.Source = "g" }, false},
		"the tenant":            {func(u *Unit) { u.Request.Tenant = "t" }, false},
		"a token":               {func(u *Unit) { u.Request.Tokens = []int32{3, 4, 6} }, false},
		"a token more":          {func(u *Unit) { u.Request.Tokens = []int32{3, 4, 5, 5} }, false},
		"max_tokens":            {func(u *Unit) { u.Request.Params.MaxTokens++ }, false},
		"stop strings":          {func(u *Unit) { u.Request.Params.Stop = []string{"a"} }, false},
		"log-probabilities":     {func(u *Unit) { u.Request.Params.Logprobs = 0 }, false},
	} {
		u := asking("f", 1, 3, 4, 5)
		c.change(u)
		if got, ok := FingerprintOf(u); !ok || (got == want) != c.equal {
			t.Errorf("%s: equal %v, want %v", name, got == want, c.equal)
		}
	}
	drawn, other := asking("f", 1, 3), asking("f", 2, 3)
	drawn.Request.Params.Temperature, other.Request.Params.Temperature = 1, 1
	a, _ := FingerprintOf(drawn)
	if b, _ := FingerprintOf(other); a == b {
		t.Error("draws from different seeds are taken for equal")
	}
	other.Request.Seed = drawn.Request.Seed
	if b, _ := FingerprintOf(other); a != b {
		t.Error("draws from one seed are taken for different")
	}
	long := make([]int32, 1000) // beyond one chunk
	x, y := asking("f", 1, long...), asking("f", 1, append(long[:999:999], 1)...)
	a, _ = FingerprintOf(x)
	if b, _ := FingerprintOf(y); a == b {
		t.Error("the last token of a long prompt does not count")
	}
	base.Request.Mask = noMask{}
	if _, ok := FingerprintOf(base); ok {
		t.Error("a request with a mask was compared")
	}
}

type noMask struct{ infer.TokenMask }

func TestKeptResultsAreBounded(t *testing.T) {
	d := newDedup(3 * keptOverhead)
	finish := func(n int64) {
		u := asking("f", n, int32(n))
		if what, _, _ := d.admit(u); what != runIt {
			t.Fatalf("row %d: verdict %d", n, what)
		}
		d.settle(u, &row.Result{Key: u.Key, Status: row.OK})
	}
	for n := range int64(3) {
		finish(n)
	}
	if what, of, _ := d.admit(asking("f", 10, 0)); what != copyIt || of.Key.Row != 0 { // and now used last
		t.Fatalf("row 0 is not kept: %d", what)
	}
	finish(3)
	if what, _, _ := d.admit(asking("f", 11, 0)); what != copyIt {
		t.Error("the result used last was dropped")
	}
	if what, _, _ := d.admit(asking("f", 12, 1)); what != runIt {
		t.Error("the result used longest ago was kept")
	}
	if d.bytes > d.limit || len(d.entries) != 4 { // three kept, one on its way
		t.Errorf("%d bytes of %d, %d entries", d.bytes, d.limit, len(d.entries))
	}
	d.admit(asking("g", 0, 1))
	if len(d.entries) != 2 || d.bytes != 0 || d.kept.Len() != 0 {
		t.Errorf("after the source changed %d entries with %d bytes are left", len(d.entries), d.bytes)
	}
	big := asking("g", 1, 99)
	d.admit(big)
	text := string(make([]byte, d.limit))
	d.settle(big, &row.Result{Key: big.Key, Completion: &text})
	if d.bytes != 0 {
		t.Error("a result beyond the limit is kept")
	}
}

func TestAResultOfAnEarlierSourceIsNotKept(t *testing.T) {
	d := newDedup(1 << 20)
	u := asking("f", 0, 1)
	d.admit(u)
	d.admit(asking("f", 1, 1))
	d.admit(asking("g", 0, 1)) // f is over, but its first row still runs
	units, same := d.settle(u, &row.Result{Key: u.Key})
	if len(units) != 1 || !same || d.kept.Len() != 0 || len(d.entries) != 1 {
		t.Errorf("%d copies, %d kept, %d entries", len(units), d.kept.Len(), len(d.entries))
	}
}

func TestCopiesThatWaitAreBounded(t *testing.T) {
	d := newDedup(1 << 20)
	u := asking("f", 0, 1)
	d.admit(u)
	for n := range int64(maxCopies) {
		if what, _, _ := d.admit(asking("f", n+1, 1)); what != held {
			t.Fatalf("copy %d: verdict %d", n, what)
		}
	}
	what, _, freed := d.admit(asking("f", -1, 1))
	if what != full {
		t.Fatalf("one copy too many: verdict %d", what)
	}
	d.settle(u, &row.Result{Key: u.Key})
	<-freed
	if what, _, _ := d.admit(asking("f", -1, 1)); what != copyIt || d.copies != 0 {
		t.Errorf("after the row ended: verdict %d, %d copies", what, d.copies)
	}
}

// scriptEngine answers requests without a model: the token 0 stands for a retryable error, 1 for a final one.
type scriptEngine struct {
	ran   int
	batch int // requests that it takes before it answers any
}

func (e *scriptEngine) Run(ctx context.Context, src infer.Source, sink func(infer.Completion) error) error {
	for {
		var taken []*infer.Request
		var end error
		for len(taken) < e.batch {
			r, err := src.Next(ctx, len(taken) == 0)
			if err != nil {
				end = err
				break
			}
			if r == nil {
				break
			}
			taken = append(taken, r)
		}
		for _, r := range taken {
			e.ran++
			c := infer.Completion{ID: r.ID, Text: fmt.Sprint("answer to ", r.Tokens), PromptTokens: len(r.Tokens), CachedTokens: 1, CompletionTokens: 2, Attempts: 1, FinishReason: row.FinishStop}
			switch r.Tokens[0] {
			case 0:
				c.Err = row.Errorf(row.Internal, "not now")
			case 1:
				c.Err = row.Errorf(row.NonFiniteLogits, "never")
			}
			if err := sink(c); err != nil {
				return err
			}
		}
		if errors.Is(end, io.EOF) {
			return nil
		}
		if end != nil {
			return end
		}
	}
}

type listFeed struct{ records []*row.Record }

func (f *listFeed) Next(context.Context) (*row.Record, int, error) {
	if len(f.records) == 0 {
		return nil, 0, io.EOF
	}
	r := f.records[0]
	f.records = f.records[1:]
	return r, 0, nil
}

type mapSink struct {
	mu      sync.Mutex
	pending int
	results map[row.UnitKey]*row.Result
}

func (s *mapSink) Announce(rec *row.Record, units int) (missing []int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range int32(units) {
		if s.results[row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: n}] == nil {
			missing = append(missing, n)
		}
	}
	s.pending += len(missing)
	return missing, nil
}

func (s *mapSink) Done(r *row.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.results[r.Key] != nil {
		return fmt.Errorf("row %d is done twice", r.Key.Row)
	}
	s.pending--
	s.results[r.Key] = r
	return nil
}

// runScript sends rows of given tokens through the pipeline; the row's first token decides what becomes of it.
func runScript(t *testing.T, eng *scriptEngine, o Options, tokens ...int64) *mapSink {
	t.Helper()
	prep, _ := testPreparer(t, func(p *Prompting) { p.TokenIDsColumn = "ids" })
	feed, sink := &listFeed{}, &mapSink{results: map[row.UnitKey]*row.Result{}}
	for i, id := range tokens {
		feed.records = append(feed.records, &row.Record{Source: "f", Row: int64(i), Offset: -1, Fields: map[string]any{"ids": []any{id, int64(9)}, "_seed": int64(100 + i)}})
	}
	if _, err := Run(context.Background(), eng, prep, feed, sink, o); err != nil {
		t.Fatal(err)
	}
	if sink.pending != 0 || len(sink.results) != len(tokens) {
		t.Fatalf("%d rows have no result", sink.pending)
	}
	return sink
}

func TestEqualRequestsRunOnce(t *testing.T) {
	for _, batch := range []int{1, 3, 100} {
		eng := &scriptEngine{batch: batch}
		tokens := []int64{5, 6, 5, 5, 7, 6, 5, 1, 1}
		s := runScript(t, eng, Options{WindowRows: 2}, tokens...)
		if eng.ran != 4 {
			t.Errorf("batch %d: %d requests ran, want 4", batch, eng.ran)
		}
		first := map[int64]int64{}
		for i, id := range tokens {
			r := s.results[row.UnitKey{Source: "f", Row: int64(i)}]
			of, copied := first[id]
			if !copied {
				first[id] = int64(i)
			}
			switch {
			case r.Seed != int64(100+i):
				t.Errorf("row %d has seed %d: it lost its own", i, r.Seed)
			case (r.Err != nil) != (id == 1):
				t.Errorf("row %d: error %v", i, r.Err)
			case *r.Completion != fmt.Sprint("answer to ", []int64{id, 9}) || r.PromptTokens != 2 || r.CompletionTokens != 2:
				t.Errorf("row %d has the result of another: %+v", i, r)
			case copied && (r.DedupOf == nil || *r.DedupOf != of || r.Attempts != 0 || r.Times != nil || r.CachedTokens != 0):
				t.Errorf("row %d is a copy of %d, but %+v", i, of, r)
			case !copied && (r.DedupOf != nil || r.Attempts != 1 || r.Times == nil || r.CachedTokens != 1):
				t.Errorf("row %d ran, but %+v", i, r)
			}
		}
		eng = &scriptEngine{batch: batch}
		for key, r := range runScript(t, eng, Options{WindowRows: 2, NoDedup: true}, tokens...).results {
			if r.DedupOf != nil || r.Attempts != 1 {
				t.Errorf("without dedup row %d is %+v", key.Row, r)
			}
		}
		if eng.ran != len(tokens) {
			t.Errorf("without dedup %d of %d ran", eng.ran, len(tokens))
		}
	}
}

func TestRetryableErrorsAreNotCopied(t *testing.T) {
	for _, batch := range []int{1, 100} {
		eng := &scriptEngine{batch: batch}
		s := runScript(t, eng, Options{WindowRows: 3}, 0, 5, 0, 0, 5, 0)
		for key, r := range s.results {
			if failed := r.Err != nil; failed && (r.DedupOf != nil || r.Attempts != 1) {
				t.Errorf("batch %d: row %d failed for another one: %+v", batch, key.Row, r)
			}
		}
		if eng.ran != 5 {
			t.Errorf("batch %d: %d requests ran, want each of the four that fail and one of the others", batch, eng.ran)
		}
	}
}

func TestTenantKeys(t *testing.T) {
	var warned []string
	p, _ := testPreparer(t, func(p *Prompting) {
		p.TenantColumn, p.Warn = "who", func(m string) { warned = append(warned, m) }
	})
	keys := map[string]string{}
	for name, rec := range map[string]*row.Record{
		"absent": record(), "null": record("who", nil), "5": record("who", int64(5)), "text 5": record("who", "5"),
		"text": record("who", "a"), "bytes": record("who", []byte("a")), "list": record("who", []any{int64(1)}), "empty": record("who", ""),
		"true": record("who", true), "false": record("who", false), "text true": record("who", "true"), "5.5": record("who", 5.5), "nan": record("who", math.NaN()),
		"2^64": record("who", new(big.Int).Lsh(big.NewInt(1), 64)),
	} {
		keys[name] = p.tenant(rec)
	}
	if keys["absent"] != keys["null"] {
		t.Error("a row without a tenant and one with null are kept apart")
	}
	delete(keys, "absent")
	for name, c := range map[string]struct {
		rec  *row.Record
		like string
	}{
		"true again": {record("who", true), "true"}, "5.0": {record("who", 5.0), "5"}, "55e-1": {record("who", 55e-1), "5.5"},
		"2^64 as a float": {record("who", 0x1p64), "2^64"}, "nan again": {record("who", math.NaN()), "nan"},
	} {
		if got := p.tenant(c.rec); got != keys[c.like] {
			t.Errorf("%s has the key %q, %s has %q", name, got, c.like, keys[c.like])
		}
	}
	if p.tenant(record("who", math.Copysign(0, -1))) != p.tenant(record("who", int64(0))) {
		t.Error("the two zeros are kept apart")
	}
	seen := map[string]string{}
	for name, k := range keys {
		if other, twice := seen[k]; twice || k == "" {
			t.Errorf("%s and %s have the key %q", name, other, k)
		}
		seen[k] = name
	}
	other := record("who", []any{int64(1)})
	other.Row++
	if p.tenant(other) == keys["list"] {
		t.Error("two rows whose tenants cannot be compared are taken for one")
	}
	if len(warned) != 1 || !strings.Contains(warned[0], `"who"`) {
		t.Errorf("warned %q, want one warning of the column", warned)
	}
	p.TenantColumn = ""
	if p.tenant(record("who", "a")) != p.tenant(record("who", "b")) {
		t.Error("without a column there is more than one tenant")
	}
}
