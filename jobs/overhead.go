package jobs

import (
	"runtime"
	"sync/atomic"
	"time"
)

// overhead is what exactly-once output costs a run. Only what could have gone to the engine counts: processor time beside
// it, and time in which it had to wait.
type overhead struct {
	journal meter         // making and storing chunks
	commit  meter         // assembling, sealing and storing parts, and cleaning up
	sink    meter         // the engine, or what feeds it, handing a result over: its encoding, the spool, a journal that is full
	slots   meter         // the feed, waiting for an older shard to end
	last    time.Duration // after the engine's last row
	starved time.Duration // the engine, waiting for rows
}

// waited is the time in which the engine stood still, at most: where it had no rows, as far as the feed waited for the end
// of a shard.
func (o *overhead) waited() time.Duration {
	return o.sink.total() + min(o.starved, o.slots.total()) + o.last
}

// meter adds up times.
type meter struct{ ns atomic.Int64 }

func (m *meter) add(d time.Duration)  { m.ns.Add(int64(d)) }
func (m *meter) total() time.Duration { return time.Duration(m.ns.Load()) }

// since adds the time from a start to now.
func (m *meter) since(start time.Time) { m.add(time.Since(start)) }

// cpu runs f and adds the processor time that it took, on systems that tell a thread's, else the time. What a store's client
// does on threads of its own is not in it.
func (m *meter) cpu(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime()
	defer func() { m.add(threadTime() - began) }()
	return f()
}
