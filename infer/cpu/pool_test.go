package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// countTask counts how often each item was done.
type countTask struct {
	seen    []atomic.Int32
	workers int
	bad     atomic.Bool
	slow    bool
}

func (c *countTask) do(worker, item int) {
	if worker < 0 || worker >= c.workers {
		c.bad.Store(true)
	}
	c.seen[item].Add(1)
	if c.slow && item%7 == 0 {
		time.Sleep(50 * time.Microsecond) // let others park
	}
}

// TestPool runs many regions of changing size, with more threads than cores, and looks that every item was done once and
// before run returned.
func TestPool(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 8} {
		p := newPool(workers)
		c := &countTask{seen: make([]atomic.Int32, 200), workers: workers}
		var self task = c
		for round := range 3000 {
			items := round * 7 % 200
			c.slow = round%100 == 0
			for i := range c.seen {
				c.seen[i].Store(0)
			}
			p.run(&self, items)
			for i := range c.seen {
				want := int32(0)
				if i < items {
					want = 1
				}
				if got := c.seen[i].Load(); got != want {
					t.Fatalf("%d threads, round %d of %d items: item %d was done %d times", workers, round, items, i, got)
				}
			}
			if round%500 == 0 {
				time.Sleep(2 * time.Millisecond) // everybody parks
			}
		}
		if c.bad.Load() {
			t.Error("a worker has a number out of range")
		}
		p.close()
		p.close()
	}
}

// TestPoolParks: threads without work sleep, and Close ends them.
func TestPoolParks(t *testing.T) {
	before := runtime.NumGoroutine()
	d, err := New(Config{Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for w := 1; w < 4; w++ {
		for !d.pool.sleep[w].asleep.Load() {
			if time.Now().After(deadline) {
				t.Fatalf("thread %d never parks", w)
			}
			time.Sleep(time.Millisecond)
		}
	}
	d.Close()
	for runtime.NumGoroutine() > before {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []Config{{ISA: "sse9"}, {Threads: -1}, {Threads: 1 << 20}} {
		if d, err := New(c); err == nil {
			d.Close()
			t.Errorf("%+v: no error", c)
		}
	}
	for _, isa := range ISAs() {
		d, err := New(Config{ISA: isa, Threads: 3})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("cpu (%s, 3 threads)", isa); d.Name() != want || d.ISA() != isa || d.Threads() != 3 {
			t.Errorf("the device calls itself %q, want %q", d.Name(), want)
		}
		d.Close()
	}
}

// TestInLanes: every item comes once, and those of a worker at an even pace are neighbours.
func TestInLanes(t *testing.T) {
	for workers := 1; workers < 6; workers++ {
		for items := range 40 {
			seen := make([]bool, items)
			last := make([]int, workers)
			for item := range items {
				at := inLanes(item, items, workers)
				if at < 0 || at >= items || seen[at] {
					t.Fatalf("%d workers, %d items: item %d is %d", workers, items, item, at)
				}
				seen[at] = true
				if item >= workers && at != last[item%workers]+1 {
					t.Fatalf("%d workers, %d items: item %d is %d, after %d", workers, items, item, at, last[item%workers])
				}
				last[item%workers] = at
			}
		}
	}
}
