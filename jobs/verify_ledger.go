package jobs

import "slices"

// planIndex finds the place of a row in a plan.
type planIndex struct{ spans map[string][]span }

// span is a run of rows of one source that a segment takes.
type span struct {
	first, rows int64
	shard       int
	base        int64 // records of the shard before it
}

func newPlanIndex(p *Plan) *planIndex {
	x := &planIndex{spans: map[string][]span{}}
	for n, segs := range p.Shards {
		base := int64(0)
		for _, s := range segs {
			name := sourceName(p.Inputs[s.Input].URL)
			x.spans[name] = append(x.spans[name], span{s.Cut.FirstRow, s.rows(), n, base})
			base += s.rows()
		}
	}
	for _, list := range x.spans {
		slices.SortFunc(list, func(a, b span) int { return int(a.first - b.first) })
	}
	return x
}

// find returns the shard of a row, and the record's place in it.
func (x *planIndex) find(source string, row int64) (shard int, at int64, ok bool) {
	list := x.spans[source]
	i, _ := slices.BinarySearchFunc(list, row, func(s span, row int64) int {
		switch {
		case s.first+s.rows <= row:
			return -1
		case s.first > row:
			return 1
		}
		return 0
	})
	if i >= len(list) || row < list[i].first {
		return 0, 0, false
	}
	return list[i].shard, list[i].base + row - list[i].first, true
}

// bitmap is a set of small numbers: a bit for each.
type bitmap []uint64

func newBitmap(n int64) bitmap    { return make(bitmap, (n+63)/64) }
func (b bitmap) has(i int64) bool { return b[i/64]&(1<<(i%64)) != 0 }
func (b bitmap) set(i int64)      { b[i/64] |= 1 << (i % 64) }

// ledger notes which units of a shard were met: two bits for each, whatever the rows hold.
type ledger struct {
	plan    *Plan
	shard   int
	samples int64
	records int64
	units   bitmap
	failed  bitmap // by record: one of its units was an error
	last    int64  // the unit that was met last
}

func newLedger(p *Plan, shard int) *ledger {
	l := &ledger{plan: p, shard: shard, samples: max(1, int64(p.Decides.Samples)), records: p.shardRows(shard), last: -1}
	l.units, l.failed = newBitmap(l.records*l.samples), newBitmap(l.records)
	return l
}

// met is what a ledger says about a unit.
type met int

const (
	metFirst met = iota
	metTwice
	metLate // first, but behind one that should follow it
)

// mark notes sample s of record at.
func (l *ledger) mark(at, s int64, failed bool) met {
	unit := at*l.samples + s
	if failed {
		l.failed.set(at)
	}
	if l.units.has(unit) {
		return metTwice
	}
	l.units.set(unit)
	if unit < l.last {
		return metLate
	}
	l.last = unit
	return metFirst
}

// free is the first sample of a record that was not met yet, -1 if there is none.
func (l *ledger) free(at int64) int64 {
	for s := range l.samples {
		if !l.units.has(at*l.samples + s) {
			return s
		}
	}
	return -1
}

// gap is a run of rows of one source without a result, or of one row without some of its samples.
type gap struct {
	source      string
	first, rows int64
	sample      int64 // the first one that is missing; 0 where all of the row are
}

// gaps lists what was not met, in order, up to a number. A row may have fewer units than the job has samples: an error
// row has one, and a request may ask for fewer. So where short is false, only a hole in a row's samples counts.
func (l *ledger) gaps(most int, short bool) (list []gap, total int64) {
	at := int64(0)
	for _, seg := range l.plan.Shards[l.shard] {
		source := sourceName(l.plan.Inputs[seg.Input].URL)
		open := false // the last gap may go on
		for i := range seg.rows() {
			rec := at + i
			sample := l.free(rec)
			switch {
			case sample < 0, sample > 0 && !l.hole(rec, sample) && (!short || sample == 1 && l.failed.has(rec)):
				open = false
				continue
			}
			total++
			row := seg.Cut.FirstRow + i
			if sample == 0 && open && l.empty(rec) {
				list[len(list)-1].rows++
				continue
			}
			open = false
			if len(list) < most {
				list = append(list, gap{source, row, 1, sample})
				open = sample == 0 && l.empty(rec)
			}
		}
		at += seg.rows()
	}
	return list, total
}

// hole tells whether a sample after the given one was met.
func (l *ledger) hole(rec, sample int64) bool {
	for s := sample + 1; s < l.samples; s++ {
		if l.units.has(rec*l.samples + s) {
			return true
		}
	}
	return false
}

// empty tells whether no sample of a record was met.
func (l *ledger) empty(rec int64) bool {
	return l.free(rec) == 0 && !l.hole(rec, 0)
}
