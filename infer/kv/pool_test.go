package kv

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPagesFor(t *testing.T) {
	for tokens, want := range map[int]int{-1: 0, 0: 0, 1: 1, 31: 1, 32: 1, 33: 2, 64: 2, 65: 3, math.MaxInt: math.MaxInt/32 + 1} {
		if got := PagesFor(tokens); got != want {
			t.Errorf("PagesFor(%d) = %d, want %d", tokens, got, want)
		}
	}
}

func TestPagesInBudget(t *testing.T) {
	for _, c := range []struct {
		budget, page int64
		want         int
	}{
		{0, 10, 0}, {-5, 10, 0}, {100, 0, 0}, {319, 320, 0}, {320, 320, 1}, {1 << 20, 1 << 15, 32},
		{math.MaxInt64, 1, MaxPages}, {math.MaxInt64 - 1, math.MaxInt64, 0},
	} {
		if got := PagesInBudget(c.budget, c.page); got != c.want {
			t.Errorf("PagesInBudget(%d, %d) = %d, want %d", c.budget, c.page, got, c.want)
		}
	}
}

func TestFreeingTwicePanics(t *testing.T) {
	p := NewPool(2)
	var a Table
	p.Grow(&a, 40)
	stale := Table{pages: slices.Clone(a.Pages())}
	p.Drop(&a)
	p.Drop(&a) // empty by now: nothing happens
	if p.Free() != 2 {
		t.Fatalf("%d pages free, want 2", p.Free())
	}
	defer func() {
		if recover() == nil {
			t.Error("a stale table was dropped without a panic")
		}
	}()
	p.Drop(&stale)
}

func TestPagesComeBackInOrder(t *testing.T) {
	p := NewPool(8)
	var a Table
	p.Grow(&a, 100)
	first := slices.Clone(a.Pages())
	p.Drop(&a)
	p.Grow(&a, 100)
	if !slices.Equal(first, a.Pages()) {
		t.Errorf("pages %v after a drop, before it %v", a.Pages(), first)
	}
	if a.Tokens() != 128 {
		t.Errorf("room for %d tokens, want 128", a.Tokens())
	}
}

// TestPoolModel drives a pool with random operations against the plainest model of it: for every page the set of
// tables that hold it.
func TestPoolModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const tables = 6
		size := rapid.IntRange(0, 12).Draw(t, "size")
		p := NewPool(size)
		var table [tables]Table
		var model [tables][]int32
		peak := 0
		holders := func() map[int32]int {
			h := map[int32]int{}
			for _, m := range model {
				for _, page := range m {
					h[page]++
				}
			}
			return h
		}
		pick := rapid.IntRange(0, tables-1)
		t.Repeat(map[string]func(*rapid.T){
			"grow": func(t *rapid.T) {
				i, tokens := pick.Draw(t, "table"), rapid.IntRange(0, 5*PageTokens).Draw(t, "tokens")
				need := max(PagesFor(tokens)-len(model[i]), 0)
				before := holders()
				ok := p.Grow(&table[i], tokens)
				if want := need <= size-len(before); ok != want {
					t.Fatalf("Grow = %v with %d of %d pages held and %d needed", ok, len(before), size, need)
				}
				if !ok {
					need = 0
				}
				got := table[i].Pages()
				if len(got) != len(model[i])+need || !slices.Equal(got[:len(model[i])], model[i]) {
					t.Fatalf("table %v became %v, want %d pages more", model[i], got, need)
				}
				for _, page := range got[len(model[i]):] {
					if page < 0 || int(page) >= size || before[page] != 0 {
						t.Fatalf("page %d was handed out while %d hold it", page, before[page])
					}
					before[page]++
				}
				model[i] = slices.Clone(got)
			},
			"drop": func(t *rapid.T) {
				i := pick.Draw(t, "table")
				p.Drop(&table[i])
				model[i] = nil
			},
			"": func(t *rapid.T) {
				used := len(holders())
				peak = max(peak, used)
				if p.Used() != used || p.Free() != size-used || p.Pages() != size || p.Peak() != peak {
					t.Fatalf("used %d free %d peak %d of %d, want used %d peak %d of %d",
						p.Used(), p.Free(), p.Peak(), p.Pages(), used, peak, size)
				}
				for i := range table {
					if !slices.Equal(table[i].Pages(), model[i]) {
						t.Fatalf("table %d is %v, want %v", i, table[i].Pages(), model[i])
					}
				}
			},
		})
	})
}
