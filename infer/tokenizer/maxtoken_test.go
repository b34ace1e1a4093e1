package tokenizer

import (
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// TestMaxTokenBytes holds the bound to texts of the longest tokens, and to what shrinks.
func TestMaxTokenBytes(t *testing.T) {
	entries, err := os.ReadDir("testdata/tokenizers")
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		tok := load(t, e.Name())
		most := tok.MaxTokenBytes()
		if most == 0 {
			t.Logf("%s: no bound", e.Name())
			continue
		}
		known++
		longest := 0
		for id := range tok.VocabSize() {
			b := tok.Bytes(int32(id))
			longest = max(longest, len(b))
			if !utf8.Valid(b) {
				continue
			}
			text := strings.Repeat(string(b), 3) + "\u212a\u1112\u1161\u11ab\u0390" + string(b)
			for _, parse := range []bool{false, true} {
				if ids := encode(t, tok, text, EncodeOptions{ParseSpecial: parse}); len(ids)*most < len(text) {
					t.Fatalf("%s: %q has %d bytes and %d tokens, where one stands for %d at most", e.Name(), text, len(text), len(ids), most)
				}
			}
		}
		if most < longest || most > 12*longest {
			t.Errorf("%s: bound %d, longest token %d", e.Name(), most, longest)
		}
	}
	if known < 8 {
		t.Errorf("only %d tokenizers have a bound", known)
	}
}

func TestMaxTokenBytesUnknown(t *testing.T) {
	longest := load(t, "bl_gpt2").MaxTokenBytes()
	if longest == 0 {
		t.Fatal("no bound")
	}
	normalizer := func(n any) func(object) { return func(f object) { f["normalizer"] = n } }
	replace := func(from, to string) object {
		return object{"type": "Replace", "pattern": object{"String": from}, "content": to}
	}
	for name, c := range map[string]struct {
		edit func(f object)
		want int
	}{
		"as it is":   {func(object) {}, longest},
		"NFC":        {normalizer(object{"type": "NFC"}), 4 * longest},
		"NFKD":       {normalizer(object{"type": "NFKD"}), 4 * longest},
		"growing":    {normalizer(replace(" ", "▁")), longest},
		"shrinking":  {normalizer(replace("aa", "a")), 0},
		"Strip":      {normalizer(object{"type": "Strip", "strip_left": true, "strip_right": true}), 0},
		"Lowercase":  {normalizer(object{"type": "Lowercase"}), 0},
		"in a row":   {normalizer(object{"type": "Sequence", "normalizers": []any{object{"type": "NFC"}, replace("aa", "a")}}), 0},
		"long token": {func(f object) { f["added_tokens"].([]any)[0].(object)["content"] = strings.Repeat("z", 999) }, 999},
		"lstrip":     {func(f object) { f["added_tokens"].([]any)[0].(object)["lstrip"] = true }, 0},
		"lost bytes": {func(f object) {
			delete(f["model"].(object)["vocab"].(object), "Ġ")
			f["model"].(object)["merges"], f["added_tokens"] = []any{}, []any{}
		}, 0},
	} {
		tok, err := editJSON(t, "bl_gpt2", func(f object) {
			if name == "long token" { // one that the vocabulary does not have yet
				v := f["model"].(object)["vocab"].(object)
				delete(v, "<|endoftext|>")
				f["added_tokens"].([]any)[0].(object)["id"] = len(v)
			}
			c.edit(f)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := tok.MaxTokenBytes(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestFormShrink proves how much normal forms shorten at most. Each character of a normal form is made of characters of
// the full decomposition, and these come from characters of the input, none from two. So the input is no longer than the
// sum, over the decomposition, of the longest character that decomposes to nothing but the one.
func TestFormShrink(t *testing.T) {
	for _, compat := range []bool{false, true} {
		n := newNormForm(compat, true)
		bound := shrinkOf(n)
		longest := map[rune]int{} // bytes of the longest character that decomposes to this one alone
		each := func(f func(r rune, parts []normChar)) {
			for r := rune(0); r <= unicode.MaxRune; r++ {
				if utf8.ValidRune(r) {
					f(r, n.decompose(nil, r))
				}
			}
		}
		each(func(r rune, parts []normChar) {
			if len(parts) == 1 {
				longest[parts[0].r] = max(longest[parts[0].r], utf8.RuneLen(r))
			}
		})
		reached := false
		each(func(r rune, parts []normChar) {
			sum := 0
			for _, p := range parts {
				sum += max(longest[p.r], utf8.RuneLen(p.r))
			}
			if utf8.RuneLen(r) > sum {
				t.Errorf("%U has %d bytes, and its parts account for %d", r, utf8.RuneLen(r), sum)
			}
			form, _ := n.normalize(string(r), nil)
			if sum > bound*len(form) {
				t.Errorf("compat %t: up to %d bytes become %q of %d", compat, sum, form, len(form))
			}
			reached = reached || sum == bound*len(form)
		})
		if compat && !reached {
			t.Errorf("compat %t: the bound %d is never reached", compat, bound)
		}
	}
}
