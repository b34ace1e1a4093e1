package pipeline

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/batchmill/batchmill/infer"
)

func unitOf(n int) *Unit { return &Unit{Request: infer.Request{Tokens: make([]int32, n)}} }

func TestWindowSortsAGenerationLongestFirst(t *testing.T) {
	w, ctx := newWindow(8, 0), context.Background()
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
	if got := w.stats.Buckets[8]; got != 2 {
		t.Errorf("bucket of 5..8 tokens counted %d, want 2", got)
	}
}

func TestWindowBlocksWhenFull(t *testing.T) {
	w := newWindow(2, 0)
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
	w := newWindow(100, 1)
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
	w := newWindow(0, 0)
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
	w, boom := newWindow(0, 0), errors.New("boom")
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
