package pipeline

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

// arranged orders units that are expected to use their max_tokens.
func arranged(units []*Unit) []*Unit {
	return (&order{expect: newCalibrator().expect}).arrange(units)
}

// inOrder is how many tokens each unit of a list shares with the one before.
func inOrder(units []*Unit) (n int64) {
	for i := 1; i < len(units); i++ {
		n += int64(SharedPrefix(units[i-1], units[i]))
	}
	return n
}

// treeLoad has prompts of a common head, one of some instructions, one of some documents to each, and an own end.
func treeLoad(r *rand.Rand, instructions, documents, rows int) []*Unit {
	var units []*Unit
	head := randomTokens(r, 40)
	for range instructions {
		instruction := append(slices.Clone(head), randomTokens(r, 100)...)
		for range documents {
			document := append(slices.Clone(instruction), randomTokens(r, 300)...)
			for range rows {
				units = append(units, simShared(document, 5+r.Intn(30), 20, 20, len(units)))
			}
		}
	}
	r.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
	return units
}

func randomTokens(r *rand.Rand, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(r.Intn(simVocab))
	}
	return list
}

func TestBranchesOfThePrefixTreeStandTogether(t *testing.T) {
	units := treeLoad(rand.New(rand.NewSource(1)), 4, 5, 6)
	got := arranged(units)
	best := SharedTokens(slices.Clone(units))
	// Neighbours in the order share what they share in the sorted list, but for what is less than a page.
	if in := inOrder(got); in < best-int64(minShared*len(units)) || in > best {
		t.Errorf("neighbours share %d tokens, of %d that can be shared; as they came %d", in, best, inOrder(units))
	}
	if in := inOrder(units); in > best/2 {
		t.Errorf("the load shares %d of %d tokens as it comes: it tests nothing", in, best)
	}
}

func TestLongCompletionsStartBeforeTheirGroups(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	var units []*Unit
	for range 5 {
		head := randomTokens(r, 200)
		for i := range 10 {
			output := 10
			if i == 7 {
				output = 400
			}
			units = append(units, simShared(head, 20, output, output, len(units)))
		}
	}
	got := arranged(units)
	for i, u := range got {
		if long := u.Request.Params.MaxTokens == 400; long != (i < 5) {
			t.Errorf("place %d has a completion of %d", i, u.Request.Params.MaxTokens)
		}
	}
	if rest := inOrder(got[5:]); rest < 5*8*200 {
		t.Errorf("the others share %d tokens with their neighbours: the groups are torn", rest)
	}
}

func TestLongPromptsFirstWhereNothingIsShared(t *testing.T) {
	var units []*Unit
	for i, n := range []int{30, 900, 5, 200, 31} {
		units = append(units, simUnit(n, 10, 10, i))
	}
	var got []int
	for _, u := range arranged(units) {
		got = append(got, len(u.Request.Tokens))
	}
	if want := []int{900, 200, 31, 30, 5}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestTenantsShareNothing(t *testing.T) {
	head := randomTokens(rand.New(rand.NewSource(3)), 300)
	var units []*Unit
	for i := range 20 {
		u := simShared(head, 10, 5, 5, i)
		u.Request.Tenant = []string{"a", "b"}[i%2]
		units = append(units, u)
	}
	if n := SharedPrefix(units[0], units[1]); n != 0 {
		t.Errorf("two tenants share %d tokens", n)
	}
	changes := 0
	got := arranged(units)
	for i := 1; i < len(got); i++ {
		if got[i].Request.Tenant != got[i-1].Request.Tenant {
			changes++
		}
	}
	if changes != 1 {
		t.Errorf("the order changes %d times between two tenants", changes)
	}
}

// TestAnOrderIsAPermutation also holds the plan to be a function of its input, whatever is shared.
func TestAnOrderIsAPermutation(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	for range 200 {
		var units []*Unit
		for i := range r.Intn(60) {
			u := unitOf(0)
			for range r.Intn(5) { // pieces from a small stock, so that prefixes of all lengths are shared
				u.Request.Tokens = append(u.Request.Tokens, randomTokens(rand.New(rand.NewSource(int64(r.Intn(3)))), 20+r.Intn(30))...)
			}
			u.Request.Params.MaxTokens = 1 + r.Intn(300)
			u.Key.Row = int64(i)
			units = append(units, u)
		}
		got, again := arranged(units), arranged(slices.Clone(units))
		if !slices.Equal(got, again) {
			t.Fatal("two plans of the same units differ")
		}
		seen := map[*Unit]bool{}
		for _, u := range got {
			seen[u] = true
		}
		if len(got) != len(units) || len(seen) != len(units) {
			t.Fatalf("%d units became %d, %d of them different", len(units), len(got), len(seen))
		}
		class := 1 << 30
		for _, u := range got {
			r := ranked{expected: u.Request.Params.MaxTokens}
			if r.class() > class {
				t.Fatal("a longer completion starts after a shorter one")
			}
			class = r.class()
		}
	}
}

func TestSharedPrefixLeavesATokenToCompute(t *testing.T) {
	a, b := unitOf(10), unitOf(10) // equal prompts
	if n := SharedPrefix(a, b); n != 9 {
		t.Errorf("equal prompts of 10 share %d, want 9", n)
	}
	if n := SharedPrefix(unitOf(4), b); n != 4 {
		t.Errorf("a prompt that begins another shares %d of 4", n)
	}
	if n := SharedPrefix(b, unitOf(0)); n != 0 {
		t.Errorf("an empty prompt shares %d", n)
	}
}

func TestCommonPrefixesOfAllLengths(t *testing.T) {
	base := randomTokens(rand.New(rand.NewSource(9)), 1000)
	for _, n := range []int{0, 1, 255, 256, 257, 511, 512, 513, 999} {
		other := slices.Clone(base)
		other[n]++
		if got := commonPrefix(base, other); got != n {
			t.Errorf("prompts that differ at %d have %d tokens in common", n, got)
		}
		if a, b := commonPrefix(base, base[:n]), commonPrefix(base[:n], base); a != n || b != n {
			t.Errorf("a prompt and its first %d tokens have %d and %d in common", n, a, b)
		}
	}
}

func TestTheCalibratorLearnsByKind(t *testing.T) {
	c := newCalibrator()
	if n := c.expect(100, 50); n != 100 {
		t.Errorf("before anything ended %d are expected, want max_tokens", n)
	}
	for range shareMinRows {
		c.note(100, 50, 10)
		c.note(100, 500, 90)
	}
	if a, b, other := c.expect(100, 60), c.expect(100, 400), c.expect(5, 50); a != 10 || b != 90 || other != 5 {
		t.Errorf("expected %d, %d and %d, want 10, 90 and 5", a, b, other)
	}
	if c.epoch() == 0 {
		t.Error("no news after two kinds became known")
	}
	for range 200 {
		c.note(100, 50, 60)
	}
	if n := c.expect(100, 50); n < 55 || n > 60 {
		t.Errorf("after the data changed %d are expected, want about 60", n)
	}
}

// BenchmarkArrange orders a full window; it runs on the engine's goroutine, between steps.
func BenchmarkArrange(b *testing.B) {
	r := rand.New(rand.NewSource(8))
	for _, shared := range []int{0, 400, 8000} {
		head := randomTokens(r, shared)
		var units []*Unit
		for i := range DefaultWindowRows {
			units = append(units, simShared(head, 100, 20, 20, i))
		}
		b.Run(fmt.Sprint(shared, " shared"), func(b *testing.B) {
			for b.Loop() {
				arranged(units)
			}
		})
	}
}
