package tokenizer

import (
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/unicode/rangetable"
)

// lossless are the families without a normalizer or a space put in front: decoding gives back every text, but for a
// literal ▁ in the last one.
var lossless = []string{"bl_gpt2", "bl_smollm", "bl_llama3", "bl_llama3_no_ignore", "bl_o200k", "bl_deepseek", "sp_never"}

// anyText is n random characters from all of Unicode, mixed with ASCII.
func anyText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		switch r.Intn(4) {
		case 0, 1:
			b.WriteByte(byte(r.Intn(128)))
		case 2:
			b.WriteRune(rune(r.Intn(0x800)))
		default:
			c := rune(r.Intn(unicode.MaxRune + 1))
			if c >= 0xD800 && c < 0xE000 || string(c) == metaspace {
				c = '-'
			}
			b.WriteRune(c)
		}
	}
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	const texts = 100_000
	for _, name := range lossless {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := load(t, name)
			r := rand.New(rand.NewSource(9))
			for range texts {
				text := anyText(r, r.Intn(24))
				if got := tok.Decode(encode(t, tok, text, EncodeOptions{}), false); got != text {
					t.Fatalf("%q comes back as %q", text, got)
				}
			}
		})
	}
}

// TestStreamsAddUp holds streaming to Decode for random ids of every family.
func TestStreamsAddUp(t *testing.T) {
	for _, name := range families(t) {
		tok := load(t, name)
		r := rand.New(rand.NewSource(2))
		for range 2000 {
			ids := make([]int32, r.Intn(12))
			for i := range ids {
				ids[i] = int32(r.Intn(tok.VocabSize()+2) - 1)
				if r.Intn(3) == 0 {
					ids[i] = int32(r.Intn(260)) // bytes, mostly
				}
			}
			for _, skip := range []bool{false, true} {
				if got, want := stream(tok, ids, skip), tok.Decode(ids, skip); got != want {
					t.Fatalf("%s: streaming %v gives %q, Decode %q", name, ids, got, want)
				}
			}
		}
	}
}

// TestConcurrentUse encodes with one tokenizer from many goroutines.
func TestConcurrentUse(t *testing.T) {
	tok, alone := load(t, "bl_llama3"), load(t, "bl_llama3")
	r := rand.New(rand.NewSource(4))
	texts := make([]string, 200)
	want := make([][]int32, len(texts))
	for i := range texts {
		texts[i] = anyText(r, 40) + " the wonderful world"
		want[i] = encode(t, alone, texts[i], EncodeOptions{})
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i, text := range texts {
				if got, err := tok.Encode(text, EncodeOptions{}); err != nil || !slices.Equal(got, want[i]) {
					t.Errorf("ids of %q = %v (%v), want %v", text, got, err, want[i])
				}
			}
		})
	}
	wg.Wait()
}

// naiveMerge merges the pair of the lowest rank, of equals the leftmost, one at a time.
func naiveMerge(m *mergeTable, sym []int32) []int32 {
	for {
		best, at := noRank, -1
		for i := 0; i+1 < len(sym); i++ {
			if r, _ := m.get(sym[i], sym[i+1]); r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return sym
		}
		_, sym[at] = m.get(sym[at], sym[at+1])
		sym = slices.Delete(sym, at+1, at+2)
	}
}

// TestMergesAgainstNaive holds the scan for short words and the heap for long ones to the plain algorithm, on alphabets
// small enough for many equal pairs (aaaaa must become aa|aa|a).
func TestMergesAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	for range 300 {
		m := newMergeTable(64)
		symbols := int32(2 + r.Intn(3))
		next := symbols
		for rank := range int32(1 + r.Intn(40)) {
			left, right := r.Int31n(next), r.Int31n(next)
			if k, _ := m.get(left, right); k != noRank {
				continue
			}
			m.set(left, right, rank/(1+r.Int31n(2)), next)
			next++
		}
		b := &bpe{merges: m}
		for range 20 {
			sym := make([]int32, 1+r.Intn(3*shortWord))
			for i := range sym {
				sym[i] = r.Int31n(symbols)
			}
			want := naiveMerge(m, slices.Clone(sym))
			sc := &scratch{sym: slices.Clone(sym)}
			b.merge(sc)
			if !slices.Equal(sc.sym, want) {
				t.Fatalf("merging %v gives %v, want %v", sym, sc.sym, want)
			}
			if got := sc.long.run(m, slices.Clone(sym)); !slices.Equal(got, want) {
				t.Fatalf("merging %v with the heap gives %v, want %v", sym, got, want)
			}
		}
	}
}

