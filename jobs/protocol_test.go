package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/batchmill/batchmill/internal/objstore"
)

// TestProtocolInAnyOrder runs up to four attempts at one job at once, the whole of each, over a store in memory that does one
// request at a time: which attempt's comes next, and what becomes of it, is drawn. Requests fail before or after they were
// done, land late, meet conflicts, and attempts die between any two of them; a fifth may belong to another job. However that
// goes, one more attempt ends with every part stored once, and with the rows of an undisturbed run.
func TestProtocolInAnyOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of whole jobs: not a short test")
	}
	want := undisturbed(t)
	var seen tallied
	rapid.Check(t, func(rt *rapid.T) {
		plot := plot{
			attempts: rapid.IntRange(1, 4).Draw(rt, "attempts"),
			foreign:  rapid.IntRange(0, 3).Draw(rt, "foreign") == 0,
			samples:  rapid.Int32Range(1, 2).Draw(rt, "samples"),
			script:   rapid.SliceOfN(rapid.Byte(), 100, 500).Draw(rt, "script"),
		}
		var err error
		synctest.Test(t, func(*testing.T) { err = plot.play(want, &seen) })
		if err != nil {
			rt.Fatal(err)
		}
	})
	t.Logf("%d jobs, %d attempts; requests by fate: %v", seen.jobs, seen.attempts, seen.fates)
}

// tallied counts what was done.
type tallied struct {
	jobs, attempts int
	fates          map[string]int
}

// plot is how one case goes. Every request takes a byte of the script that chooses it among those that wait, and one for
// its fate; when the script is over, all goes well and in order.
type plot struct {
	attempts int
	foreign  bool
	samples  int32
	script   []byte
}

// ours and theirs are the token limits of the job and of the stranger's.
const ours, theirs = 2, 3

// protocolSpec is a job of a few rows in several shards, some of which fail.
func protocolSpec(samples int32, tokens int) Spec {
	s := testSpec("mem://world/in/*.jsonl", "mem://world/out/")
	s.Samples, s.Threads, s.KVMemory, s.Params.MaxTokens = samples, 1, 1<<20, tokens
	s.SplitBytes = 60
	s.Params.Temperature, s.JournalUnits = 1, 2
	return s
}

