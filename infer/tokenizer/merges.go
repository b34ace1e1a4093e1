package tokenizer

// mergeTable maps a pair of symbols to the rank of their merge and the symbol it makes: open addressing, linear probing,
// at most half full.
type mergeTable struct {
	slots []mergeSlot
	shift uint
	count int
}

type mergeSlot struct {
	key  uint64 // left<<32 | right, plus 1, so that 0 is an empty slot
	rank int32
	id   int32
}

func newMergeTable(n int) *mergeTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	return &mergeTable{slots: make([]mergeSlot, 1<<bits), shift: 64 - bits}
}

func pairKey(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) + 1 }

func (m *mergeTable) slot(key uint64) *mergeSlot {
	i := key * 0x9E3779B97F4A7C15 >> m.shift // Fibonacci hashing
	for {
		s := &m.slots[i]
		if s.key == key || s.key == 0 {
			return s
		}
		i = (i + 1) & uint64(len(m.slots)-1)
	}
}

// set sets a merge; a later one of the same pair replaces it. The table must have been made for as many pairs.
func (m *mergeTable) set(left, right, rank, id int32) {
	s := m.slot(pairKey(left, right))
	if s.key == 0 {
		m.count++
	}
	*s = mergeSlot{pairKey(left, right), rank, id}
}

// get returns noRank for a pair that does not merge.
func (m *mergeTable) get(left, right int32) (rank, id int32) {
	s := m.slot(pairKey(left, right))
	if s.key == 0 {
		return noRank, -1
	}
	return s.rank, s.id
}

// longMerge merges words of any length in O(n log n): a linked list of symbols and a heap of the pairs that merge.
type longMerge struct {
	prev, next []int32
	heap       []candidate
}

// candidate is the merge of the pair (left, right) at pos; it is stale once the symbols there have changed.
type candidate struct{ rank, pos, left, right, id int32 }

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// run merges sym in place and returns what is left of it.
func (l *longMerge) run(m *mergeTable, sym []int32) []int32 {
	n := len(sym)
	l.prev, l.next, l.heap = l.prev[:0], l.next[:0], l.heap[:0]
	for i := range sym {
		l.prev = append(l.prev, int32(i-1))
		l.next = append(l.next, int32(i+1))
	}
	for i := 0; i+1 < n; i++ {
		l.offer(m, sym, int32(i), int32(i+1))
	}
	const dead = -1
	for len(l.heap) > 0 {
		c := l.pop()
		p := c.pos
		q := l.next[p]
		if sym[p] != c.left || int(q) >= n || sym[q] != c.right {
			continue
		}
		sym[p], sym[q] = c.id, dead
		after := l.next[q]
		l.next[p] = after
		if int(after) < n {
			l.prev[after] = p
			l.offer(m, sym, p, after)
		}
		if before := l.prev[p]; before >= 0 {
			l.offer(m, sym, before, p)
		}
	}
	out := sym[:0]
	for i := 0; i < n; i = int(l.next[i]) {
		out = append(out, sym[i])
	}
	return out
}

func (l *longMerge) offer(m *mergeTable, sym []int32, p, q int32) {
	rank, id := m.get(sym[p], sym[q])
	if rank == noRank {
		return
	}
	l.heap = append(l.heap, candidate{rank, p, sym[p], sym[q], id})
	h, i := l.heap, len(l.heap)-1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (l *longMerge) pop() candidate {
	h := l.heap
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		k := 2*i + 1
		if k >= len(h) {
			break
		}
		if k+1 < len(h) && h[k+1].before(h[k]) {
			k++
		}
		if !h[k].before(h[i]) {
			break
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
	l.heap = h
	return top
}
