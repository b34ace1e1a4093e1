package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/batchmill/batchmill/jobs"
)

const (
	barEvery   = 200 * time.Millisecond // a terminal is redrawn at most this often
	plainEvery = 10 * time.Second       // a log gets a line at most this often
	rateWindow = 10 * time.Second       // rates are over the recent past, not over the whole run
)

// progress shows where a run stands: two lines that are redrawn on a terminal, plain lines now and then elsewhere.
type progress struct {
	w    io.Writer
	mode string // bar, plain or none
	cols func() int

	mu     sync.Mutex
	drawn  int // lines of the block that stand on the terminal
	last   time.Time
	recent []jobs.Progress // samples of the rate window
	begun  bool
}

func newProgress(w io.Writer, mode string) (*progress, error) {
	p := &progress{w: w, mode: mode, cols: func() int { return 80 }}
	f, isFile := w.(*os.File)
	tty := isFile && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	switch mode {
	case "auto":
		p.mode = "plain"
		if tty {
			p.mode = "bar"
		}
	case "bar", "plain", "none":
	default:
		return nil, jobs.Errorf(jobs.Usage, "use auto, bar, plain or none", "unknown --progress %q", mode)
	}
	if tty {
		p.cols = func() int {
			if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
				return n
			}
			return 80
		}
	}
	return p, nil
}

func (p *progress) events() jobs.Events {
	return jobs.Events{
		Planned: func(plan *jobs.Plan, rows int64) {
			p.say("%d rows in %d files, %d shards; plan %.12s", rows, len(plan.Inputs), len(plan.Shards), plan.Digest)
		},
		Loaded: func(s float64, digest string) { p.say("model loaded in %.1f s (%.12s)", s, digest) },
		Step:   p.step,
		Part: func(url string, f *jobs.Facts) {
			p.say("committed %s: %d rows, %d errors", url, f.Rows.Total, f.Rows.Error)
		},
		Warn:    p.warn,
		Stalled: p.stalled,
		Reached: killpoint(),
	}
}

// say prints a line of its own, above the block.
func (p *progress) say(format string, args ...any) {
	if p.mode == "none" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// warn prints a warning, also where no progress is wanted: it is about the data.
func (p *progress) warn(message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "warning: %s\n", message)
}

// stalled prints where everything stands in a run that hangs.
func (p *progress) stalled(stacks []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, "the engine hangs; this is where every goroutine stands:\n%s\n", stacks)
}

func (p *progress) step(s jobs.Progress) {
	every := plainEvery
	if p.mode == "bar" {
		every = barEvery
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.mode == "none" || p.begun && now.Sub(p.last) < every {
		return
	}
	if !p.begun { // the first step only starts the clock
		p.begun, p.last = true, now
		p.recent = []jobs.Progress{s}
		return
	}
	p.last = now
	p.recent = append(p.recent, s)
	for len(p.recent) > 2 && s.Elapsed-p.recent[0].Elapsed > max(rateWindow, 2*every) {
		p.recent = p.recent[1:]
	}
	lines := p.lines(s)
	if p.mode == "plain" {
		fmt.Fprintln(p.w, strings.Join(lines, "; "))
		return
	}
	p.clear()
	width := p.cols()
	for _, l := range lines {
		if r := []rune(l); len(r) >= width {
			l = string(r[:width-1])
		}
		fmt.Fprintln(p.w, l)
	}
	p.drawn = len(lines)
}

// lines are the two lines of the block.
func (p *progress) lines(s jobs.Progress) []string {
	first := p.recent[0]
	dt := (s.Elapsed - first.Elapsed).Seconds()
	per := func(a, b int64) float64 {
		if dt <= 0 {
			return 0
		}
		return float64(b-a) / dt
	}
	share, eta := "", "ETA unknown"
	if s.Total > 0 {
		share = fmt.Sprintf(" (%.0f%%)", 100*float64(s.Rows)/float64(s.Total))
		if left, ok := remaining(s); ok {
			eta = "ETA " + left.Round(time.Second).String()
		}
	}
	return []string{
		fmt.Sprintf("rows %d/%d%s, %d errors, %s elapsed, %s", s.Rows, s.Total, share, s.Errors, s.Elapsed.Round(time.Second), eta),
		fmt.Sprintf("prefill %.0f tok/s, decode %.0f tok/s, batch fill %.0f%%, KV %d/%d pages", per(first.PromptTok, s.PromptTok),
			per(first.OutputTok, s.OutputTok), 100*s.Engine.Fill, s.Engine.KVUsed, s.Engine.KVPages),
	}
}

// remaining extrapolates by tokens: rows that are done say how many tokens a row takes, and tokens, unlike rows, flow
// evenly.
func remaining(s jobs.Progress) (time.Duration, bool) {
	tokens := s.PromptTok + s.OutputTok
	if s.Rows == 0 || tokens == 0 || s.Elapsed <= 0 {
		return 0, false
	}
	perRow := float64(s.RowTokens) / float64(s.Rows)
	left := perRow*float64(s.Total) - float64(tokens)
	rate := float64(tokens) / s.Elapsed.Seconds()
	return time.Duration(max(0, left) / rate * float64(time.Second)), true
}

// clear removes the block from the terminal.
func (p *progress) clear() {
	for ; p.drawn > 0; p.drawn-- {
		fmt.Fprint(p.w, "\x1b[1A\x1b[2K")
	}
}

// stop removes the block for good.
func (p *progress) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	p.mode = "none"
}

// printSummary tells a person what came of a run. Of one that was refused or could not start it says nothing: rows that were
// not started look like an output that is empty, and the error says what is wrong.
func printSummary(w io.Writer, s *jobs.Summary) {
	if !s.Worked {
		return
	}
	fmt.Fprintf(w, "%d rows: %d ok, %d errors, %d not started; %d prompt and %d completion tokens\n",
		s.Rows.Total, s.Rows.OK, s.Rows.Error, s.Rows.NotStarted, s.Tokens.Prompt, s.Tokens.Completion)
	if s.Time.Engine > 0 {
		fmt.Fprintf(w, "%.1f s in all, %.1f s in the engine: %s prompt and %s completion tokens/s\n",
			s.Time.Wall, s.Time.Engine, rate(s.Throughput.Prefill), rate(s.Throughput.Decode))
	}
	if share := s.Sharing.PromptShare; share != nil && *share > 0 {
		fmt.Fprintf(w, "%.1f%% of the prompt tokens of the rows that ran (copies do not) came from shared prefixes\n", 100**share)
	}
	if n := s.Sharing.Copies; n > 0 {
		fmt.Fprintf(w, "%d rows are copies of equal ones, which spared %d prompt and %d completion tokens\n",
			n, s.Sharing.CopiedPrompt, s.Sharing.CopiedCompletion)
	}
	var engine []string
	if d := s.Speculated; d.Drafted > 0 {
		engine = append(engine, fmt.Sprintf("%d of %d tokens drafted by speculation were right", d.Accepted, d.Drafted))
	}
	if n := s.Batch.Preemptions; n > 0 {
		engine = append(engine, fmt.Sprintf("%d preemptions for want of KV pages", n))
	}
	if n := s.Batch.Recomputed; n > 0 {
		engine = append(engine, fmt.Sprintf("%d tokens computed again", n))
	}
	if len(engine) > 0 {
		fmt.Fprintln(w, strings.Join(engine, "; "))
	}
	fmt.Fprintf(w, "output: %s\n", s.Output.URL)
}
