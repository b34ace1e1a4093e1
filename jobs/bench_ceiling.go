package jobs

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Sizes of the bandwidth measurement.
const (
	leastBuffer  = 256 << 20 // well beyond the caches of small machines
	mostBuffer   = 2 << 30
	readPiece    = 1 << 20                // bytes that a thread reads between looks at the clock
	readTime     = 300 * time.Millisecond // of one run
	readRuns     = 3
	largestShare = 0.25 // of the available memory for the buffer
)

// measureCeilings measures what bounds the engine.
func (m *bench) measureCeilings(ctx context.Context) error {
	c := &m.ceilings
	c.CacheBytes = lastCacheBytes("/sys/devices/system/cpu/cpu0/cache")
	size := max(leastBuffer, 2*c.CacheBytes)
	if free, ok := availableMemory(); ok {
		size = min(size, int64(largestShare*float64(free)))
	}
	size = min(size, mostBuffer)
	buf := make([]byte, max(size, readPiece))
	for i := range buf {
		buf[i] = 1 // a page that was never written is not in memory
	}
	c.BufferBytes, c.BeyondCache = int64(len(buf)), c.CacheBytes > 0 && int64(len(buf)) >= 2*c.CacheBytes
	threads := m.o.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	weights := buf[:max(readPiece, min(int64(len(buf)), m.loaded.config.WeightFile))]
	for range readRuns {
		if err := ctx.Err(); err != nil {
			return err
		}
		c.ReadOne = max(c.ReadOne, readRate(buf, 1, readTime))
		c.ReadAll = max(c.ReadAll, readRate(buf, threads, readTime))
		c.ReadWeights = max(c.ReadWeights, readRate(weights, threads, readTime))
	}
	// A device that knows how fast its tiles can be says so.
	if p, ok := m.loaded.dev.(interface{ Peak() (f32, int8 float64) }); ok {
		f32, int8 := p.Peak()
		c.F32, c.Int8 = &f32, &int8
	}
	m.res.Ceilings = c
	return nil
}

// readRate is how fast threads read a buffer, each its own part, over and over, in GB/s.
func readRate(buf []byte, threads int, d time.Duration) float64 {
	var mu sync.Mutex
	var wg sync.WaitGroup
	total, slowest := 0.0, 0.0
	part := len(buf) / threads
	begin := make(chan struct{})
	for t := range threads {
		mine := buf[t*part : (t+1)*part]
		wg.Go(func() {
			<-begin
			n, took := readOver(mine, d)
			mu.Lock()
			total, slowest = total+float64(n), max(slowest, took.Seconds())
			mu.Unlock()
		})
	}
	close(begin)
	wg.Wait()
	return total / slowest / 1e9
}

// readOver reads a buffer again and again. Looking for a byte that is not there is the fastest plain read that the
// standard library has: vector loads, a comparison each, nothing written.
func readOver(buf []byte, d time.Duration) (read int, took time.Duration) {
	const absent = 0
	began := time.Now()
	for at := 0; ; at += readPiece {
		if at >= len(buf) {
			at = 0
		}
		piece := buf[at:min(at+readPiece, len(buf))]
		if bytes.IndexByte(piece, absent) >= 0 {
			return 0, d // the buffer is not what it should be: no figure
		}
		read += len(piece)
		if took = time.Since(began); took >= d {
			return read, took
		}
	}
}

// lastCacheBytes is the size of the largest cache that a processor sees, as Linux tells it.
func lastCacheBytes(dir string) int64 {
	var most int64
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		data, err := os.ReadFile(dir + "/" + e.Name() + "/size")
		if err != nil {
			continue
		}
		text := strings.TrimSpace(string(data))
		unit := int64(1)
		if rest, ok := strings.CutSuffix(text, "K"); ok {
			text, unit = rest, 1<<10
		} else if rest, ok := strings.CutSuffix(text, "M"); ok {
			text, unit = rest, 1<<20
		}
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			most = max(most, n*unit)
		}
	}
	return most
}

// cpuName is the processor's name where the system tells it.
func cpuName() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// peak is the ceiling of operations in the mode measured, or nil. Weights that are not quantised meet float32 in any mode.
func (m *bench) peak() *float64 {
	if m.res.Activations == "f32" || !m.bundle.Quantised() {
		return m.ceilings.F32
	}
	return m.ceilings.Int8
}

// share is a part of a ceiling, or nil where that is not known.
func share(v float64, ceiling *float64) *float64 {
	if ceiling == nil {
		return nil
	}
	return ratio(v, *ceiling)
}
