package infer

import (
	"math"
	"math/bits"
	"time"
)

// quantiles counts durations in buckets whose borders grow by a sixteenth of a power of two, as in HDR histograms: a
// quantile is exact to 3 %, and memory is fixed (4 KiB) however many durations there are.
type quantiles struct {
	n     int64
	count [(topBits - subBits + 1) << subBits]int64
}

const (
	subBits = 4  // 16 buckets for each power of two
	topBits = 36 // in nanoseconds: 69 seconds and above share the last bucket
)

func (q *quantiles) add(d time.Duration) {
	q.n++
	q.count[durationBucket(d)]++
}

func durationBucket(d time.Duration) int {
	ns := uint64(min(max(d, 0), 1<<topBits-1))
	shift := max(bits.Len64(ns)-subBits-1, 0)
	return shift<<subBits + int(ns>>shift) // below 2^subBits buckets hold one value each
}

// at is the duration that a share p of all do not exceed: the middle of its bucket; 0 where there are none.
func (q *quantiles) at(p float64) time.Duration {
	rank := int64(math.Ceil(p * float64(q.n)))
	for i, c := range q.count {
		if rank -= c; rank <= 0 && c > 0 {
			shift := max(i>>subBits-1, 0)
			low := int64(i-shift<<subBits) << shift
			return time.Duration(low + int64(1)<<shift/2)
		}
	}
	return 0
}
