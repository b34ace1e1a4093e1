package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

const (
	// grace is what the program is given to finish, and exits what it may take in all: it has to stop within a step of
	// the engine, and to store what is done.
	grace = 2 * time.Second
	exits = 3 * time.Second

	fewTerms  = 5  // of an ordinary test run
	manyTerms = 50 // of `make chaos`
)

// exitInterrupted is the exit code of a run that was asked to stop.
const exitInterrupted = 75

// summary is what the tests read of the line that --json prints.
type summary struct {
	ExitCode int `json:"exit_code"`
	Rows     struct {
		Total      int64 `json:"total"`
		OK         int64 `json:"ok"`
		Error      int64 `json:"error"`
		Skipped    int64 `json:"skipped"`
		NotStarted int64 `json:"not_started"`
	} `json:"rows"`
	Batch struct {
		Buckets map[string]struct {
			Rows int64 `json:"rows"`
		} `json:"buckets"`
	} `json:"batch"`
}

// entered is the number of units that this life gave to the engine.
func (s *summary) entered() (n int64) {
	for _, b := range s.Batch.Buckets {
		n += b.Rows
	}
	return n
}

func readSummary(p *process) (*summary, error) {
	s := &summary{}
	lines := bytes.Split(bytes.TrimSpace(p.stdout.Bytes()), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], s); err != nil {
		return nil, fmt.Errorf("the last line on stdout is no summary: %w\n%s", err, p.stdout.String())
	}
	if r := s.Rows; r.Total != r.OK+r.Error+r.Skipped+r.NotStarted {
		return nil, fmt.Errorf("rows do not add up: %+v", r)
	}
	return s, nil
}

// steady is a job of about a second in which every row is run, whatever the others are.
func steady() work {
	const rows = 240
	w := &writer{samples: 1}
	for i := range rows {
		w.ok(fmt.Sprintf(`{"id": %d, "prompt": "row %d"}`, i, i))
	}
	return work{name: "steady", output: "/", format: "jsonl", files: []file{w.file("rows.jsonl")},
		flags: []string{"--split-bytes", "2000", "--max-tokens", "160", "--ignore-eos", "--no-dedup", "--no-speculation", "--batch-tokens", "8"}}
}

// TestTerminated: asked to stop at any instant, the program stores what is done, says where it stands, and is gone within
// the grace; the next life does what is missing and nothing else.
func TestTerminated(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the built program many times: not a short test")
	}
	l := newLab(t, localPlace(t), newTally())
	if !knows("grace") {
		t.Skip("this program has no --grace")
	}
	w := steady()
	for _, f := range w.files {
		if err := l.place.put(w.inputs()+f.name, f.data); err != nil {
			t.Fatal(err)
		}
	}
	ref, err := l.reference(&w)
	if err != nil {
		t.Fatal(err)
	}
	set := readSettings(t)
	times := fewTerms
	if set.long {
		times = manyTerms
	}
	r := rand.New(rand.NewPCG(set.seed, 1))
	var slowest time.Duration
	stopped, kept := 0, int64(0)
	for n := range times {
		prefix := fmt.Sprintf("out/terminated-%d", n)
		after := time.Duration((0.1 + 0.8*r.Float64()) * float64(ref.took))
		fail := func(format string, args ...any) {
			t.Errorf("seed %d, SIGTERM number %d, after %v: %s", set.seed, n, after, fmt.Sprintf(format, args...))
		}
		args := append(w.args(l.place, prefix, nil), "--grace", grace.String(), "--journal-units", fmt.Sprint(1+r.IntN(40)))
		p, err := launch(l.bin, l.tmp, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(after)
		asked := time.Now()
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		code, err := p.wait(context.Background())
		took := time.Since(asked)
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, took)
		if took > exits {
			fail("it took %v to stop", took)
		}
		if code == 0 {
			continue
		}
		first, err := readSummary(p)
		if code != exitInterrupted || err != nil {
			fail("exit code %d, %v\n%s", code, err, p.stderr.String())
			continue
		}
		if first.ExitCode != exitInterrupted {
			fail("the summary says exit code %d", first.ExitCode)
		}
		stopped++
		kept += first.Rows.OK
		if p, err = launch(l.bin, l.tmp, nil, args...); err != nil {
			t.Fatal(err)
		}
		if code, err := p.wait(context.Background()); code != 0 || err != nil {
			fail("the next life ended with %d, %v\n%s", code, err, p.stderr.String())
			continue
		}
		second, err := readSummary(p)
		if err != nil {
			fail("%v", err)
			continue
		}
		if first.Rows.Total > 0 && second.entered() != first.Rows.NotStarted {
			fail("%+v were left, and the next life ran %d rows", first.Rows, second.entered())
		}
		out, err := readOutput(l.place, &w, prefix)
		if err == nil {
			err = out.sameAs(ref.output, &w)
		}
		if err != nil {
			fail("%v", err)
		}
		l.place.remove(prefix)
	}
	fmt.Printf("%d of %d SIGTERMs stopped a run, the slowest in %v; %d rows were kept for the next life\n", stopped, times, slowest.Round(time.Millisecond), kept)
	if stopped == 0 {
		t.Error("no run was stopped before its end")
	}
}
