package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goldenFile is what testdata/tokenizers/NAME/goldens.json holds: results of the tokenizers library.
type goldenFile struct {
	VocabSize int          `json:"vocab_size"`
	Cases     []goldenCase `json:"cases"`
	Decode    []struct {
		IDs         []int32 `json:"ids"`
		Decoded     string  `json:"decoded"`
		DecodedSkip string  `json:"decoded_skip"`
	} `json:"decode_only"`
	Prefixes struct {
		IDs     []int32  `json:"ids"`
		Decoded []string `json:"decoded"`
	} `json:"prefixes"`
}

type goldenCase struct {
	S           *int     `json:"s"`
	Text        *string  `json:"text"`
	IDs         []int32  `json:"ids"`
	IDsSpecial  *[]int32 `json:"ids_special"`
	Decoded     *string  `json:"decoded"`
	DecodedSkip *string  `json:"decoded_skip"`
	AsText      *[]int32 `json:"ids_specials_as_text"`
}

// families returns the names of the tokenizers in testdata.
func families(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/tokenizers/*/tokenizer.json")
	if err != nil || len(paths) < 17 {
		t.Fatalf("found %d tokenizers (%v), want at least 17", len(paths), err)
	}
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = filepath.Base(filepath.Dir(p))
	}
	return names
}

func load(t testing.TB, name string) *Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/tokenizers", name, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := FromJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func readJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func goldenStrings(t testing.TB) []string {
	var f struct {
		Strings []string `json:"strings"`
	}
	readJSON(t, "testdata/tokenizers/strings.json", &f)
	if len(f.Strings) < 100 {
		t.Fatalf("only %d strings", len(f.Strings))
	}
	return f.Strings
}

func (c goldenCase) text(strs []string) string {
	if c.S != nil {
		return strs[*c.S]
	}
	return *c.Text
}

func encode(t testing.TB, tok *Tokenizer, text string, o EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, o)
	if err != nil {
		t.Fatalf("encode %q: %v", text, err)
	}
	return ids
}

func TestGoldens(t *testing.T) {
	strs := goldenStrings(t)
	for _, name := range families(t) {
		t.Run(name, func(t *testing.T) {
			tok := load(t, name)
			var g goldenFile
			readJSON(t, filepath.Join("testdata/tokenizers", name, "goldens.json"), &g)
			if len(g.Cases) == 0 || len(g.Decode) == 0 || len(g.Prefixes.IDs) == 0 {
				t.Fatal("goldens are empty")
			}
			if tok.VocabSize() != g.VocabSize {
				t.Errorf("VocabSize() = %d, want %d", tok.VocabSize(), g.VocabSize)
			}
			for _, c := range g.Cases {
				checkGolden(t, tok, c, c.text(strs))
			}
			for _, c := range g.Decode {
				checkDecode(t, tok, c.IDs, false, c.Decoded)
				checkDecode(t, tok, c.IDs, true, c.DecodedSkip)
			}
			for k := range g.Prefixes.IDs {
				checkDecode(t, tok, g.Prefixes.IDs[:k+1], false, g.Prefixes.Decoded[k])
			}
		})
	}
}

func checkGolden(t *testing.T, tok *Tokenizer, c goldenCase, text string) {
	t.Helper()
	ids := encode(t, tok, text, EncodeOptions{ParseSpecial: true})
	if !slices.Equal(ids, c.IDs) {
		t.Errorf("ids of %q = %v, want %v", text, ids, c.IDs)
	}
	special := c.IDs
	if c.IDsSpecial != nil {
		special = *c.IDsSpecial
	}
	if got := encode(t, tok, text, EncodeOptions{ParseSpecial: true, AddSpecial: true}); !slices.Equal(got, special) {
		t.Errorf("ids of %q with special tokens = %v, want %v", text, got, special)
	}
	asText := c.IDs
	if c.AsText != nil {
		asText = *c.AsText
	}
	if got := encode(t, tok, text, EncodeOptions{}); !slices.Equal(got, asText) {
		t.Errorf("ids of %q with special tokens as text = %v, want %v", text, got, asText)
	}
	if got := encode(t, tok, text, EncodeOptions{Literal: []Span{}}); !slices.Equal(got, asText) {
		t.Errorf("ids of %q as data = %v, want %v", text, got, asText)
	}
	if got := encode(t, tok, text, EncodeOptions{Literal: []Span{{0, len(text)}}}); !slices.Equal(got, c.IDs) {
		t.Errorf("ids of %q as a literal = %v, want %v", text, got, c.IDs)
	}
	decoded := text
	if c.Decoded != nil {
		decoded = *c.Decoded
	}
	checkDecode(t, tok, special, false, decoded)
	if c.DecodedSkip != nil {
		decoded = *c.DecodedSkip
	} else if c.Decoded == nil {
		decoded = text
	}
	checkDecode(t, tok, special, true, decoded)
}

// checkDecode compares Decode and a streaming Decoder with want.
func checkDecode(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want string) {
	t.Helper()
	if got := tok.Decode(ids, skip); got != want {
		t.Errorf("Decode(%v, %t) = %q, want %q", ids, skip, got, want)
	}
	if got := stream(tok, ids, skip); got != want {
		t.Errorf("streamed decoding of %v, %t = %q, want %q", ids, skip, got, want)
	}
}

func stream(tok *Tokenizer, ids []int32, skip bool) string {
	d := tok.NewDecoder(skip)
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(d.Push(id))
	}
	b.WriteString(d.Flush())
	return b.String()
}
