package infer

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// plan puts together the next step in r.batch and r.step. Both are empty when there is nothing to do any more.
func (r *run) plan() error {
	r.batch.Tokens, r.batch.Positions = r.batch.Tokens[:0], r.batch.Positions[:0]
	r.batch.Seqs, r.batch.Logits = r.batch.Seqs[:0], r.batch.Logits[:0]
	r.step, r.planned = r.step[:0], 0
	if s, err := r.suspect(); s != nil || err != nil {
		if s != nil {
			r.give(s, s.pending())
			r.pack()
		}
		return err
	}
	for i := 0; i < len(r.running); i++ {
		// A victim is the youngest, so it stands at i or behind and has no share of the step yet.
		if s := r.running[i]; s.pending() == 1 && r.reserve(s) {
			r.give(s, 1)
		}
	}
	// In order of arrival, so that the first row of those with a common prefix is done with it as soon as it can be.
	for _, s := range r.running {
		if s.pending() > 1 {
			r.give(s, s.pending())
		}
	}
	if err := r.admit(); err != nil {
		return err
	}
	r.propose()
	r.pack()
	return nil
}

// room is what is left of the step's token budget.
func (r *run) room() int { return r.e.cfg.BatchTokens - r.planned }

// give adds up to n of its pending tokens to a running sequence's share of the step, as far as there is room.
func (r *run) give(s *sequence, n int) {
	n = max(min(n, s.pending()-s.share, r.room()), 0)
	s.share += n
	r.planned += n
}

// add puts a sequence's share and draft into the step.
func (r *run) add(s *sequence) {
	sl := slot{s: s, tokens: s.share, before: s.generated(), draft: s.drafted()}
	s.share = 0
	start := len(r.batch.Tokens)
	r.batch.Tokens = append(r.batch.Tokens, s.tokens[s.computed:s.computed+sl.tokens]...)
	r.batch.Tokens = append(r.batch.Tokens, sl.draft...)
	n := sl.tokens + len(sl.draft)
	for i := range n {
		r.batch.Positions = append(r.batch.Positions, int32(s.computed+i))
	}
	r.batch.Seqs = append(r.batch.Seqs, device.Seq{Start: start, Len: n, Past: s.computed, Pages: s.table.Pages()})
	if sl.tokens == s.pending() {
		first := len(r.batch.Logits)
		for i := sl.tokens - 1; i < n; i++ {
			r.batch.Logits = append(r.batch.Logits, int32(start+i))
		}
		for len(r.logits) < len(r.batch.Logits) {
			r.logits = append(r.logits, make([]float32, r.e.limits.VocabSize))
		}
		sl.logits = r.logits[first:len(r.batch.Logits)]
	}
	r.step = append(r.step, sl)
}

// reserve makes sure that a running sequence has pages for all its tokens, at the expense of the youngest where the
// pool is empty. False: s itself was the youngest.
func (r *run) reserve(s *sequence) bool {
	for !r.pool.Grow(&s.table, len(s.tokens)) {
		victim := r.running[len(r.running)-1]
		r.preempt(victim, false)
		if victim == s {
			return false
		}
	}
	return true
}

// preempt takes the pages of a running sequence; it waits for them in its old place. spoilt: as in retire.
func (r *run) preempt(s *sequence, spoilt bool) {
	r.preemptions++
	if f := r.e.cfg.Events.OnPreempt; f != nil {
		f(s.id, s.computed)
	}
	r.retire(s, spoilt)
}

// retire moves a sequence from the running to the waiting ones. spoilt: its pages are, from token number computed on.
func (r *run) retire(s *sequence, spoilt bool) {
	r.leave(s, spoilt)
	s.computed = 0
	r.waiting = insert(r.waiting, s)
}

// leave takes a sequence out of the running ones.
func (r *run) leave(s *sequence, spoilt bool) {
	r.leavePages(s, spoilt)
	r.takeBack(s)
	r.running = remove(r.running, s)
	r.packing = remove(r.packing, s)
}