// TestLongWord encodes 128 KiB without a place to cut, where a quadratic merge would take minutes.
func TestLongWord(t *testing.T) {
	for _, name := range []string{"bl_gpt2", "bl_llama3", "sp_never"} {
		tok := load(t, name)
		for _, unit := range []string{"a", "é", "th", "=", "<|", "<"} {
			text := strings.Repeat(unit, 1<<17/len(unit))
			if got := tok.Decode(encode(t, tok, text, EncodeOptions{}), false); got != text {
				t.Errorf("%s: a run of %q does not come back", name, unit)
			}
		}
	}
}

// TestSpaceCut holds merging word by word to merging the whole text.
func TestSpaceCut(t *testing.T) {
	for _, name := range []string{"sp_first", "sp_llama2_legacy", "sp_gemma"} {
		cut, whole := load(t, name), load(t, name)
		if !cut.model.spaceCut {
			t.Errorf("%s is not cut at spaces", name)
		}
		whole.model.spaceCut = false
		r := rand.New(rand.NewSource(6))
		for range 2000 {
			words := strings.Fields(englishWords)
			var b strings.Builder
			for range r.Intn(30) {
				b.WriteString(words[r.Intn(len(words))] + strings.Repeat(" ", r.Intn(4)) + anyText(r, r.Intn(2)))
			}
			text := b.String()
			if got, want := encode(t, cut, text, EncodeOptions{}), encode(t, whole, text, EncodeOptions{}); !slices.Equal(got, want) {
				t.Fatalf("%s: ids of %q = %v, want %v", name, text, got, want)
			}
		}
	}
}

// TestNormFormsAgainstXText compares with x/text on what Unicode 9.0 assigns, with few enough marks in a row that x/text
// puts no joiner between.
func TestNormFormsAgainstXText(t *testing.T) {
	assigned := rangetable.Assigned("9.0.0")
	var pool []rune
	rangetable.Visit(assigned, func(r rune) {
		if r < 0xD800 || r >= 0xE000 {
			if p := norm.NFKD.PropertiesString(string(r)); p.CCC() != 0 || p.Decomposition() != nil || r < 0x250 || r >= 0x1100 && r < 0x1200 {
				pool = append(pool, r)
			}
		}
	})
	forms := []struct {
		ours   *normForm
		theirs norm.Form
	}{{newNormForm(false, true), norm.NFC}, {newNormForm(false, false), norm.NFD}, {newNormForm(true, true), norm.NFKC}, {newNormForm(true, false), norm.NFKD}}
	check := func(text string) {
		for _, f := range forms {
			if got, _ := f.ours.normalize(text, nil); got != f.theirs.String(text) {
				t.Fatalf("form %d of %+q = %+q, want %+q", f.theirs, text, got, f.theirs.String(text))
			}
		}
	}
	for _, r := range pool {
		check(string(r))
	}
	r := rand.New(rand.NewSource(8))
	for range 50_000 {
		var b strings.Builder
		for range 1 + r.Intn(7) {
			if r.Intn(3) == 0 {
				b.WriteRune(rune("aeiouAEOsn "[r.Intn(11)]))
			} else {
				b.WriteRune(pool[r.Intn(len(pool))])
			}
		}
		check(b.String())
	}
}

// TestNormFormsStopAtUnicode9 names places where the tokenizers library differs from newer tables.
func TestNormFormsStopAtUnicode9(t *testing.T) {
	nfc, nfkc := newNormForm(false, true), newNormForm(true, true)
	for _, c := range []struct {
		form     *normForm
		in, want string
	}{
		{nfkc, "\u32FF", "\u32FF"},
		{nfkc, "\uA7F2", "\uA7F2"},
		{nfkc, "\U0001FBF0", "\U0001FBF0"},
		{nfc, "\U00011935\U00011930", "\U00011935\U00011930"},
		{nfc, "a\u1AC1\u0316", "a\u1AC1\u0316"},
		{nfc, "a" + strings.Repeat("\u0301", 40), "á" + strings.Repeat("\u0301", 39)},
		{nfc, "e\u0301", "é"},
		{nfkc, "ﬁ①", "fi1"},
		{nfc, "\u1100\u1161\u11A8", "각"},
	} {
		if got, _ := c.form.normalize(c.in, nil); got != c.want {
			t.Errorf("%+q becomes %+q, want %+q", c.in, got, c.want)
		}
	}
}
