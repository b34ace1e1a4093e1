package tokenizer

import (
	"encoding/json"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/batchmill/batchmill/infer/gguf"
)

// fakeMetadata holds values of the types that Metadata's methods return.
type fakeMetadata map[string]any

func get[T any](m fakeMetadata, key string) (T, bool) {
	v, ok := m[key].(T)
	return v, ok
}

func (m fakeMetadata) String(key string) (string, bool)      { return get[string](m, key) }
func (m fakeMetadata) Strings(key string) ([]string, bool)   { return get[[]string](m, key) }
func (m fakeMetadata) Int32s(key string) ([]int32, bool)     { return get[[]int32](m, key) }
func (m fakeMetadata) Float32s(key string) ([]float32, bool) { return get[[]float32](m, key) }
func (m fakeMetadata) Uint(key string) (uint64, bool)        { return get[uint64](m, key) }
func (m fakeMetadata) Bool(key string) (bool, bool)          { return get[bool](m, key) }

// asGGUF rewrites a golden tokenizer.json of the byte level as GGUF metadata.
func asGGUF(t *testing.T, name, pre string) fakeMetadata {
	t.Helper()
	var f struct {
		Added []jsonAdded `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int `json:"vocab"`
			Merges [][2]string    `json:"merges"`
		} `json:"model"`
	}
	readJSON(t, filepath.Join("testdata/tokenizers", name, "tokenizer.json"), &f)
	tokens := make([]string, len(f.Model.Vocab), len(f.Model.Vocab)+len(f.Added)+2)
	types := make([]int32, len(tokens), cap(tokens))
	for s, id := range f.Model.Vocab {
		tokens[id], types[id] = s, 1
	}
	for _, a := range f.Added {
		tokens = append(tokens, a.Content)
		kind := int32(typeControl)
		if !a.Special {
			kind = typeUserDefined
		}
		types = append(types, kind)
	}
	merges := make([]string, len(f.Model.Merges))
	for i, m := range f.Model.Merges {
		merges[i] = m[0] + " " + m[1]
	}
	return fakeMetadata{ggufModel: "gpt2", ggufPre: pre, ggufTokens: tokens, ggufTypes: types, ggufMerges: merges}
}

func fromGGUFOK(t testing.TB, kv Metadata) *Tokenizer {
	t.Helper()
	tok, err := FromGGUF(kv)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestGGUFByteLevel holds tokenizers made from GGUF metadata to the goldens of the same vocabulary and pre-tokenizer.
func TestGGUFByteLevel(t *testing.T) {
	strs := goldenStrings(t)
	for name, pre := range map[string]string{"bl_gpt2": "gpt-2", "bl_smollm": "smollm", "bl_llama3": "llama-bpe", "bl_llama3_no_ignore": "smaug-bpe",
		"bl_qwen2": "qwen2", "bl_o200k": "gpt-4o", "bl_deepseek": "deepseek-v3"} {
		t.Run(name, func(t *testing.T) {
			tok := fromGGUFOK(t, asGGUF(t, name, pre))
			var g goldenFile
			readJSON(t, filepath.Join("testdata/tokenizers", name, "goldens.json"), &g)
			for _, c := range g.Cases {
				text := c.text(strs)
				if got := encode(t, tok, text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, c.IDs) {
					t.Errorf("ids of %q = %v, want %v", text, got, c.IDs)
				}
				want := c.IDs
				if c.AsText != nil {
					want = *c.AsText
				}
				if got := encode(t, tok, text, EncodeOptions{}); !slices.Equal(got, want) {
					t.Errorf("ids of %q with special tokens as text = %v, want %v", text, got, want)
				}
			}
			for _, c := range g.Decode {
				checkDecode(t, tok, c.IDs, false, c.Decoded)
			}
		})
	}
}

func TestGGUFPaddingAndBOS(t *testing.T) {
	kv := asGGUF(t, "bl_llama3", "llama-bpe")
	n := len(kv[ggufTokens].([]string))
	kv[ggufTokens] = append(kv[ggufTokens].([]string), "[PAD"+itoa(n)+"]", "[PAD"+itoa(n+1)+"]")
	kv[ggufTypes] = append(kv[ggufTypes].([]int32), typeUnused, typeUnused)
	kv[ggufBOS] = uint64(n - 1)
	tok := fromGGUFOK(t, kv)
	if tok.VocabSize() != n {
		t.Errorf("VocabSize() = %d, want %d without the padding", tok.VocabSize(), n)
	}
	if got := tok.Decode([]int32{int32(n), 0, int32(n + 1), 99999, -1}, false); got != "!" {
		t.Errorf("decoding padding gave %q, want only the text of id 0", got)
	}
	if !tok.AddsBOS() {
		t.Error("llama-bpe adds BOS where the file does not say")
	}
	kv[ggufAddBOS] = false
	if fromGGUFOK(t, kv).AddsBOS() {
		t.Error("add_bos_token false is not honoured")
	}
	delete(kv, ggufBOS)
	kv[ggufAddBOS] = true
	if _, err := FromGGUF(kv); err == nil || !strings.Contains(err.Error(), ggufBOS) {
		t.Errorf("add_bos_token without bos_token_id: %v", err)
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func TestGGUFRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(kv fakeMetadata)
		want string
	}{
		{"unknown pre", func(kv fakeMetadata) { kv[ggufPre] = "superbpe" }, `"superbpe" is not known`},
		{"default pre", func(kv fakeMetadata) { kv[ggufPre] = "default" }, `"default" is not known`},
		{"no pre", func(kv fakeMetadata) { delete(kv, ggufPre) }, "hint"},
		{"unknown model", func(kv fakeMetadata) { kv[ggufModel] = "bert" }, `"bert" is not supported`},
		{"no model", func(kv fakeMetadata) { delete(kv, ggufModel) }, ggufModel},
		{"no tokens", func(kv fakeMetadata) { delete(kv, ggufTokens) }, ggufTokens},
		{"no merges", func(kv fakeMetadata) { delete(kv, ggufMerges) }, ggufMerges},
		{"bad merge", func(kv fakeMetadata) { kv[ggufMerges] = []string{"ab"} }, "merge 0"},
		{"short types", func(kv fakeMetadata) { kv[ggufTypes] = []int32{1} }, "1 entries"},
		{"bos outside", func(kv fakeMetadata) { kv[ggufBOS] = uint64(1) << 40 }, ggufBOS},
	} {
		kv := asGGUF(t, "bl_gpt2", "gpt-2")
		c.edit(kv)
		if _, err := FromGGUF(kv); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// scoreVocab is a small SentencePiece vocabulary: unk, bos, eos, all bytes, then pieces with scores.
func scoreVocab() fakeMetadata {
	tokens := []string{"<unk>", "<s>", "</s>"}
	types := []int32{typeUnknown, typeControl, typeControl}
	scores := []float32{0, 0, 0}
	for b := range 256 {
		const hex = "0123456789ABCDEF"
		tokens = append(tokens, "<0x"+string(hex[b>>4])+string(hex[b&15])+">")
		types, scores = append(types, typeByte), append(scores, 0)
	}
	for i, s := range []string{"▁▁", "▁a", "ab", "▁ab", "aa", "aaa", "bc", "▁▁▁▁", "xéy", "éy", "▁the", "th", "he", "▁t", "<s", "<s>x", "<0x4", "<0x41"} {
		tokens, types, scores = append(tokens, s), append(types, 1), append(scores, -float32(i/2))
	}
	for _, s := range []string{"▁", "a", "b", "c", "t", "h", "e", "<", "s", ">", "x", "y", "0", "4", "1"} {
		tokens, types, scores = append(tokens, s), append(types, 1), append(scores, -1000)
	}
	return fakeMetadata{ggufModel: "llama", ggufTokens: tokens, ggufTypes: types, ggufScores: scores}
}

// naiveScores is SentencePiece's algorithm as it is described: join the neighbours whose text is the token of the highest
// score, of equals the leftmost, until none is left.
func naiveScores(kv fakeMetadata, text string) []int32 {
	tokens, types, scores := kv[ggufTokens].([]string), kv[ggufTypes].([]int32), kv[ggufScores].([]float32)
	id := func(s string) int {
		k := slices.Index(tokens, s)
		if k >= 0 && types[k] != 1 {
			return -1
		}
		return k
	}
	parts := strings.Split(strings.ReplaceAll(" "+text, " ", metaspace), "")
	for {
		best, at := -1, -1
		for i := 0; i+1 < len(parts); i++ {
			if k := id(parts[i] + parts[i+1]); k >= 0 && (best < 0 || scores[k] > scores[best]) {
				best, at = k, i
			}
		}
		if at < 0 {
			break
		}
		parts[at] += parts[at+1]
		parts = slices.Delete(parts, at+1, at+2)
	}
	var ids []int32
	for _, p := range parts {
		if k := id(p); k >= 0 {
			ids = append(ids, int32(k))
			continue
		}
		for i := range len(p) {
			ids = append(ids, int32(3+int(p[i])))
		}
	}
	return ids
}

func TestGGUFScores(t *testing.T) {
	kv := scoreVocab()
	tok := fromGGUFOK(t, kv)
	r := rand.New(rand.NewSource(5))
	pieces := []string{"a", "b", "c", " ", "  ", "the", "é", "éy", "x", "▁", "<s>", "<0x41>", "🙂", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "h", "e"}
	for range 3000 {
		var b strings.Builder
		for range 1 + r.Intn(12) {
			b.WriteString(pieces[r.Intn(len(pieces))])
		}
		text := b.String()
		if got, want := encode(t, tok, text, EncodeOptions{}), naiveScores(kv, text); !slices.Equal(got, want) {
			t.Fatalf("ids of %q = %v, want %v", text, got, want)
		}
	}
	if got := encode(t, tok, "a", EncodeOptions{AddSpecial: true}); got[0] != 1 || !tok.AddsBOS() {
		t.Errorf("SentencePiece models add BOS unless the file says no; got %v", got)
	}
	checkDecode(t, tok, encode(t, tok, "ab  the éy🙂", EncodeOptions{}), false, "ab  the éy🙂")
	kv[ggufSpacePrefix] = false
	tok = fromGGUFOK(t, kv)
	if got, want := encode(t, tok, "ab", EncodeOptions{}), []int32{int32(slices.Index(kv[ggufTokens].([]string), "ab"))}; !slices.Equal(got, want) {
		t.Errorf("without a space in front: %v, want %v", got, want)
	}
}

// testModel returns the tokenizer of the model that the environment names, nil without one.
func testModel(t testing.TB) *Tokenizer {
	path := os.Getenv("BATCHMILL_TEST_MODEL")
	if path == "" {
		return nil
	}
	f, err := gguf.OpenPath(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return fromGGUFOK(t, f)
}

// TestSmolLM2 compares a real model's tokenizer with the tokenizers library's results.
func TestSmolLM2(t *testing.T) {
	tok := testModel(t)
	if tok == nil {
		t.Skip("BATCHMILL_TEST_MODEL does not name SmolLM2-135M-Instruct.Q4_1.gguf (make test fetches it)")
	}
	var g struct {
		Cases []struct {
			Text        string
			IDs         []int32 `json:"ids"`
			Decoded     string
			DecodedSkip string `json:"decoded_skip"`
		}
	}
	readJSON(t, "testdata/smollm2/goldens.json", &g)
	if len(g.Cases) < 10 {
		t.Fatalf("only %d cases", len(g.Cases))
	}
	for _, c := range g.Cases {
		if got := encode(t, tok, c.Text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, c.IDs) {
			t.Errorf("ids of %q = %v, want %v", c.Text, got, c.IDs)
		}
		checkDecode(t, tok, c.IDs, false, c.Decoded)
		checkDecode(t, tok, c.IDs, true, c.DecodedSkip)
	}
	if bos, _ := tok.BOS(); bos != 1 || tok.AddsBOS() {
		t.Errorf("BOS %d, added %t; want 1, false", bos, tok.AddsBOS())
	}
	if eos, _ := tok.EOS(); eos != 2 {
		t.Errorf("EOS %d, want 2", eos)
	}
	for id := range int32(tok.VocabSize()) {
		if b := tok.Bytes(id); utf8.Valid(b) && tok.Decode([]int32{id}, false) != string(b) {
			t.Errorf("id %d decodes to %q, its bytes are %q", id, tok.Decode([]int32{id}, false), b)
		}
	}
}
