package cpu

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestArena: pieces are zero, aligned and apart from one another, whatever is freed in between.
func TestArena(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	var a arena
	type piece struct {
		s    []float32
		free func()
		mark float32
	}
	var live []piece
	for i := range 400 {
		n := 1 + r.IntN(1<<18)
		if r.IntN(50) == 0 {
			n = slabBytes / 8 // more than a slab takes in
		}
		s, free, err := a.allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		if len(s) != n || uintptr(unsafe.Pointer(&s[0]))%cacheLine != 0 {
			t.Fatalf("%d values of %d at %p", len(s), n, &s[0])
		}
		if s[0] != 0 || s[n-1] != 0 {
			t.Fatal("a piece is not zero")
		}
		s[0], s[n-1] = float32(i+1), float32(i+1)
		live = append(live, piece{s, free, float32(i + 1)})
		for len(live) > 0 && r.IntN(3) == 0 {
			j := r.IntN(len(live))
			live[j].free()
			live = append(live[:j], live[j+1:]...)
		}
		for _, p := range live {
			if p.s[0] != p.mark || p.s[len(p.s)-1] != p.mark {
				t.Fatal("pieces overlap")
			}
		}
	}
	for _, p := range live {
		p.free()
	}
	if a.cur.live != 1 {
		t.Errorf("%d pieces live after all were freed", a.cur.live-1)
	}
	a.close()
}
