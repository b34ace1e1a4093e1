package tokenizer

import (
	"math/rand"
	"strings"
	"testing"
)

// englishWords are from the Gettysburg Address and Moby-Dick; benchText draws from them, so that pre-tokens recur about as
// they do in real text, but sentences do not.
const englishWords = `Four score and seven years ago our fathers brought forth on this continent a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether that
nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that war. Call me
Ishmael. Some years ago, never mind how long precisely, having little or no money in my purse, and nothing particular to
interest me on shore, I thought I would sail about a little and see the watery part of the world. It is a way I have of driving
off the spleen and regulating the circulation. Whenever I find myself growing grim about the mouth; whenever it is a damp,
drizzly November in my soul; whenever I find myself involuntarily pausing before coffin warehouses, and bringing up the
rear of every funeral I meet; and especially whenever my hypos get such an upper hand of me, that it requires a strong
moral principle to prevent me from deliberately stepping into the street, and methodically knocking people's hats off, in
1851 or 1863, then I account it high time to get to sea as soon as I can.`

func benchText(n int) string {
	words := strings.Fields(englishWords)
	r := rand.New(rand.NewSource(1))
	var b strings.Builder
	for b.Len() < n {
		if r.Intn(20) == 0 { // a rare word, so that the cache does not serve everything
			for range 3 + r.Intn(8) {
				b.WriteByte(byte('a' + r.Intn(26)))
			}
		} else {
			b.WriteString(words[r.Intn(len(words))])
		}
		if r.Intn(100) == 0 {
			b.WriteString("\n\n")
		} else {
			b.WriteByte(' ')
		}
	}
	return b.String()
}

func BenchmarkEncode(b *testing.B) {
	text := benchText(1 << 20)
	for _, name := range []string{"bl_smollm", "bl_llama3", "bl_qwen2", "bl_o200k", "bl_deepseek", "sp_first", "sp_llama2_legacy", "sp_nfkc_added"} {
		tok := load(b, name)
		b.Run(name, func(b *testing.B) { benchEncode(b, tok, text) })
	}
	if tok := testModel(b); tok != nil {
		b.Run("smollm2", func(b *testing.B) { benchEncode(b, tok, text) })
	}
}

func benchEncode(b *testing.B, tok *Tokenizer, text string) {
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Encode(text, EncodeOptions{Literal: []Span{}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	text := benchText(1 << 18)
	for _, name := range []string{"bl_smollm", "sp_first"} {
		tok := load(b, name)
		ids := encode(b, tok, text, EncodeOptions{})
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if got := tok.Decode(ids, false); len(got) != len(text) {
					b.Fatalf("decoded %d bytes of %d", len(got), len(text))
				}
			}
		})
	}
}
