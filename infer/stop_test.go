package infer

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStopMatcher(t *testing.T) {
	for _, c := range []struct {
		name   string
		stops  []string
		pieces []string
		text   string
		stop   string
	}{
		{"none set", nil, []string{"a", "b"}, "ab", ""},
		{"no match", []string{"xyz"}, []string{"ab", "xy", "a"}, "abxya", ""},
		{"held to the end", []string{"xyz"}, []string{"ab", "x", "y"}, "abxy", ""},
		{"inside a piece", []string{"\n\n"}, []string{"ab\n\ncd"}, "ab", "\n\n"},
		{"across pieces", []string{"END"}, []string{"abE", "N", "Dcd"}, "ab", "END"},
		{"earliest in the text, not in the list", []string{"later", "now"}, []string{"a now then later"}, "a ", "now"},
		{"the shorter of two at one place", []string{"abc", "ab"}, []string{"xabc"}, "x", "ab"},
		{"restarts inside a partial match", []string{"aab"}, []string{"a", "a", "a", "b"}, "a", "aab"},
		{"at the very start", []string{"a"}, []string{"a", "b"}, "", "a"},
		{"multi-byte", []string{"é!"}, []string{"caf", "é", "!"}, "caf", "é!"},
	} {
		m := stopMatcher{stops: c.stops}
		var text strings.Builder
		var stop string
		found := false
		for _, p := range c.pieces {
			var released string
			released, stop, found = m.push(p)
			text.WriteString(released)
			if found {
				break
			}
		}
		if !found {
			text.WriteString(m.flush())
		}
		if text.String() != c.text || stop != c.stop {
			t.Errorf("%s: text %q stop %q, want %q and %q", c.name, text.String(), stop, c.text, c.stop)
		}
	}
}

// TestStopMatcherModel checks, on a small alphabet, that what is released is exactly the joined text up to the earliest
// match visible at the piece where one first is, and that nothing is released too early.
func TestStopMatcherModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{1,4}`)
		stops := rapid.SliceOfN(word, 1, 3).Draw(t, "stops")
		pieces := rapid.SliceOfN(rapid.StringMatching(`[abc]{0,4}`), 1, 8).Draw(t, "pieces")
		m := stopMatcher{stops: stops}
		joined, got := "", ""
		for _, p := range pieces {
			joined += p
			released, _, found := m.push(p)
			got += released
			at := -1
			for _, s := range stops {
				if i := strings.Index(joined, s); i >= 0 && (at < 0 || i < at) {
					at = i
				}
			}
			if found != (at >= 0) {
				t.Fatalf("found %v in %q", found, joined)
			}
			if found {
				if got != joined[:at] {
					t.Fatalf("text %q, want %q", got, joined[:at])
				}
				return
			}
			if got+m.held != joined {
				t.Fatalf("released %q and held %q of %q", got, m.held, joined)
			}
			for _, s := range stops {
				for n := 1; n < len(s); n++ {
					if strings.HasSuffix(joined, s[:n]) && len(m.held) < n {
						t.Fatalf("%q is released although %q may follow", got, s)
					}
				}
			}
		}
	})
}
