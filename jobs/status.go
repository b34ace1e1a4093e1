package jobs

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// Status is where a job stands, as its output says. Rows and tokens are those of committed parts. A figure that cannot be
// known is null.
type Status struct {
	State      string             `json:"state"` // complete, running (somebody gave a sign of life lately), incomplete
	Output     string             `json:"output"`
	Plan       StatusPlan         `json:"plan"`
	Shards     StatusShards       `json:"shards"`
	Rows       RowCounts          `json:"rows"`
	Errors     map[row.Code]int64 `json:"errors"`
	Tokens     TokenCounts        `json:"tokens"`
	FirstPart  *time.Time         `json:"first_part"` // by the store's clock
	LastPart   *time.Time         `json:"last_part"`
	RowsPerS   *float64           `json:"rows_per_s"` // of the parts that came last
	ETA        *float64           `json:"eta_s"`
	Heartbeats []StatusBeat       `json:"heartbeats"`
	Problems   []string           `json:"problems"` // parts that cannot be trusted; verify says more
}

// StatusPlan is what a job is.
type StatusPlan struct {
	Digest  string    `json:"digest"`
	RunID   string    `json:"run_id"`
	Created time.Time `json:"created"`
	Model   string    `json:"model"`
	Format  string    `json:"format"`
	Inputs  int       `json:"inputs"`
	Rows    int64     `json:"rows"`
}

// StatusShards counts shards; Missing lists the numbers of those without a part.
type StatusShards struct {
	Total   int   `json:"total"`
	Done    int   `json:"done"`
	Missing []int `json:"missing"`
}

// StatusBeat is the last sign of life of a process. Alive tells whether it is so young that the process is likely at work.
type StatusBeat struct {
	Heartbeat
	Age   float64 `json:"age_s"` // by the store's clock and ours
	Alive bool    `json:"alive"`
}

const (
	// ratedParts is how many of the last parts the rate is taken from: a run of yesterday says little about today's.
	ratedParts = 20
	// missedBeats is how many heartbeats may be missing before a process counts as gone.
	missedBeats = 3
	// maxReaders bounds the small objects that are read at once.
	maxReaders = 16
)

// ReadStatus reads where a job stands from its output alone. It may be asked from anywhere, and disturbs nobody.
func ReadStatus(ctx context.Context, store *objstore.Store, url string, now time.Time) (*Status, error) {
	o, err := openOutput(ctx, store, url)
	if err != nil {
		return nil, err
	}
	p := o.plan
	s := &Status{
		State: "incomplete", Output: o.layout.shown(), Errors: map[row.Code]int64{}, Heartbeats: []StatusBeat{}, Problems: []string{},
		Plan:   StatusPlan{Digest: p.Digest, RunID: p.RunID, Created: p.Created, Model: p.Model, Format: p.Decides.Format, Inputs: len(p.Inputs), Rows: p.rows(Shard{})},
		Shards: StatusShards{Total: len(p.Shards), Missing: []int{}},
	}
	parts, err := existingParts(ctx, store, o.layout)
	if err != nil {
		return nil, err
	}
	mark, err := o.success(ctx)
	if err != nil {
		return nil, err
	}
	facts := map[int]*Facts{}
	if mark != nil && len(mark.Parts) == len(p.Shards) {
		for n, f := range mark.Parts {
			facts[n] = f
		}
	} else {
		var why map[int]error
		if facts, why, err = o.factsOf(ctx, parts); err != nil {
			return nil, err
		}
		for n := range p.Shards {
			if why[n] != nil {
				s.Problems = append(s.Problems, firstLine(why[n].Error()))
			}
		}
	}
	total := Facts{Errors: s.Errors}
	var times []arrival
	for n := range p.Shards {
		info, ok := parts[o.layout.part(n)]
		if !ok {
			s.Shards.Missing = append(s.Shards.Missing, n)
			s.Rows.NotStarted += p.shardRows(n) * max(1, int64(p.Decides.Samples))
			continue
		}
		s.Shards.Done++
		if f := facts[n]; f != nil {
			total.merge(f)
			times = append(times, arrival{info.ModTime, f.Rows.Total})
		}
	}
	missing := s.Rows.NotStarted
	s.Rows, s.Tokens = total.Rows, total.Tokens
	s.Rows.NotStarted, s.Rows.Total = missing, total.Rows.Total+missing
	if err := s.beats(ctx, o, now); err != nil {
		return nil, err
	}
	if mark != nil && missing == 0 {
		s.State = "complete"
	}
	s.rate(times)
	return s, nil
}

// shardRows is the number of records of a shard.
func (p *Plan) shardRows(n int) (rows int64) {
	for _, seg := range p.Shards[n] {
		rows += seg.rows()
	}
	return rows
}

// arrival is when a part came, and with how many rows.
type arrival struct {
	at   time.Time
	rows int64
}

// rate computes rows a second, and the time that is left at that rate. Parts say it of the rows behind the first of them:
// when work on that one began is not known. Where nobody is at work nothing is left to foretell.
func (s *Status) rate(times []arrival) {
	if len(times) == 0 {
		return
	}
	slices.SortStableFunc(times, func(a, b arrival) int { return a.at.Compare(b.at) })
	first, last := times[0].at, times[len(times)-1].at
	s.FirstPart, s.LastPart = &first, &last
	recent := times[max(0, len(times)-ratedParts-1):]
	from, rows := recent[0].at, int64(0)
	for _, t := range recent[1:] {
		rows += t.rows
	}
	if len(recent) == 1 {
		from, rows = s.Plan.Created, recent[0].rows
	}
	s.RowsPerS = ratio(float64(rows), last.Sub(from).Seconds())
	if rows == 0 {
		s.RowsPerS = nil
	}
	if s.State != "running" {
		return
	}
	left, live := s.Rows.NotStarted, float64(0)
	for _, b := range s.Heartbeats {
		if b.Alive {
			left -= min(left, b.Rows)
			if b.RowsPerS != nil {
				live += *b.RowsPerS
			}
		}
	}
	if live > 0 { // what is at work now knows better than what has been
		s.RowsPerS = &live
	}
	if s.RowsPerS != nil {
		eta := math.Round(float64(left) / *s.RowsPerS)
		s.ETA = &eta
	}
}

// beats reads the heartbeats of the plan's processes.
func (s *Status) beats(ctx context.Context, o *output, now time.Time) error {
	infos, err := o.store.List(ctx, o.layout.heartbeats())
	if err != nil {
		return classify(err)
	}
	for _, info := range infos {
		b := StatusBeat{}
		err := getJSON(ctx, o.store, info.URL, &b.Heartbeat)
		if errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrChanged) { // it ended, or beat once more
			continue
		}
		if err != nil {
			return classify(err)
		}
		if b.PlanDigest != o.plan.Digest {
			continue // of a job that had this output before
		}
		age := max(0, now.Sub(info.ModTime).Seconds())
		b.Age, b.Alive = seconds(age), b.Every > 0 && age <= missedBeats*b.Every
		if b.Alive {
			s.State = "running"
		}
		s.Heartbeats = append(s.Heartbeats, b)
	}
	return nil
}

// each calls f for 0 to n-1, a number of them at once, and returns the first error.
func each(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	next := 0
	for range min(n, maxReaders) {
		wg.Go(func() {
			for {
				mu.Lock()
				i, stop := next, first != nil || next >= n
				next++
				mu.Unlock()
				if stop {
					return
				}
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}
