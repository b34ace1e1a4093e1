package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

type object = map[string]any

func TestJSONRefused(t *testing.T) {
	model := func(f object) object { return f["model"].(object) }
	split := func(pattern, behavior string) object {
		return object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": behavior, "invert": false}
	}
	added := func(f object, a object) { f["added_tokens"] = append(f["added_tokens"].([]any), a) }
	for _, c := range []struct {
		name string
		edit func(f object)
		want string
	}{
		{"model", func(f object) { model(f)["type"] = "Unigram" }, `"Unigram"`},
		{"no type, no merges", func(f object) { delete(model(f), "type"); delete(model(f), "merges") }, "model has no type, and not the vocab and merges"},
		{"no type, no vocab", func(f object) { delete(model(f), "type"); delete(model(f), "vocab") }, "model has no type, and not the vocab and merges"},
		{"no vocab", func(f object) { delete(model(f), "vocab") }, "model has no vocab"},
		{"null merges", func(f object) { model(f)["merges"] = nil }, "model has no merges"},
		{"type a number", func(f object) { model(f)["type"] = 5 }, "model.type is a number where text is expected"},
		{"vocab a list", func(f object) { model(f)["vocab"] = []any{[]any{"a", 1}} }, "vocab: it is a list where an object is expected"},
		{"id a fraction", func(f object) { model(f)["vocab"].(object)["a"] = 1.5 }, "a is 1.5 where a whole number is expected"},
		{"merges an object", func(f object) { model(f)["merges"] = object{} }, "merges: it is an object where a list is expected"},
		{"added id", func(f object) { added(f, object{"id": "x", "content": "zzz"}) }, "id is text where a whole number is expected"},
		{"normalizer a list", func(f object) { f["normalizer"] = []any{} }, "normalizer: it is a list where an object is expected"},
		{"no model", func(f object) { delete(f, "model") }, "no model"},
		{"dropout", func(f object) { model(f)["dropout"] = 0.1 }, "dropout"},
		{"prefix", func(f object) { model(f)["continuing_subword_prefix"] = "##" }, "continuing_subword_prefix"},
		{"suffix", func(f object) { model(f)["end_of_word_suffix"] = "</w>" }, "end_of_word_suffix"},
		{"unk", func(f object) { model(f)["unk_token"] = "nowhere" }, `"nowhere"`},
		{"merge", func(f object) { model(f)["merges"] = []any{"q qq"} }, "merge 0"},
		{"merge parts", func(f object) { model(f)["merges"] = []any{[]any{"a"}} }, "1 parts"},
		{"huge id", func(f object) { model(f)["vocab"].(object)["zzz"] = 1 << 40 }, "zzz"},
		{"negative id", func(f object) { model(f)["vocab"].(object)["zzz"] = -1 }, "zzz"},
		{"double id", func(f object) { model(f)["vocab"].(object)["zzz"] = 5 }, "same id 5"},
		{"gap", func(f object) { added(f, object{"id": 5000, "content": "zzz"}) }, "next free one"},
		{"long token", func(f object) { added(f, object{"id": 901, "content": strings.Repeat("z", maxAddedToken+1)}) }, "4097 bytes"},
		{"normalizer", func(f object) { f["normalizer"] = object{"type": "Nmt"} }, `"Nmt"`},
		{"charsmap", func(f object) { f["normalizer"] = object{"type": "Precompiled", "precompiled_charsmap": "AA=="} }, `"Precompiled"`},
		{"replace", func(f object) {
			f["normalizer"] = object{"type": "Replace", "pattern": object{"Regex": "a+"}, "content": ""}
		}, `"a+"`},
		{"pre-tokenizer", func(f object) { f["pre_tokenizer"] = object{"type": "BertPreTokenizer"} }, `"BertPreTokenizer"`},
		{"pattern", func(f object) { f["pre_tokenizer"] = split(`(a+)+$`, "Isolated") }, `"(a+)+$"`},
		{"nearly a known pattern", func(f object) { f["pre_tokenizer"] = split(gpt2Pattern+"|x", "Isolated") }, "is not known"},
		{"behavior", func(f object) { f["pre_tokenizer"] = split(gpt2Pattern, "MergedWithNext") }, "MergedWithNext"},
		{"partial removed", func(f object) { f["pre_tokenizer"] = split(digits3Pattern, "Removed") }, "Removed"},
		{"after ByteLevel", func(f object) {
			f["pre_tokenizer"] = object{"type": "Sequence", "pretokenizers": []any{object{"type": "ByteLevel"}, object{"type": "Digits"}}}
		}, "after ByteLevel"},
		{"processor", func(f object) { f["post_processor"] = object{"type": "Magic"} }, `"Magic"`},
		{"template twice", func(f object) {
			a := object{"Sequence": object{"id": "A"}}
			f["post_processor"] = object{"type": "TemplateProcessing", "single": []any{a, a}}
		}, "other than once"},
		{"decoder", func(f object) { f["decoder"] = object{"type": "WordPiece"} }, `"WordPiece"`},
		{"depth", func(f object) {
			var n any = object{"type": "NFC"}
			for range maxPartDepth + 2 {
				n = object{"type": "Sequence", "normalizers": []any{n}}
			}
			f["normalizer"] = n
		}, "nested deeper"},
	} {
		if _, err := editJSON(t, "bl_gpt2", c.edit); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	for bad, want := range map[string]string{"": "ends too early", "{": "ends too early, after 1 bytes", `{"model":{"type`: "ends too early", "[]": "it is a list where an object",
		"{}": "no model", `{"model":null}`: "no model", "\xff": "not valid JSON", "{} x": "not valid JSON", `{"a" 1}`: "not valid JSON"} {
		if _, err := FromJSON([]byte(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", bad, err, want)
		}
	}
}

// TestNoModelType: files from before the type was written are the tokenizer that they were.
func TestNoModelType(t *testing.T) {
	tok, err := editJSON(t, "bl_gpt2", func(f object) { delete(f["model"].(object), "type") })
	if err != nil {
		t.Fatal(err)
	}
	if want := load(t, "bl_gpt2"); tok.Digest() != want.Digest() {
		t.Error("the digest differs")
	}
}

func TestWithConfig(t *testing.T) {
	tok := load(t, "sp_nfkc_added")
	with := func(config string) (*Tokenizer, error) { return tok.WithConfig([]byte(config)) }
	n, err := with(`{"bos_token": {"content": "<mask>", "lstrip": false}, "eos_token": "</s>", "other": 1}`)
	if err != nil {
		t.Fatal(err)
	}
	mask, _ := tok.ID("<mask>")
	if bos, ok := n.BOS(); !ok || bos != mask || n.AddsBOS() {
		t.Errorf("BOS %d, added %t", bos, n.AddsBOS())
	}
	if eos, ok := n.EOS(); !ok || eos != 2 {
		t.Errorf("EOS %d", eos)
	}
	if bos, ok := tok.BOS(); !ok || bos != 1 || !tok.AddsBOS() {
		t.Errorf("the original changed: BOS %d", bos)
	}
	if n, err := with(`{"bos_token": null}`); err != nil || n.bos != tok.bos {
		t.Errorf("null: %v", err)
	}
	for _, bad := range []string{`{"bos_token": "nowhere"}`, `{"eos_token": 5}`, `{"eos_token": {"content": 5}}`, `[]`} {
		if _, err := with(bad); err == nil || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestDigest: formatting does not count, everything that decides ids does.
func TestDigest(t *testing.T) {
	const name = "bl_qwen2"
	base := load(t, name).Digest()
	if len(base) != 64 {
		t.Fatalf("digest %q", base)
	}
	data, err := os.ReadFile("testdata/tokenizers/" + name + "/tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var spaced bytes.Buffer
	if err := json.Indent(&spaced, data, "", "\t"); err != nil {
		t.Fatal(err)
	}
	if tok, err := FromJSON(spaced.Bytes()); err != nil || tok.Digest() != base {
		t.Errorf("spacing changes the digest (%v)", err)
	}
	if got := mustEdit(t, name, func(object) {}).Digest(); got != base {
		t.Error("the order of names changes the digest")
	}
	for what, edit := range map[string]func(f object){
		"normalizer":    func(f object) { f["normalizer"] = nil },
		"ignore_merges": func(f object) { f["model"].(object)["ignore_merges"] = true },
		"merge order": func(f object) {
			m := f["model"].(object)["merges"].([]any)
			m[0], m[1] = m[1], m[0]
		},
		"special": func(f object) { f["added_tokens"].([]any)[0].(object)["special"] = false },
		"decoder": func(f object) { f["decoder"] = nil },
		"prefix": func(f object) {
			f["pre_tokenizer"].(object)["pretokenizers"].([]any)[1].(object)["add_prefix_space"] = true
		},
	} {
		if got := mustEdit(t, name, edit).Digest(); got == base {
			t.Errorf("changing %s leaves the digest", what)
		}
	}
}

func TestTokens(t *testing.T) {
	tok := load(t, "bl_gpt2")
	id, ok := tok.ID("Ġa")
	if !ok || string(tok.Bytes(id)) != " a" {
		t.Errorf("Ġa is %d, bytes %q", id, tok.Bytes(id))
	}
	if s, ok := tok.Token(id); !ok || s != "Ġa" {
		t.Errorf("Token(%d) = %q", id, s)
	}
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		if _, ok := tok.Token(id); ok || tok.Bytes(id) != nil || tok.IsSpecial(id) {
			t.Errorf("id %d is known", id)
		}
	}
	if got := tok.SpecialTokens(); len(got) != 1 || got[0] != "<|endoftext|>" {
		t.Errorf("special tokens %q", got)
	}
	sp := load(t, "sp_first")
	for token, want := range map[string]string{"<0xE4>": "\xe4", "▁a": " a"} {
		if id, ok := sp.ID(token); !ok || string(sp.Bytes(id)) != want {
			t.Errorf("bytes of %s = %q, want %q", token, sp.Bytes(id), want)
		}
	}
}

// TestByteAlphabet: every byte, 0x00 too, has its own character and comes back.
func TestByteAlphabet(t *testing.T) {
	a := newByteAlphabet()
	seen := map[rune]bool{}
	for b, r := range byteChars() {
		if seen[r] {
			t.Errorf("%q stands for two bytes", r)
		}
		seen[r] = true
		if got := a.bytes(nil, string(r)); len(got) != 1 || got[0] != byte(b) {
			t.Errorf("byte %#x comes back as %x", b, got)
		}
	}
	if got := string(a.bytes(nil, "Ġ世")); got != "Ġ世" {
		t.Errorf("a token outside of the alphabet is %q", got)
	}
}

// TestLossy has the examples of Unicode section 3.9, table 3-8 and its neighbours.
func TestLossy(t *testing.T) {
	for in, want := range map[string]string{
		"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82A": "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA",
		"\xe1\x80\xe2\xf0\x91\x92\xf1\xbfA": "\uFFFD\uFFFD\uFFFD\uFFFDA",
		"\xed\xa0\x80":                      "\uFFFD\uFFFD\uFFFD",
		"a\xf0\x9f\x99":                     "a\uFFFD",
		"\xf0\x9f\x99\x82":                  "🙂",
		"\uFFFD":                            "\uFFFD",
	} {
		if got, n := appendLossy(nil, []byte(in), true); string(got) != want || n != len(in) {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
	if got, n := appendLossy(nil, []byte("a\xf0\x9f\x99"), false); string(got) != "a" || n != 1 {
		t.Errorf("an incomplete tail is not held back: %q, %d", got, n)
	}
}
