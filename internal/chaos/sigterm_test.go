package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	// grace is what the program is given to finish, and exits what it may take in all: it has to stop within a step of
	// the engine, and to store what is done.
	grace = 2 * time.Second
	exits = 3 * time.Second

	fewTerms  = 5  // runs to be stopped by an ordinary test
	manyTerms = 50 // and by `make chaos`
	tries     = 3  // for each: some runs are done before they are asked to stop
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

// kept returns the rows that an output holds so far, in parts and in its journal, by file and index.
func kept(p *place, w *work, prefix string) (map[string]bool, error) {
	rows := map[string]bool{}
	keys, err := p.list(prefix + "/")
	if errors.Is(err, fs.ErrNotExist) {
		return rows, nil // it was stopped before anything was stored
	}
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		journal := strings.HasPrefix(key, "_run/journal/")
		if !journal && !strings.HasPrefix(key, "part-") {
			continue
		}
		data, err := p.read(prefix + "/" + key)
		if err != nil {
			return nil, err
		}
		source, index := "source_file", "row_index"
		if journal {
			source, index = "source", "row"
			z, err := zstd.NewReader(nil)
			if err != nil {
				return nil, err
			}
			text, err := z.DecodeAll(data, nil)
			z.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			_, data, _ = bytes.Cut(text, []byte("\n")) // the first line says what it is
		}
		lines, err := parse(w.format, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		for _, line := range lines {
			rows[fmt.Sprint(line[source], " ", line[index])] = true
		}
	}
	return rows, nil
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
	asked, stopped, saved := 0, 0, 0
	for n := 0; stopped < times && n < times*tries; n++ {
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
		asked++
		signalled := time.Now()
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		code, err := p.wait(context.Background())
		took := time.Since(signalled)
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
		have, err := kept(l.place, &w, prefix)
		if err != nil {
			fail("%v", err)
			continue
		}
		saved += len(have)
		if n := int64(len(have)); n < first.Rows.OK {
			fail("the summary says that %d rows are done, the output holds %d", first.Rows.OK, n)
		}
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
		if left := int64(len(w.wantUnits()) - len(have)); second.entered() != left {
			fail("%d rows were neither in parts nor in the journal, and the next life ran %d", left, second.entered())
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
	fmt.Printf("%d of %d SIGTERMs stopped a run before its end, the slowest in %v; %d of %d rows were kept for the next life\n",
		stopped, asked, slowest.Round(time.Millisecond), saved, stopped*len(w.wantUnits()))
	if stopped < times {
		t.Errorf("%d runs were stopped, want %d", stopped, times)
	}
}
