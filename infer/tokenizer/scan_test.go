package tokenizer

import (
	"math/rand"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestClassesAgainstGo holds the classes to Go's tables for all that Unicode 15.0 assigns, and to the numbers of code
// points that Unicode 15.1 and 16.0 added.
func TestClassesAgainstGo(t *testing.T) {
	c := unicodeClasses()
	added := map[class]int{}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r >= 0xD800 && r < 0xE000 {
			continue
		}
		got := c.of(r)
		if !assigned15(r) {
			added[got]++
			continue
		}
		var want class
		for bit, table := range map[class]*unicode.RangeTable{classLetter: unicode.L, classNumber: unicode.N, classMark: unicode.M,
			classPunct: unicode.P, classSymbol: unicode.S} {
			if unicode.Is(table, r) {
				want |= bit
			}
		}
		if unicode.IsSpace(r) {
			want |= classSpace
		}
		if unicode.In(r, unicode.Lu, unicode.Lt, unicode.Lm, unicode.Lo, unicode.M) {
			want |= classUpperish
		}
		if unicode.In(r, unicode.Ll, unicode.Lm, unicode.Lo, unicode.M) {
			want |= classLowerish
		}
		if got != want {
			t.Fatalf("classes of %U = %b, want %b", r, got, want)
		}
	}
	for bit, want := range map[class]int{classLetter: 4924, classNumber: 80, classMark: 51, classPunct: 13, classSymbol: 744} {
		n := 0
		for c, k := range added {
			if c&bit != 0 {
				n += k
			}
		}
		if n != want {
			t.Errorf("%d code points of class %b after Unicode 15.0, want %d", n, bit, want)
		}
	}
}

// randomText draws from characters on which patterns branch.
func randomText(r *rand.Rand, n int) string {
	alphabet := []rune("'sStTrReEvVmMlLdDaAzZ  \t\n\r\u0085\u00a0\u3000\u2028ſKé\u0301\u0316ǅʰªßẞ中あ々1٣½Ⅷ²_-/.,$+^`€<>｜\u200d\u0000\ue000\U0001F642\U00013460\U00010D50\U0002EBF0\U000105C9")
	var b strings.Builder
	for range n {
		b.WriteRune(alphabet[r.Intn(len(alphabet))])
	}
	return b.String()
}

// TestScannersAgainstPatterns cuts random strings with every scanner and with a backtracking matcher of its pattern.
func TestScannersAgainstPatterns(t *testing.T) {
	for _, pattern := range []string{gpt2Pattern, llama3Pattern, qwen2Pattern, qwen35Pattern, o200kPattern, tekkenPattern,
		deepseekPattern, digits3Pattern, digitPattern, cjkPattern} {
		scan, full, ok := patternScanner(pattern)
		if !ok {
			t.Fatalf("%s is not known", pattern)
		}
		ref := compileRef(pattern)
		r := rand.New(rand.NewSource(1))
		for range 8000 {
			text := randomText(r, 1+r.Intn(16))
			want, all := refPieces(ref, text)
			if got := pieces(scan, text); !slices.Equal(got, want) {
				t.Fatalf("%s cuts %q into %q, want %q", pattern, text, got, want)
			}
			if full && !all {
				t.Fatalf("%s does not match all of %q", pattern, text)
			}
		}
	}
}

func pieces(s splitter, text string) []string {
	var list []string
	for i := 0; i < len(text); {
		end := s.next(text, i)
		list = append(list, text[i:end])
		i = end
	}
	return list
}

// refPieces cuts text into matches and the stretches between; full reports that there are none of these.
func refPieces(ref refNode, text string) (list []string, full bool) {
	full = true
	gap := 0 // text[gap:i] is not matched
	for i := 0; i < len(text); {
		end := -1
		ref(text, i, func(j int) bool { end = j; return true })
		if end <= i {
			_, n := utf8.DecodeRuneInString(text[i:])
			i += n
			full = false
			continue
		}
		if gap < i {
			list = append(list, text[gap:i])
		}
		list = append(list, text[i:end])
		i, gap = end, end
	}
	if gap < len(text) {
		list = append(list, text[gap:])
	}
	return list, full
}

// TestScannersAreLinear runs strings that would make a backtracking matcher crawl.
func TestScannersAreLinear(t *testing.T) {
	for _, pattern := range []string{gpt2Pattern, llama3Pattern, qwen35Pattern, o200kPattern, tekkenPattern, deepseekPattern} {
		scan, _, _ := patternScanner(pattern)
		for _, unit := range []string{" ", "A", "a", "あA", "\u0301", "\n ", " \u3000", "'", "1", "\u0000", "!\n"} {
			text := strings.Repeat(unit, 1<<18/len(unit))
			if got := strings.Join(pieces(scan, text), ""); got != text {
				t.Errorf("%s: pieces of a run of %q do not add up", pattern, unit)
			}
		}
	}
}

func TestTextSplit(t *testing.T) {
	const text = "the-final--countdown"
	for behavior, want := range map[splitBehavior][]string{
		isolated:           {"the", "-", "final", "-", "-", "countdown"},
		mergedWithPrevious: {"the-", "final-", "-", "countdown"},
		mergedWithNext:     {"the", "-final", "-", "-countdown"},
		contiguous:         {"the", "-", "final", "--", "countdown"},
	} {
		if got := pieces(textSplit{"-", behavior}, text); !slices.Equal(got, want) {
			t.Errorf("behavior %d: %q, want %q", behavior, got, want)
		}
	}
}
