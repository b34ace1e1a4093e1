package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
)

// DefaultHeartbeat is the time between two heartbeats: short beside the minutes after which somebody would look, long
// beside what a request costs.
const DefaultHeartbeat = 30 * time.Second

// Heartbeat is a process's sign of life, stored over and over under one name for each shard set. It is for people and for
// `status`: nothing is ever decided by it. It says nothing about the machine.
type Heartbeat struct {
	PlanDigest string    `json:"plan_digest"`
	RunID      string    `json:"run_id"`
	Shards     string    `json:"shards"` // i/n, or all
	Parts      int       `json:"parts"`  // of these shards that are there
	Total      int       `json:"total"`  // shards of the set
	Rows       int64     `json:"rows"`   // of these shards that are done and not in a part yet
	Errors     int64     `json:"errors"` // error rows that this process met
	RowsPerS   *float64  `json:"rows_per_s"`
	Started    time.Time `json:"started"`
	Time       time.Time `json:"time"`
	Every      float64   `json:"every_s"`
}

// heartbeats is the folder of heartbeats, heartbeat that of a shard set.
func (l layout) heartbeats() string { return objstore.Join(l.base, "_run", "heartbeat/") }

func (l layout) heartbeat(s Shard) string {
	name := "all"
	if s.Count > 1 {
		name = fmt.Sprintf("%05d-of-%05d", s.Index, s.Count)
	}
	return objstore.Join(l.base, "_run", "heartbeat", name+".json")
}

// beat stores heartbeats until the returned function is called, which removes them. A heartbeat that cannot be stored is
// not missed.
func (r *runState) beat(ctx context.Context) (stop func()) {
	j := r.job
	if j.spec.Heartbeat <= 0 {
		return func() {}
	}
	url, began := j.layout.heartbeat(j.spec.Shard), time.Now()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(j.spec.Heartbeat)
		defer tick.Stop()
		for {
			if data, err := encodeJSON(r.heartbeat(began)); err == nil {
				_ = j.store.Put(ctx, url, data, objstore.CreateOptions{ContentType: jsonType})
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		last, cancel := r.lastWord(ctx)
		defer cancel()
		_ = j.store.Delete(last, url)
	}
}

// heartbeat is where the run stands.
func (r *runState) heartbeat(began time.Time) *Heartbeat {
	j := r.job
	now := time.Now()
	shards := "all"
	if s := j.spec.Shard; s.Count > 1 {
		shards = fmt.Sprintf("%d/%d", s.Index, s.Count)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &Heartbeat{
		PlanDigest: j.plan.Digest, RunID: j.runID, Shards: shards, Parts: len(r.facts), Total: r.mine(),
		Rows: r.before.OK + r.before.Error + r.before.Skipped + r.live.Rows.Total, Errors: r.live.Rows.Error, Started: began.UTC(), Time: now.UTC(), Every: j.spec.Heartbeat.Seconds(),
	}
	for _, f := range r.facts {
		b.Rows -= f.Rows.Total
	}
	b.Rows = max(0, b.Rows)
	if r.live.Rows.Total > 0 {
		b.RowsPerS = ratio(float64(r.live.Rows.Total), now.Sub(began).Seconds())
	}
	return b
}
