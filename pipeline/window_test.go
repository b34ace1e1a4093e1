package pipeline

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer"
)

func unitOf(n int) *Unit { return &Unit{Request: infer.Request{Tokens: make([]int32, n)}} }

// testWindow expects of every row that it uses its max_tokens.
func testWindow(rows, bytes int) *window {
	c := newCalibrator()
	by := order{expect: c.expect}
	return newWindow(rows, bytes, 0, by.arrange, c.epoch)
}

func TestWindowSortsAGenerationLongestFirst(t *testing.T) {
	w, ctx := testWindow(8, 0), context.Background()
	for _, n := range []int{3, 40, 7, 7, 90, 1} {
		if err := w.push(ctx, unitOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	w.close(nil)
	for _, want := range []int{90, 40, 7, 7, 3, 1} {
		u, err := w.take(ctx, false)
		if err != nil || u == nil || len(u.Request.Tokens) != want {
			t.Fatalf("take gave %v, %v, want %d tokens", u, err, want)
		}
	}
	if u, err := w.take(ctx, true); u != nil || !errors.Is(err, io.EOF) {
		t.Fatalf("after the last: %v, %v, want io.EOF", u, err)
	}
	if got := w.stats.Buckets[8]; got != (Bucket{Rows: 2, Tokens: 14}) {
		t.Errorf("bucket of 5..8 tokens counted %+v, want 2 rows of 14 tokens", got)
	}
}

func TestWindowBlocksWhenFull(t *testing.T) {
	w := testWindow(2, 0)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	for range 2 {
		if err := w.push(ctx, unitOf(1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.push(ctx, unitOf(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("third push into a window of two: %v", err)
	}
	if _, err := w.take(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	if err := w.push(context.Background(), unitOf(1)); err != nil {
		t.Fatal(err)
	}
}

func TestWindowBoundsBytesButTakesOneUnitAlways(t *testing.T) {
	w := testWindow(100, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := w.push(ctx, unitOf(1000)); err != nil {
		t.Fatalf("a single large unit: %v", err)
	}
	if err := w.push(ctx, unitOf(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("beyond the byte limit: %v", err)
	}
}

func TestWindowGivesNothingWithoutWaiting(t *testing.T) {
	w := testWindow(0, 0)
	if u, err := w.take(context.Background(), false); u != nil || err != nil {
		t.Fatalf("empty window gave %v, %v", u, err)
	}
	go func() {
		time.Sleep(10 * time.Millisecond)
		w.push(context.Background(), unitOf(5))
	}()
	u, err := w.take(context.Background(), true)
	if err != nil || len(u.Request.Tokens) != 5 {
		t.Fatalf("waiting take gave %v, %v", u, err)
	}
}

func TestWindowReportsWhyProducingEnded(t *testing.T) {
	w, boom := testWindow(0, 0), errors.New("boom")
	w.push(context.Background(), unitOf(1))
	w.close(boom)
	if u, err := w.take(context.Background(), true); u == nil || err != nil {
		t.Fatalf("what was there goes first: %v, %v", u, err)
	}
	if _, err := w.take(context.Background(), true); !errors.Is(err, boom) {
		t.Fatalf("got %v, want the producer's error", err)
	}
}

func TestBucket(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 512: 512, 513: 1024} {
		if got := bucket(n); got != want {
			t.Errorf("bucket(%d) = %d, want %d", n, got, want)
		}
	}
}

func drain(t *testing.T, w *window) (list []*Unit) {
	t.Helper()
	for {
		u, err := w.take(context.Background(), false)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil || u == nil {
			t.Fatalf("take gave %v, %v", u, err)
		}
		list = append(list, u)
	}
}

func TestWindowOrdersAllThatIsLeftAtTheEnd(t *testing.T) {
	w, ctx := testWindow(4, 0), context.Background()
	lengths := []int{10, 40, 30, 20}
	for _, n := range lengths {
		w.push(ctx, unitOf(n))
	}
	if u, _ := w.take(ctx, true); len(u.Request.Tokens) != 40 {
		t.Fatalf("first is %d tokens long", len(u.Request.Tokens))
	}
	w.push(ctx, unitOf(25)) // of the next generation, were it not the last
	w.close(nil)
	var got []int
	for _, u := range drain(t, w) {
		got = append(got, len(u.Request.Tokens))
	}
	if want := []int{30, 25, 20, 10}; !slices.Equal(got, want) {
		t.Errorf("after the end of input: %v, want %v", got, want)
	}
}

func TestAGenerationHoldsNoMoreShardsThanItMay(t *testing.T) {
	w, ctx := testWindow(100, 0), context.Background()
	w.maxShards = 2
	for shard := range 4 {
		for i := range 3 {
			u := unitOf(10*shard + i + 1)
			u.Shard = shard
			w.push(ctx, u)
		}
	}
	var got []int
	for range 6 {
		u, err := w.take(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, u.Shard)
	}
	if want := []int{1, 1, 1, 0, 0, 0}; !slices.Equal(got, want) { // longer ones first, but none of shards 2 and 3
		t.Errorf("the first six are of shards %v, want %v", got, want)
	}
	w.close(nil)
	if left := drain(t, w); len(left) != 6 || left[0].Shard != 3 {
		t.Errorf("%d left, the first of shard %d", len(left), left[0].Shard)
	}
}

func TestTheEndWaitsForCopiesThatMayHaveToRun(t *testing.T) {
	w, ctx := testWindow(2, 0), context.Background()
	w.hold()
	w.hold()
	w.close(nil)
	if u, err := w.take(ctx, false); u != nil || err != nil {
		t.Fatalf("with copies on hold take gave %v, %v", u, err)
	}
	w.release(1, nil)
	go w.release(1, []*Unit{unitOf(3)})
	if u, err := w.take(ctx, true); err != nil || len(u.Request.Tokens) != 3 {
		t.Fatalf("a copy that has to run: %v, %v", u, err)
	}
	if u, err := w.take(ctx, true); u != nil || !errors.Is(err, io.EOF) {
		t.Fatalf("after the last: %v, %v", u, err)
	}
}
