package tokenizer

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzFromJSON: no file makes FromJSON panic, and what it accepts encodes and decodes without panicking.
func FuzzFromJSON(f *testing.F) {
	for _, name := range families(f) {
		f.Add(smallJSON(f, name))
	}
	f.Add([]byte(`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"b"}},{"Sequence":{"id":"A"}}],` +
		`"special_tokens":{"b":{"ids":[1]}}},"decoder":{"type":"ByteLevel"},"pre_tokenizer":{"type":"ByteLevel"},` +
		`"model":{"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]],"ignore_merges":true}}`))
	f.Add([]byte(`{"added_tokens":[{"id":2,"content":"ab","special":true}],"normalizer":{"type":"NFKC"},"pre_tokenizer":{"type":"Metaspace"},` +
		`"decoder":{"type":"Metaspace"},"model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":["a b"],"unk_token":"a"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if tok, err := FromJSON(data); err == nil {
			exercise(t, tok)
		}
	})
}

// smallJSON is a golden tokenizer.json with a tiny vocabulary: large inputs stall the fuzzer.
func smallJSON(t testing.TB, name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata/tokenizers", name, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f object
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	words := []string{"a", "b", "▁", "Ġ", "1", "<", "ab", "▁a", "<0x41>"}
	vocab := object{}
	for id, w := range words {
		vocab[w] = id
	}
	model := f["model"].(object)
	model["vocab"], model["merges"], model["unk_token"] = vocab, []any{"a b", "▁ a"}, nil
	added := f["added_tokens"].([]any)
	for i, a := range added {
		a.(object)["id"] = len(words) + i
	}
	f["post_processor"] = nil
	small, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FromJSON(small); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return small
}

// exercise runs a tokenizer of unknown origin on texts that reach all of its parts.
func exercise(t *testing.T, tok *Tokenizer) {
	for _, text := range []string{"", " a b\n\n12é", strings.Join(tok.SpecialTokens(), " x"), "ｆｉ\u0301▁<0x41>🙂\u0000"} {
		if !utf8.ValidString(text) || len(text) > 1<<16 {
			continue
		}
		for _, o := range []EncodeOptions{{}, {AddSpecial: true, ParseSpecial: true}, {Literal: []Span{{0, len(text) / 2}}}} {
			ids, err := tok.Encode(text, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if _, ok := tok.Token(id); !ok {
					t.Fatalf("%q gives id %d, which is no token", text, id)
				}
			}
			if got, want := stream(tok, ids, true), tok.Decode(ids, true); got != want {
				t.Fatalf("streaming gives %q, Decode %q", got, want)
			}
		}
	}
}

// FuzzFromGGUF builds metadata from bytes: a SentencePiece or byte-level vocabulary split at zero bytes.
func FuzzFromGGUF(f *testing.F) {
	f.Add("llama", "", "<unk>\x00<s>\x00</s>\x00▁\x00a\x00▁a\x00b", "", []byte{2, 3, 3, 1, 1, 1, 1}, uint64(1))
	f.Add("gpt2", "smollm", "a\x00b\x00ab\x00Ġ\x00<|x|>", "a b\x00Ġ ab", []byte{1, 1, 1, 1, 3}, uint64(4))
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types []byte, bos uint64) {
		kv := fakeMetadata{ggufModel: model, ggufPre: pre, ggufTokens: strings.Split(tokens, "\x00"), ggufBOS: bos}
		if merges != "" {
			kv[ggufMerges] = strings.Split(merges, "\x00")
		} else {
			kv[ggufMerges] = []string{}
		}
		kinds := make([]int32, len(types))
		scores := make([]float32, len(types))
		for i, k := range types {
			kinds[i], scores[i] = int32(k%7), float32(int8(k))/3
		}
		kv[ggufTypes], kv[ggufScores] = kinds, scores
		if tok, err := FromGGUF(kv); err == nil {
			exercise(t, tok)
		}
	})
}

// FuzzEncode: decoding what was encoded gives the text back in the lossless families, and in all families streaming and
// provenance agree with the plain way.
func FuzzEncode(f *testing.F) {
	for i, s := range goldenStrings(f) {
		f.Add(uint8(i), s, uint16(i))
	}
	var toks []*Tokenizer
	names := families(f)
	for _, name := range names {
		toks = append(toks, load(f, name))
	}
	f.Fuzz(func(t *testing.T, family uint8, text string, border uint16) {
		k := int(family) % len(toks)
		tok := toks[k]
		ids, err := tok.Encode(text, EncodeOptions{})
		if !utf8.ValidString(text) {
			if err != ErrInvalidUTF8 {
				t.Fatalf("invalid UTF-8: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		got := tok.Decode(ids, false)
		if slices.Contains(lossless, names[k]) && !strings.Contains(text, metaspace) && got != text {
			t.Fatalf("%s: %q comes back as %q", names[k], text, got)
		}
		if s := stream(tok, ids, false); s != got {
			t.Fatalf("%s: streaming gives %q, Decode %q", names[k], s, got)
		}
		if data := encode(t, tok, text, EncodeOptions{Literal: []Span{}}); !slices.Equal(data, ids) {
			t.Fatalf("%s: %q as data gives %v, with special tokens as text %v", names[k], text, data, ids)
		}
		parsed := encode(t, tok, text, EncodeOptions{ParseSpecial: true})
		if all := encode(t, tok, text, EncodeOptions{Literal: []Span{{0, len(text)}}}); !slices.Equal(all, parsed) {
			t.Fatalf("%s: %q as a literal gives %v, with special tokens parsed %v", names[k], text, all, parsed)
		}
		encode(t, tok, text, EncodeOptions{Literal: []Span{{0, int(border) % (len(text) + 1)}}})
	})
}

// FuzzDecoder: a streaming decoder adds up to Decode for any ids.
func FuzzDecoder(f *testing.F) {
	f.Add(uint8(0), false, []byte{1, 0, 200, 0, 201, 0})
	f.Add(uint8(12), true, []byte{0, 1, 230, 0, 231, 0, 3, 0})
	var toks []*Tokenizer
	for _, name := range families(f) {
		toks = append(toks, load(f, name))
	}
	f.Fuzz(func(t *testing.T, family uint8, skip bool, data []byte) {
		tok := toks[int(family)%len(toks)]
		ids := make([]int32, len(data)/2)
		for i := range ids {
			ids[i] = int32(binary.LittleEndian.Uint16(data[2*i:])) % int32(tok.VocabSize()+2)
		}
		got, want := stream(tok, ids, skip), tok.Decode(ids, skip)
		if got != want || !utf8.ValidString(got) {
			t.Fatalf("streaming %v gives %q, Decode %q", ids, got, want)
		}
	})
}