// stage makes a store with the job's inputs.
func stage(around objstore.Around) (*objstore.Store, error) {
	store := objstore.New(objstore.Options{Around: around})
	for name, data := range map[string]string{
		"a": `{"id": 1, "text": "one"}` + "\n" + `{"id": 2, "txt": "no text"}` + "\n" + `{"id": 3, "text": "three"}` + "\n" + `{"id": 4, "text": "one"}` + "\n" + `{"id": 5, "text": "five"}` + "\n",
		"b": `{"id": 6, "text": "six"}` + "\n" + `not json` + "\n",
	} {
		if err := store.Put(context.Background(), "mem://world/in/"+name+".jsonl", []byte(data), objstore.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return store, nil
}

// attempt runs a job once.
func attemptAt(ctx context.Context, store *objstore.Store, spec Spec) error {
	j, err := Prepare(ctx, spec, store, Events{})
	if err != nil {
		return err
	}
	defer j.Close()
	_, err = j.Run(ctx)
	return err
}

// rowsOf are the rows of runs that nothing happens to, by samples and token limit.
type rowsOf map[[2]int][]map[string]any

func undisturbed(t *testing.T) rowsOf {
	t.Helper()
	want := rowsOf{}
	for samples := 1; samples <= 2; samples++ {
		for _, tokens := range []int{ours, theirs} {
			store, err := stage(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := attemptAt(context.Background(), store, protocolSpec(int32(samples), tokens)); err != nil {
				t.Fatal(err)
			}
			rows, err := storedRows(store)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) != 7*samples-2*(samples-1) { // two rows cannot be used, and have one result
				t.Fatalf("%d rows of %d samples", len(rows), samples)
			}
			want[[2]int{samples, tokens}] = rows
		}
	}
	return want
}

// storedRows reads the result columns of an output and holds it against its _SUCCESS.
func storedRows(store *objstore.Store) ([]map[string]any, error) {
	ctx := context.Background()
	const out = "mem://world/out/"
	data, _, err := store.ReadAll(ctx, out+"_SUCCESS", maxSmallObject)
	if err != nil {
		return nil, err
	}
	var done struct {
		Parts []struct {
			Part   string
			SHA256 string `json:"object_sha256"`
			Rows   RowCounts
		}
	}
	if err := json.Unmarshal(data, &done); err != nil {
		return nil, err
	}
	if len(done.Parts) < 3 {
		return nil, fmt.Errorf("%d parts: the job has no shards to speak of", len(done.Parts))
	}
	infos, err := store.List(ctx, out)
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, p := range done.Parts {
		named[out+p.Part] = true
	}
	for _, info := range infos {
		name := strings.TrimPrefix(info.URL, out)
		if strings.HasPrefix(name, "part-") && !named[info.URL] || strings.HasPrefix(name, "_run/journal/") {
			return nil, fmt.Errorf("%s should not be there", name)
		}
	}
	var rows []map[string]any
	for _, p := range done.Parts {
		data, _, err := store.ReadAll(ctx, out+p.Part, maxSmallObject)
		if err != nil {
			return nil, err
		}
		if hashBytes(data) != p.SHA256 {
			return nil, fmt.Errorf("%s is not what _SUCCESS says", p.Part)
		}
		if n := int64(bytes.Count(data, []byte("\n"))); n != p.Rows.Total {
			return nil, fmt.Errorf("%s has %d rows, _SUCCESS says %d", p.Part, n, p.Rows.Total)
		}
		for line := range bytes.Lines(data) {
			var m map[string]any
			if err := json.Unmarshal(line, &m); err != nil {
				return nil, err
			}
			for _, name := range measurements {
				delete(m, name)
			}
			rows = append(rows, m)
		}
	}
	return rows, nil
}

// world is the store's side: requests wait there until they are chosen.
type world struct {
	mu      sync.Mutex
	waiting []*request
	late    []*request     // answered, and not done yet
	landed  map[string]int // successful writes of new objects, by URL
	fates   map[string]int // counts
	story   []string       // what happened, for a failure
}

// request is one request of an attempt.
type request struct {
	objstore.Request
	by     *attempt
	answer chan error
}

// attempt is one process.
type attempt struct {
	number int
	dead   bool // under world.mu
	ended  bool
	err    error
}

type attemptKey struct{}

// errDead is the answer to a process that is no more.
var errDead = errors.New("the process is dead")

func (w *world) around(ctx context.Context, ask objstore.Request) error {
	by, _ := ctx.Value(attemptKey{}).(*attempt)
	if by == nil {
		return ask.Do()
	}
	r := &request{ask, by, make(chan error, 1)}
	w.mu.Lock()
	if by.dead {
		w.mu.Unlock()
		ask.Drop()
		return errDead
	}
	w.waiting = append(w.waiting, r)
	w.mu.Unlock()
	return <-r.answer
}

// perform makes a request, and counts it if it wrote an object.
func (w *world) perform(r *request) error {
	err := r.Do()
	if err == nil && r.Op == "commit" {
		w.landed[r.URL]++
	}
	return err
}

// fate is what becomes of a request.
type fate int

const (
	fateDone fate = iota
	fateFailed
	fateLost
	fateConflict
	fateLate
	fateKilledBefore
	fateKilledAfter
)

func (f fate) String() string {
	return [...]string{"done", "failed", "lost", "conflicting", "late", "killed before", "killed after"}[f]
}

// mixed spreads bytes: rapid is fond of the smallest and largest, but not all processes shall die young, nor the first one
// always be first.
func mixed(b byte) byte { return b * 167 }

// fateOf a byte: most requests go well, and 0 does.
func fateOf(b byte) fate {
	switch b = mixed(b); {
	case b < 200:
		return fateDone
	case b < 208:
		return fateFailed
	case b < 218:
		return fateLost
	case b < 230:
		return fateConflict
	case b < 246:
		return fateLate
	case b < 251:
		return fateKilledBefore
	}
	return fateKilledAfter
}

// settle gives a request its fate.
func (w *world) settle(r *request, f fate) {
	writes := r.Op == "commit"
	if (f == fateConflict || f == fateLate) && !writes {
		f = fateDone
	}
	w.fates[f.String()]++
	w.story = append(w.story, fmt.Sprintf("%d %s %s: %s", r.by.number, r.Op, strings.TrimPrefix(r.URL, "mem://world/"), f))
	switch f {
	case fateFailed:
		r.Drop()
		r.answer <- syscall.ECONNRESET
	case fateLost:
		_ = w.perform(r) // whatever it came to, nobody learns it
		r.answer <- syscall.ECONNRESET
	case fateConflict:
		r.Drop()
		r.answer <- &objstore.Error{Op: r.Op, URL: r.URL, Kinds: []error{objstore.ErrConflict, objstore.ErrUnknown, objstore.ErrTemporary}}
	case fateLate:
		w.late = append(w.late, r)
		r.answer <- syscall.ECONNRESET
	case fateKilledBefore:
		r.Drop()
		w.kill(r)
	case fateKilledAfter:
		_ = w.perform(r)
		w.kill(r)
	default:
		r.answer <- w.perform(r)
	}
}

// kill ends the process that made a request. What it has sent may still land.
func (w *world) kill(r *request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.by.dead = true
	r.answer <- errDead
	w.waiting = slices.DeleteFunc(w.waiting, func(o *request) bool {
		if o.by == r.by {
			o.Drop()
			o.answer <- errDead
		}
		return o.by == r.by
	})
}

// take removes the request that b chooses among those that wait and those that land fateLate; nil if there is none.
func (w *world) take(b byte) (r *request, landsLate bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.waiting) + len(w.late)
	if n == 0 {
		return nil, false
	}
	// Goroutines of one attempt may ask in any order: the choice is made among what they ask for.
	slices.SortStableFunc(w.waiting, func(a, b *request) int {
		return strings.Compare(fmt.Sprint(a.by.number, a.Op, a.URL), fmt.Sprint(b.by.number, b.Op, b.URL))
	})
	i := int(mixed(b)) % n
	if i < len(w.waiting) {
		r = w.waiting[i]
		w.waiting = slices.Delete(w.waiting, i, i+1)
		return r, false
	}
	i -= len(w.waiting)
	r = w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	return r, true
}

// play runs one case inside a bubble of testing/synctest, where pauses between tries take no time.
func (p plot) play(want rowsOf, seen *tallied) (err error) {
	if seen.fates == nil {
		seen.fates = map[string]int{}
	}
	w := &world{landed: map[string]int{}, fates: seen.fates}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, strings.Join(w.story, "\n"))
		}
	}()
	store, err := stage(w.around)
	if err != nil {
		return err
	}
	defer store.Close()
	var all []*attempt
	start := func(spec Spec) *attempt {
		a := &attempt{number: len(all)}
		all = append(all, a)
		ctx := context.WithValue(context.Background(), attemptKey{}, a)
		go func() {
			err := attemptAt(ctx, store, spec)
			w.mu.Lock()
			a.err, a.ended = err, true
			w.mu.Unlock()
		}()
		return a
	}
	for range p.attempts {
		start(protocolSpec(p.samples, ours))
	}
	var stranger *attempt
	if p.foreign {
		stranger = start(protocolSpec(p.samples, theirs))
	}
	next := func() byte {
		if len(p.script) == 0 {
			return 0
		}
		b := p.script[0]
		p.script = p.script[1:]
		return b
	}
	w.run(all, next)
	tokens := ours // of the job whose output it is
	if stranger != nil && planned(store) == theirs {
		tokens = theirs
	}
	for _, a := range all {
		host := (a == stranger) == (tokens == theirs)
		switch {
		case a.dead, KindOf(a.err) == StorageIO: // it may be run again
		case host && a.err != nil, !host && KindOf(a.err) != BadInput:
			return fmt.Errorf("attempt %d, whose output it is: %v, ended with %v", a.number, host, a.err)
		}
	}
	last := start(protocolSpec(p.samples, tokens))
	w.run(all, func() byte { return 0 })
	seen.jobs++
	seen.attempts += len(all)
	if last.err != nil {
		return fmt.Errorf("the last attempt ended with %w", last.err)
	}
	rows, err := storedRows(store)
	if err != nil {
		return err
	}
	if expected := want[[2]int{int(p.samples), tokens}]; !reflect.DeepEqual(rows, expected) {
		return fmt.Errorf("rows are\n%v, want\n%v", rows, expected)
	}
	for url, n := range w.landed {
		once := strings.Contains(url, "/out/part-") || strings.HasSuffix(url, "/_SUCCESS") || strings.HasSuffix(url, "/plan.json") || strings.Contains(url, "/_run/seal/")
		if once && n != 1 {
			return fmt.Errorf("%s was written %d times", url, n)
		}
	}
	return nil
}

// planned is the token limit of the stored plan, 0 if there is none.
func planned(store *objstore.Store) int {
	p := &Plan{}
	if err := getJSON(context.Background(), store, "mem://world/out/_run/plan.json", p); err != nil {
		return 0
	}
	return p.Decides.Params.MaxTokens
}

// run lets requests happen until all attempts have ended and nothing is to land any more.
func (w *world) run(all []*attempt, next func() byte) {
	for {
		synctest.Wait()
		r, landsLate := w.take(next())
		switch {
		case landsLate:
			w.story = append(w.story, fmt.Sprintf("%d %s %s: lands", r.by.number, r.Op, strings.TrimPrefix(r.URL, "mem://world/")))
			_ = w.perform(r)
		case r != nil:
			w.settle(r, fateOf(next()))
		case w.over(all):
			return
		default:
			time.Sleep(time.Second) // all wait for their next try
		}
	}
}

func (w *world) over(all []*attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(all, func(a *attempt) bool { return !a.ended })
}
