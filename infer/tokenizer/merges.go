package tokenizer

import "slices"

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

// longMerge merges words of any length in O(n log n): a linked list of symbols and a heap of the pairs that merge. A symbol
// takes about 24 bytes, of which 12 belong to the list.
type longMerge struct {
	prev, next []int32
	heap       mergeHeap
}

// candidate is the merge of the pair at a place: its rank in the upper half, the place in the lower, so that the smallest
// is the one due. It is stale once the symbols there have changed, unless the new pair has the same rank; then it is that
// pair's.
type candidate uint64

// run merges sym in place and returns what is left of it.
func (l *longMerge) run(m *mergeTable, sym []int32) []int32 {
	n := len(sym)
	l.prev, l.next = slices.Grow(l.prev[:0], n), slices.Grow(l.next[:0], n)
	l.heap = slices.Grow(l.heap[:0], n)
	for i := range sym {
		l.prev = append(l.prev, int32(i-1))
		l.next = append(l.next, int32(i+1))
	}
	for i := 0; i+1 < n; i++ {
		if rank, _ := m.get(sym[i], sym[i+1]); rank != noRank {
			l.heap = append(l.heap, newCandidate(rank, int32(i)))
		}
	}
	for i := len(l.heap)/2 - 1; i >= 0; i-- {
		l.heap.down(i)
	}
	const dead = -1
	for len(l.heap) > 0 {
		c := l.heap.pop()
		p := int32(uint32(c))
		q := l.next[p]
		if sym[p] == dead || int(q) >= n {
			continue
		}
		rank, id := m.get(sym[p], sym[q])
		if rank != int32(c>>32) {
			continue
		}
		sym[p], sym[q] = id, dead
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

func newCandidate(rank, pos int32) candidate { return candidate(rank)<<32 | candidate(pos) }

func (l *longMerge) offer(m *mergeTable, sym []int32, p, q int32) {
	if rank, _ := m.get(sym[p], sym[q]); rank != noRank {
		l.heap.push(newCandidate(rank, p))
	}
}

// mergeHeap has its smallest candidate first.
type mergeHeap []candidate

func (h *mergeHeap) push(c candidate) {
	*h = append(*h, c)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if (*h)[i] >= (*h)[up] {
			break
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

func (h *mergeHeap) pop() candidate {
	top := (*h)[0]
	last := len(*h) - 1
	(*h)[0] = (*h)[last]
	*h = (*h)[:last]
	h.down(0)
	return top
}

func (h mergeHeap) down(i int) {
	for {
		k := 2*i + 1
		if k >= len(h) {
			return
		}
		if k+1 < len(h) && h[k+1] < h[k] {
			k++
		}
		if h[k] >= h[i] {
			return
		}
		h[i], h[k] = h[k], h[i]
		i = k
	}
}
