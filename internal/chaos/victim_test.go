package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/batchmill/batchmill/internal/faultproxy"
)

// victim is a job and the lives that the program spends on it.
type victim struct {
	lab    *lab
	work   *work
	prefix string
	tmp    string
	random *rand.Rand
	ref    *reference
	steps  []string          // names, of those that the job comes by
	wipes  []string          // those of overwriting, if it overwrites
	proxy  *faultproxy.Proxy // nil for local files
	flags  []string          // of every life, beside the job's own
	done   bool              // the last life ended with 0
	said   string            // by the last life, on stderr

	mu   sync.Mutex
	proc *process // the present life
	doom *death   // what ends it
	seen int      // requests of the present life
}

// death is the instant at which a life ends.
type death struct {
	occasion string        // for the report
	after    time.Duration // of starting, if not 0
	request  int           // or at this request, from 1
	landed   bool          // when the server has done it, else when it arrives
	step     string        // or at this step of the protocol, and its number from 1
}

// death draws an instant within the time that the job takes, one of its requests, or a step of the protocol.
func (s *victim) death() *death {
	if s.random.IntN(2) == 0 {
		steps := s.steps
		if len(s.wipes) > 0 && s.random.IntN(2) == 0 {
			steps = s.wipes
		}
		name := steps[s.random.IntN(len(steps))]
		return &death{occasion: "at " + name, step: fmt.Sprint(name, " ", 1+s.random.IntN(max(1, s.ref.steps[name])))}
	}
	if s.proxy != nil && s.random.IntN(3) > 0 {
		d := &death{occasion: "when a request arrived", request: 1 + s.random.IntN(s.ref.requests)}
		if d.landed = s.random.IntN(2) == 0; d.landed {
			d.occasion = "when a request was served"
		}
		return d
	}
	share := 0.1 + s.random.Float64() // starting takes about a tenth; with others at work a life takes longer
	return &death{occasion: "at a random instant", after: time.Duration(share * float64(s.ref.took))}
}

// live starts the program once and waits for its end, or for its death.
func (s *victim) live(ctx context.Context, d *death) error {
	args := append(s.work.args(s.lab.place, s.prefix, s.random), s.flags...)
	endpoint := ""
	if s.proxy != nil {
		endpoint = s.proxy.URL
	}
	env := s.lab.place.env(endpoint)
	if d != nil && d.step != "" {
		env = append(env, killVar+"="+d.step)
	}
	s.mu.Lock()
	p, err := launch(s.lab.bin, s.tmp, env, args...)
	s.proc, s.doom, s.seen = p, d, 0
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if d != nil && d.after > 0 {
		timer := time.AfterFunc(d.after, p.kill)
		defer timer.Stop()
	}
	code, err := p.wait(ctx)
	s.mu.Lock()
	s.proc, s.doom = nil, nil
	s.mu.Unlock()
	s.said = p.stderr.String()
	if err != nil {
		return err
	}
	c := s.lab.count
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives++
	if took := time.Since(p.began); took > c.slowest {
		c.slowest, c.slow = took, fmt.Sprintf("%s on %s, exit code %d", s.prefix, s.lab.place.name, code)
	}
	s.done = code == 0
	switch {
	case code == 0:
	case code == -1 && d != nil:
		c.kills[d.occasion]++
	case code == exitStorage && s.proxy != nil:
		c.gaveUp++
	default:
		return fmt.Errorf("a life ended with %d:\n%s", code, s.said)
	}
	return nil
}

// What the program built for these tests listens to; see cmd/batchmill/killpoint_chaos.go.
const (
	stepsVar = "BATCHMILL_CHAOS_STEPS"
	killVar  = "BATCHMILL_CHAOS_KILL"
)

// exitStorage is the exit code of a run whose store failed for longer than it retries.
const exitStorage = 74

// watch kills the present life at the request that was drawn.
func (s *victim) watch(_ faultproxy.Op, _ string, landed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !landed {
		s.seen++
	}
	if d := s.doom; s.proc != nil && d != nil && d.request > 0 && s.seen >= d.request && landed == d.landed {
		s.proc.kill()
	}
}
