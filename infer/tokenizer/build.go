package tokenizer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

func newBPE(size int) *bpe {
	b := &bpe{size: int32(size), unk: -1, chars: map[rune]int32{}}
	for i := range b.bytes {
		b.bytes[i] = -1
	}
	for i := range b.ascii {
		b.ascii[i] = -1
	}
	return b
}

// neverInUTF8 are the bytes that no text can hold; vocabularies made from text can lack them.
func neverInUTF8(c int) bool { return c == 0xC0 || c == 0xC1 || c >= 0xF5 }

// setSymbols finds the tokens that merging starts from. words is the model's vocabulary, without added tokens.
func (b *bpe) setSymbols(words map[string]int32) error {
	if b.byteLevel {
		for c, r := range byteChars() {
			id, ok := words[string(r)]
			switch {
			case ok:
				b.bytes[c] = id
			case (b.unk >= 0 || b.byteFallback) && !neverInUTF8(c):
				return fmt.Errorf("byte-level vocabulary without byte 0x%02X is not supported", c)
			}
		}
		return nil
	}
	for token, id := range words {
		if c, ok := byteToken(token); ok && token == fmt.Sprintf("<0x%02X>", c) {
			b.bytes[c] = id
		}
		if r, n := utf8.DecodeRuneInString(token); n > 0 && n == len(token) {
			b.setChar(r, id)
		}
	}
	return nil
}

func (b *bpe) setChar(r rune, id int32) {
	if r < utf8.RuneSelf {
		b.ascii[r] = id
	}
	b.chars[r] = id
}

// setMerges fills the table of merges; the place in the list is the rank. Merges that would make a special token are left
// out: no text of data may become one.
func (b *bpe) setMerges(words map[string]int32, special []bool, pairs [][2]string) error {
	b.merges = newMergeTable(len(pairs))
	b.spaceCut = !b.byteLevel && b.allBytes()
	for rank, p := range pairs {
		left, ok1 := words[p[0]]
		right, ok2 := words[p[1]]
		id, ok3 := words[p[0]+p[1]]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("merge %d of %q and %q: one of the parts or the whole is not in the vocabulary", rank, p[0], p[1])
		}
		if special[id] {
			continue
		}
		b.merges.set(left, right, int32(rank), id)
		b.spaceCut = b.spaceCut && metaspaceCut(p[0]+p[1]) < 0
	}
	return nil
}

// allBytes reports that every character has a fallback, so that the unknown token never occurs.
func (b *bpe) allBytes() bool {
	if !b.byteFallback {
		return false
	}
	for _, id := range b.bytes {
		if id < 0 {
			return false
		}
	}
	return true
}

// setWhole turns on ignore_merges: a pre-token that is in the vocabulary is that token, unless it is special.
func (b *bpe) setWhole(words map[string]int32, special []bool) {
	b.whole = make(map[string]int32, len(words))
	alphabet := newByteAlphabet()
	for token, id := range words {
		if special[id] {
			continue
		}
		if !b.byteLevel {
			b.whole[token] = id
		} else if raw, ok := alphabet.raw(token); ok {
			b.whole[raw] = id
		}
	}
	b.spaceCut = false // the word as a whole decides
}

// finish makes the matchers of added tokens.
func (t *Tokenizer) finish() error {
	var raw, normal []addedToken
	var rawTexts, normalTexts []string
	for _, a := range t.added {
		if !a.normalized {
			raw, rawTexts = append(raw, a), append(rawTexts, a.content)
			continue
		}
		text := a.content
		if t.normalizer != nil {
			text, _ = t.normalizer.normalize(text, nil)
		}
		if text == "" {
			return fmt.Errorf("added token %q is nothing after normalising", a.content)
		}
		normal, normalTexts = append(normal, a), append(normalTexts, text)
	}
	if len(raw) > 0 {
		t.raw = newMatcher(raw, rawTexts)
	}
	if len(normal) > 0 {
		t.normal = newMatcher(normal, normalTexts)
	}
	t.maxBytes = t.longestToken()
	return nil
}

func (t *Tokenizer) clone() *Tokenizer {
	return &Tokenizer{tokens: t.tokens, present: t.present, ids: t.ids, special: t.special, added: t.added, raw: t.raw,
		normal: t.normal, normalizer: t.normalizer, stripsLeft: t.stripsLeft, stages: t.stages, model: t.model,
		before: t.before, after: t.after, decoders: t.decoders, bos: t.bos, eos: t.eos, digest: t.digest, maxBytes: t.maxBytes}
}

// digestVersion enters every digest; it changes when the same file comes to give other ids.
const digestVersion = "batchmill tokenizer 1"

func (t *Tokenizer) startDigest(source string) hash.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", digestVersion, source)
	for id, token := range t.tokens {
		if t.present[id] {
			fmt.Fprintf(h, "%d %q\n", id, token)
		}
	}
	for _, a := range t.added {
		fmt.Fprintf(h, "added %q %d %t %t %t %t %t\n", a.content, a.id, a.special, a.singleWord, a.lstrip, a.rstrip, a.normalized)
	}
	fmt.Fprintf(h, "around %v %v\n", t.before, t.after)
	return h
}

func endDigest(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// digest covers the file's parts in canonical JSON, so that spacing and order of names do not count.
func (f *jsonFile) digest(t *Tokenizer) (string, error) {
	h := t.startDigest("tokenizer.json")
	m := f.Model
	unk := ""
	if m.UnkToken != nil {
		unk = *m.UnkToken
	}
	fmt.Fprintf(h, "model %q %t %t %t\n", unk, m.FuseUnk, m.ByteFallback, m.IgnoreMerges)
	pairs, err := m.pairs()
	if err != nil {
		return "", err
	}
	for _, p := range pairs {
		io.WriteString(h, strings.Join(p[:], "\x00")+"\n")
	}
	for _, part := range []jsontext.Value{f.Normalizer, f.PreTokenizer, f.PostProcessor, f.Decoder} {
		v := part.Clone()
		if len(v) > 0 {
			if err := v.Canonicalize(jsontext.AllowDuplicateNames(true)); err != nil {
				return "", err
			}
		}
		h.Write(append(v, '\n'))
	}
	return endDigest(h), nil
}
