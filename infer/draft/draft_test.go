package draft

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// plain is Propose without an index.
func plain(tokens []int32, n, match int) []int32 {
	end := len(tokens) - 1
	best, length := 0, max(match, MinMatch)-1
	for place := end - 1; place >= 1; place-- {
		l := 0
		for l < MaxMatch && l <= place && tokens[place-l] == tokens[end-l] {
			l++
		}
		if l > length {
			best, length = place, l
		}
	}
	if best == 0 {
		return nil
	}
	all := slices.Clone(tokens)
	for i := range n {
		all = append(all, all[best+1+i])
	}
	return all[len(tokens):]
}

func TestProposeAgainstPlainSearch(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		// So few places that none is left out by maxPlaces.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "tokens"), 0))
		vocab := rapid.Int32Range(2, 9).Draw(t, "vocab")
		tokens := make([]int32, maxPlaces)
		for i := range tokens {
			tokens[i] = r.Int32N(vocab)
		}
		x := NewIndex()
		var last []int32
		for len(last) < len(tokens) {
			last = tokens[:min(len(last)+rapid.IntRange(1, 5).Draw(t, "more"), len(tokens))]
			n, match := rapid.IntRange(0, 20).Draw(t, "n"), rapid.IntRange(0, 5).Draw(t, "match")
			got := x.Propose(last, n, match, []int32{77})
			if want := plain(last, n, match); got[0] != 77 || !slices.Equal(got[1:], want) {
				t.Fatalf("%v goes on with %v, want %v", last, got[1:], want)
			} else if len(want) > 0 {
				found++
			}
		}
		x.Reset()
		if got := x.Propose(tokens[:2], 4, MinMatch, nil); len(got) > 0 {
			t.Fatalf("an empty index proposed %v", got)
		}
	})
	if found < 50 {
		t.Errorf("only %d proposals: the test covers too little", found)
	}
}

// TestLongTexts: beyond the window, and with pairs that occur too often to look at all of their places.
func TestLongTexts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := NewIndex()
	var tokens []int32
	proposals := 0
	for len(tokens) < 3*window {
		more := 1 + r.IntN(300)
		vocab := []int32{2, 40_000}[r.IntN(2)]
		if len(tokens) > 500 && r.IntN(2) == 0 { // a quotation
			at := r.IntN(len(tokens) - 400)
			tokens = append(tokens, tokens[at:at+more]...)
		} else {
			for range more {
				tokens = append(tokens, r.Int32N(vocab))
			}
		}
		guess := x.Propose(tokens, 5, 3, nil)
		if len(guess) == 0 {
			continue
		}
		proposals++
		// What was proposed follows the last three tokens somewhere in the window.
		all := append(slices.Clone(tokens), guess...)
		ok := false
		for p := max(len(tokens)-window, 2); p < len(tokens)-1 && !ok; p++ {
			ok = slices.Equal(all[p-2:p+1], tokens[len(tokens)-3:]) && slices.Equal(all[p+1:p+6], guess)
		}
		if !ok {
			t.Fatalf("at %d: %v follows nowhere", len(tokens), guess)
		}
	}
	if proposals < 50 {
		t.Errorf("only %d proposals: the test covers too little", proposals)
	}
}

func TestTheLongestPlaceWins(t *testing.T) {
	x := NewIndex()
	tokens := []int32{1, 2, 3, 4, 50, 51, 9, 3, 4, 60, 61, 8, 1, 2, 3, 4}
	if got := x.Propose(tokens, 2, MinMatch, nil); !slices.Equal(got, []int32{50, 51}) {
		t.Errorf("%v", got)
	}
	if got := x.Propose(tokens, 2, 5, nil); got != nil {
		t.Errorf("a match of four tokens yielded %v where five were asked for", got)
	}
	if got := x.Propose(append(tokens, 7, 7, 7), 3, MinMatch, nil); !slices.Equal(got, []int32{7, 7, 7}) {
		t.Errorf("a run goes on with %v", got)
	}
}

// BenchmarkPropose measures one call at the end of a text of 8,192 tokens that grows by one each time, and the first
// call for such a text.
func BenchmarkPropose(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 8192, 1<<20)
	for i := range text {
		text[i] = int32(r.ExpFloat64() * 40) // a few pairs are as common as in real texts
	}
	x := NewIndex()
	var out []int32
	b.Run("first", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			x.Reset()
			out = x.Propose(text, 15, MinMatch, out[:0])
		}
	})
	b.Run("next", func(b *testing.B) {
		tokens := text
		x.Reset()
		out = x.Propose(tokens, 15, MinMatch, out[:0])
		b.ReportAllocs()
		for b.Loop() {
			if len(tokens) == cap(tokens) {
				tokens = tokens[:len(text)]
				x.Reset()
			}
			tokens = append(tokens, tokens[(len(tokens)*7919)%8000])
			out = x.Propose(tokens, 15, MinMatch, out[:0])
		}
	})
}
