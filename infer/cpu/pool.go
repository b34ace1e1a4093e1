package cpu

import (
	"sync"
	"sync/atomic"
)

// task is a region of work that is cut into independent items; worker is below the pool's size.
type task interface{ do(worker, item int) }

// spinRounds bounds how long a thread polls before it parks: some 20 microseconds, the length of a serial piece between
// two regions. Longer spinning takes the core from whoever else wants it.
const spinRounds = 20000

// pool runs regions on a fixed set of threads, of which the caller is one. Items are handed out one by one, so that a
// thread which the system has stopped delays its own item only.
//
// ticket packs the number of the region (high), its items and the next item. A worker claims an item by compare-and-
// swap of the whole: one that comes late, with an older region in mind, fails and looks again.
type pool struct {
	workers int
	job     atomic.Pointer[task]
	ticket  atomic.Uint64
	done    atomic.Int64 // items finished in this region
	waiting atomic.Bool  // the caller sleeps until the last item is done
	wakeup  chan struct{}
	sleep   []parking // [workers]; 0 is the caller's and unused
	stop    atomic.Bool
	exit    sync.WaitGroup
}

// parking is where a worker sleeps; padded to keep workers off each other's cache line.
type parking struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

const (
	itemBits  = 22
	itemMask  = 1<<itemBits - 1
	maxItems  = itemMask
	roundBits = 64 - 2*itemBits
)

func newPool(workers int) *pool {
	p := &pool{workers: workers, wakeup: make(chan struct{}, 1), sleep: make([]parking, workers)}
	for w := 1; w < workers; w++ {
		p.sleep[w].wake = make(chan struct{}, 1)
		p.exit.Add(1)
		go p.work(w)
	}
	return p
}

// run does all items of t and returns when the last one is done. t points to an interface that lives as long as the
// pool, so that starting a region allocates nothing.
func (p *pool) run(t *task, items int) {
	if items > maxItems {
		panic("cpu: a region of too many items")
	}
	if items <= 1 || p.workers == 1 {
		for i := range items {
			(*t).do(0, i)
		}
		return
	}
	p.done.Store(0)
	p.job.Store(t)
	round := (p.ticket.Load()>>(2*itemBits) + 1) & (1<<roundBits - 1)
	p.ticket.Store(round<<(2*itemBits) | uint64(items)<<itemBits)
	for w := 1; w < p.workers && w < items; w++ {
		s := &p.sleep[w]
		if s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
			s.wake <- struct{}{}
		}
	}
	p.drain(0)
	for range spinRounds {
		if p.done.Load() == int64(items) {
			return
		}
	}
	for {
		p.waiting.Store(true)
		if p.done.Load() == int64(items) && p.waiting.CompareAndSwap(true, false) {
			return
		}
		<-p.wakeup
		// The finisher of an earlier region, stopped between its two steps, can wake us too soon.
		if p.done.Load() == int64(items) {
			return
		}
	}
}

// drain takes items until none is left.
func (p *pool) drain(worker int) {
	for {
		t := p.ticket.Load()
		items, next := t>>itemBits&itemMask, t&itemMask
		if next >= items {
			return
		}
		job := p.job.Load()
		if !p.ticket.CompareAndSwap(t, t+1) {
			continue
		}
		(*job).do(worker, int(next))
		if p.done.Add(1) == int64(items) && p.waiting.CompareAndSwap(true, false) {
			p.wakeup <- struct{}{}
		}
	}
}

// open tells whether an item can be had.
func (p *pool) open() bool {
	t := p.ticket.Load()
	return t&itemMask < t>>itemBits&itemMask
}

func (p *pool) work(worker int) {
	defer p.exit.Done()
	s := &p.sleep[worker]
	for {
		p.drain(worker)
		idle := true
		for range spinRounds {
			if p.open() || p.stop.Load() {
				idle = false
				break
			}
		}
		if p.stop.Load() {
			return
		}
		if !idle {
			continue
		}
		s.asleep.Store(true)
		if (p.open() || p.stop.Load()) && s.asleep.CompareAndSwap(true, false) {
			continue
		}
		<-s.wake
	}
}

// inLanes reorders items so that a worker that takes every n-th item, as n workers at one pace do, walks through neighbours: what it
// has fetched ahead of the end of one item is then the start of its next. It is a permutation of 0..items-1.
func inLanes(item, items, workers int) int {
	lane, at := item%workers, item/workers
	return lane*(items/workers) + min(lane, items%workers) + at
}

// close ends the workers. No region may be running.
func (p *pool) close() {
	if p.stop.Swap(true) {
		return
	}
	for w := 1; w < p.workers; w++ {
		if p.sleep[w].asleep.CompareAndSwap(true, false) {
			p.sleep[w].wake <- struct{}{}
		}
	}
	p.exit.Wait()
}
