package infer

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/batchmill/batchmill/internal/row"
)

// parallelLogits is the number of logits from which sampling is spread over goroutines: below it handing over costs
// about as much as one scan.
const parallelLogits = 1 << 16

// slot is a sequence's part in a step.
type slot struct {
	s      *sequence
	tokens int         // of the sequence; those of the draft come behind them
	before int         // completion tokens before the step
	draft  []int32     // tokens that may follow
	logits [][]float32 // of the last token and of each in the draft; none in the middle of a prompt

	// What came of it.
	sampled  int // tokens chosen
	accepted int // tokens of the draft that the completion goes on with, and whose KV counts
	out      outcome
	err      *row.Error
}

// choose samples the sequence's next token and, as long as it is the one that the draft foresaw, the one after it. Each
// is accepted before the next is chosen, so that penalties, masks and stop strings see one token after the other.
func (sl *slot) choose(sm *sampler, c *Config) {
	defer recoverRow(&sl.err)
	s := sl.s
	for i, logits := range sl.logits {
		var ch choice
		if ch, sl.err = sm.sample(logits, &s.params, s.hist, s.mask, s.seed, s.generated()); sl.err != nil {
			return
		}
		sl.sampled++
		sl.out = s.accept(ch, c.Tokenizer, c.EOS)
		if sl.out.reason != "" || i == len(sl.draft) || ch.id != sl.draft[i] {
			return
		}
		sl.accepted++
	}
}

// recoverRow turns a panic that belongs to one row (in its mask, its decoder) into that row's error.
func recoverRow(err **row.Error) {
	if p := recover(); p != nil {
		*err = row.Errorf(row.Internal, "panic while choosing a token: %v; report it", p)
	}
}

// ends tells whether an id is an end token.
func (r *run) ends(id int32) bool { return slices.Contains(r.e.cfg.EOS, id) }

// chooser samples the rows of a step on several goroutines, which live as long as the run.
type chooser struct {
	cfg      *Config
	samplers []sampler // the first is that of Run's own goroutine
	step     []slot
	next     atomic.Int64 // the slot to do next
	wake     chan struct{}
	done     chan struct{}
	group    errgroup.Group
}

// start makes the goroutines; stop ends them.
func (c *chooser) start(cfg *Config) {
	c.cfg = cfg
	c.samplers = make([]sampler, cfg.Threads)
	c.wake, c.done = make(chan struct{}, cfg.Threads), make(chan struct{}, cfg.Threads)
	for i := range c.samplers[1:] {
		c.group.Go(func() error {
			for range c.wake {
				c.work(&c.samplers[i+1])
				c.done <- struct{}{}
			}
			return nil
		})
	}
}

func (c *chooser) stop() {
	close(c.wake)
	_ = c.group.Wait() // they return no errors: what goes wrong is the row's
}

// run has every slot of a step choose, on as many goroutines as pay. The step has so many rows of logits [vocab].
func (c *chooser) run(step []slot, rows, vocab int) {
	helpers := min(len(c.samplers), rows) - 1
	if rows*vocab < parallelLogits {
		helpers = 0
	}
	c.step = step
	c.next.Store(0)
	for range helpers {
		c.wake <- struct{}{}
	}
	c.work(&c.samplers[0])
	for range helpers {
		<-c.done
	}
}

func (c *chooser) work(sm *sampler) {
	for {
		i := int(c.next.Add(1)) - 1
		if i >= len(c.step) {
			return
		}
		c.step[i].choose(sm, c.cfg)
	}
}
