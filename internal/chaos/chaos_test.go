package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/batchmill/batchmill/internal/faultproxy"
	"github.com/batchmill/batchmill/jobs"
)

const (
	// workers run at once: most of a run's time is spent waiting between tries.
	workers = 3
	// faultRate is the share of requests that the proxy harms: some of every life's, seldom all tries of one.
	faultRate = 0.08
	// maxLives bounds how often the program is started after the last kill: a store that fails ends some of them with 74.
	maxLives = 25
	// calmAfter is the number of lives after the last kill from which on the store is well again.
	calmAfter = 15
	// maxFailures ends a test: what follows would say the same.
	maxFailures = 5
)

// lab is what the runs of one place share.
type lab struct {
	bin   string
	place *place
	works []work
	tmp   string
	count *tally

	mu   sync.Mutex
	refs map[string]*reference
}

// reference is what an unbroken run of a job gives.
type reference struct {
	once     sync.Once
	err      error
	output   *output
	took     time.Duration
	requests int            // through a proxy that does nothing
	steps    map[string]int // of the protocol: how often each was reached
}

func newLab(t *testing.T, p *place, count *tally) *lab {
	t.Helper()
	l := &lab{bin: program(t), place: p, works: works(), tmp: t.TempDir(), count: count, refs: map[string]*reference{}}
	for _, w := range l.works {
		for _, f := range w.files {
			if err := p.put(w.inputs()+f.name, f.data); err != nil {
				t.Fatal(err)
			}
		}
	}
	return l
}

// reference runs a job once without kills and faults.
func (l *lab) reference(w *work) (*reference, error) {
	l.mu.Lock()
	ref := l.refs[w.name]
	if ref == nil {
		ref = &reference{}
		l.refs[w.name] = ref
	}
	l.mu.Unlock()
	ref.once.Do(func() { ref.err = l.unbroken(w, ref) })
	return ref, ref.err
}

func (l *lab) unbroken(w *work, ref *reference) error {
	endpoint := ""
	if l.place.srv != nil {
		proxy, err := faultproxy.Start(faultproxy.Config{Target: l.place.srv.Endpoint})
		if err != nil {
			return err
		}
		defer proxy.Close()
		defer func() { ref.requests = proxy.Requests() }()
		endpoint = proxy.URL
	}
	prefix := "out/unbroken-" + w.name
	steps := filepath.Join(l.tmp, "steps-"+w.name)
	began := time.Now()
	if err := l.simply(w.args(l.place, prefix, nil), append(l.place.env(endpoint), stepsVar+"="+steps)); err != nil {
		return err
	}
	ref.took = time.Since(began)
	reached, err := os.ReadFile(steps)
	if err != nil {
		return fmt.Errorf("the unbroken run told no steps: %w", err)
	}
	ref.steps = map[string]int{}
	for _, name := range strings.Fields(string(reached)) {
		ref.steps[name]++
	}
	if ref.output, err = readOutput(l.place, w, prefix); err != nil {
		return fmt.Errorf("the unbroken run: %w", err)
	}
	if err := ref.output.sameAs(ref.output, w); err != nil {
		return fmt.Errorf("the unbroken run: %w", err)
	}
	left, err := strays(l.place, w.folder(prefix))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("the unbroken run left %s", strings.Join(left, ", "))
	}
	return err
}

// simply runs the program to a good end.
func (l *lab) simply(args, env []string) error {
	p, err := launch(l.bin, l.tmp, env, args...)
	if err != nil {
		return err
	}
	code, err := p.wait(context.Background())
	if err == nil && code != 0 {
		err = fmt.Errorf("a run without kills and faults ended with %d:\n%s", code, p.stderr.String())
	}
	return err
}

