package cpu

import "sync"

// slabBytes is the size of a piece of memory that small weights share. A model's matrices may be smaller than a large page; side by
// side in a slab they still get large pages, without which every fifth panel waits for the translation of its address. What is not
// used of a slab is never touched.
const slabBytes = 64 << 20

// arena gives memory for weights out of slabs. A slab goes back when all of its pieces have.
type arena struct {
	mu  sync.Mutex
	cur *slab
}

type slab struct {
	data []float32 // what is left
	live int       // pieces in use, and 1 while it is the arena's current slab
	free func()
}

// allocate gives n zeroed values that start at a cache line. free may be called once, from any goroutine.
func (a *arena) allocate(n int) (s []float32, free func(), err error) {
	size := roundUp(n, cacheLine/4)
	if 4*size > slabBytes/4 {
		return allocate(n)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cur == nil || len(a.cur.data) < size {
		data, free, err := allocate(slabBytes / 4)
		if err != nil {
			return nil, nil, err
		}
		a.leave()
		a.cur = &slab{data: data, live: 1, free: free}
	}
	from := a.cur
	s, from.data = from.data[:n:n], from.data[size:]
	from.live++
	return s, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		from.release()
	}, nil
}

// leave gives up the current slab; its memory stays until its pieces are free.
func (a *arena) leave() {
	if a.cur != nil {
		a.cur.release()
		a.cur = nil
	}
}

func (s *slab) release() {
	if s.live--; s.live == 0 {
		s.free()
	}
}

// close is for a device that ends.
func (a *arena) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave()
}