// admit fills the rest of the step with waiting sequences, the oldest first, and then with new requests. One that waits
// for a prefix is passed by those behind it; so that there are some, requests are taken until as many rows run or wait as
// may run. One that waits for pages is not passed, since it would wait for ever.
func (r *run) admit() error {
	passed := 0
	for r.room() > 0 && len(r.running) < r.e.cfg.MaxSeqs {
		if passed == len(r.waiting) {
			if passed > 0 && len(r.running)+passed >= r.e.cfg.MaxSeqs {
				return nil
			}
			s, err := r.pull(len(r.running)+passed == 0)
			if err != nil {
				return err
			}
			if s == nil {
				return nil
			}
			r.waiting = append(r.waiting, s)
		}
		s := r.waiting[passed]
		// With nothing running there is nothing to wait for.
		if !r.findPrefix(s) && len(r.running) > 0 {
			passed++
			continue
		}
		if len(r.running) > 0 && !r.fits(s) {
			return nil
		}
		ok, err := r.start(s)
		if err != nil {
			return err
		}
		if ok {
			r.give(s, s.pending())
		}
	}
	return nil
}

// start makes a waiting sequence, whose prefix was just looked up, a running one, with pages for all its tokens. False:
// it was reported as failed. The pool is large enough by Check; were it not, the row fails, since waiting would never end.
func (r *run) start(s *sequence) (bool, error) {
	r.waiting = remove(r.waiting, s)
	if !r.takePages(s) {
		return false, r.finish(s, failed(row.Errorf(row.KVBudgetExceeded,
			"%d tokens do not fit the %d KV pages; raise kv-memory", len(s.tokens), r.pool.Pages())))
	}
	r.running = insert(r.running, s)
	r.place(s)
	return true, nil
}

// suspect is the sequence that has to run alone, if any, started where it was waiting.
func (r *run) suspect() (*sequence, error) {
	alone := func(s *sequence) bool { return s.alone }
	if i := slices.IndexFunc(r.running, alone); i >= 0 {
		return r.running[i], nil
	}
	for {
		i := slices.IndexFunc(r.waiting, alone)
		if i < 0 {
			return nil, nil
		}
		s := r.waiting[i]
		for kv.PagesFor(len(s.tokens)) > r.pool.Free() && len(r.running) > 0 {
			r.preempt(r.running[len(r.running)-1], false)
		}
		r.findPrefix(s)
		if ok, err := r.start(s); ok || err != nil {
			return s, err
		}
	}
}

// pull takes the next request that passes its checks; nil where none is ready, or none will come. Those that do not
// pass are reported at once.
func (r *run) pull(wait bool) (*sequence, error) {
	for !r.eof {
		q, err := r.src.Next(r.ctx, wait)
		if errors.Is(err, io.EOF) {
			r.eof = true
			return nil, nil
		}
		if r.ctx.Err() != nil {
			return nil, r.ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("take the next request: %w", err)
		}
		if q == nil {
			if wait {
				return nil, errors.New("take the next request: the source had to wait but returned none")
			}
			return nil, nil
		}
		p := q.Params
		if err := r.e.checkRequest(q, &p); err != nil {
			r.refuse(q, err)
			if err := r.flush(); err != nil {
				return nil, err
			}
			continue
		}
		if now := r.e.now(); q.Entered.IsZero() || q.Entered.After(now) {
			q.Entered = now
		}
		r.arrived++
		return newSequence(q, p, r.arrived, r.e.cfg.Tokenizer), nil
	}
	return nil, nil
}

// insert keeps a list in order of arrival.
func insert(list []*sequence, s *sequence) []*sequence {
	i, _ := slices.BinarySearchFunc(list, s, func(a, b *sequence) int { return int(a.order - b.order) })
	return slices.Insert(list, i, s)
}

func remove(list []*sequence, s *sequence) []*sequence {
	i := slices.Index(list, s)
	return slices.Delete(list, i, i+1)
}