// run does one chaos run. Everything that is drawn follows from the seed.
func (l *lab) run(ctx context.Context, seed uint64) (err error) {
	r := rand.New(rand.NewPCG(seed, 0))
	w := pick(l.works, r)
	ref, err := l.reference(w)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(l.tmp, "run")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	s := &victim{lab: l, work: w, prefix: fmt.Sprintf("out/%s-%d", w.name, seed), tmp: tmp, random: r, ref: ref, steps: sortedKeys(ref.steps)}
	defer l.place.remove(s.prefix)
	if r.IntN(6) == 0 { // over another job's output, which must go, and whose rows must not come back
		if err := l.simply(append(w.args(l.place, s.prefix, nil), "--system", "another job"), l.place.env("")); err != nil {
			return err
		}
		s.flags = []string{"--overwrite"}
		for _, step := range jobs.Steps() {
			if strings.HasPrefix(string(step), "wipe") {
				s.wipes = append(s.wipes, string(step))
			}
		}
	}
	if l.place.srv != nil {
		s.proxy, err = faultproxy.Start(faultproxy.Config{
			Target: l.place.srv.Endpoint, Seed: seed, Rules: faultproxy.Storm(faultRate), Watch: s.watch,
		})
		if err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, s.proxy.Close())
			l.count.mu.Lock()
			defer l.count.mu.Unlock()
			for k, n := range s.proxy.Counts() {
				l.count.faults[k] += n
			}
			l.count.asked += s.proxy.Requests()
		}()
	}
	for range 1 + r.IntN(5) {
		if err := s.live(ctx, s.death()); err != nil {
			return err
		}
	}
	for n := 0; !s.done; n++ {
		if n == maxLives {
			return fmt.Errorf("the job is not done after %d lives without a kill; the last one said:\n%s", n, s.said)
		}
		if n == calmAfter && s.proxy != nil {
			s.proxy.Calm()
		}
		if err := s.live(ctx, nil); err != nil {
			return err
		}
	}
	if s.proxy != nil {
		s.proxy.Settle()
	}
	return s.check()
}

// check holds what is left against what must hold.
func (s *victim) check() error {
	out, err := readOutput(s.lab.place, s.work, s.prefix)
	if err == nil {
		err = out.sameAs(s.ref.output, s.work)
	}
	left, lerr := strays(s.lab.place, s.work.folder(s.prefix))
	if lerr == nil && len(left) > 0 {
		lerr = fmt.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	local, terr := filepath.Glob(filepath.Join(s.tmp, "*"))
	if terr == nil && len(local) > 0 {
		terr = fmt.Errorf("left behind in the folder for temporary files: %s", strings.Join(local, ", "))
	}
	if err := errors.Join(err, lerr, terr); err != nil {
		return err
	}
	c := s.lab.count
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[s.lab.place.name]++
	c.jobs[s.work.name]++
	if s.flags != nil {
		c.jobs["of them with --overwrite"]++
	}
	c.rows += len(out.rows)
	return nil
}

// TestChaos is the package's promise; see the package comment.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("kills the built program many times: not a short test")
	}
	set := readSettings(t)
	count := newTally()
	places := []func(*testing.T) *place{localPlace, s3Place}
	for k, name := range []string{"file", "s3"} {
		if set.on != "" && set.on != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			l := newLab(t, places[k](t), count)
			var g errgroup.Group
			g.SetLimit(workers)
			var failures atomic.Int32
			for i := range set.runs {
				if set.on == "" && i%2 != k { // places take turns
					continue
				}
				if time.Since(count.began) > set.limit {
					count.skipped++
					continue
				}
				g.Go(func() error {
					if failures.Load() >= maxFailures {
						return nil
					}
					seed := set.seed + uint64(i)
					if err := l.run(context.Background(), seed); err != nil {
						failures.Add(1)
						t.Errorf("seed %d: %v\nrepeat with: make chaos CHAOSRUNS=1 CHAOSSEED=%d CHAOSON=%s", seed, err, seed, name)
					}
					return nil
				})
			}
			_ = g.Wait() // failures were reported where they happened
		})
	}
	fmt.Printf("chaos from seed %d: %s", set.seed, count)
	var never []string
	for _, step := range jobs.Steps() {
		if count.kills["at "+string(step)] == 0 {
			never = append(never, string(step))
		}
	}
	if set.long { // a few runs cannot come by all of them
		fmt.Printf("steps of the protocol at which no life ended: %d %s\n", len(never), strings.Join(never, ", "))
	}
}

func sortedKeys[K ~string](m map[K]int) []K { return slices.Sorted(maps.Keys(m)) }
