package tokenizer

import "unicode/utf8"

// MaxTokenBytes returns how many bytes of text one token stands for at most: a text of n bytes has at least
// n/MaxTokenBytes tokens, whatever it holds. 0 says that there is no bound or that it is not known: a normalizer that
// drops text, a token that takes the space beside it, characters that are no token and vanish or share one.
func (t *Tokenizer) MaxTokenBytes() int { return t.maxBytes }

// longestToken computes MaxTokenBytes. Added tokens are part of the vocabulary.
func (t *Tokenizer) longestToken() int {
	shrink := 1
	if t.normalizer != nil {
		shrink = shrinkOf(t.normalizer)
	}
	if shrink == 0 || !t.model.covers() {
		return 0
	}
	longest := 1
	if !t.model.byteLevel && !t.model.allBytes() {
		longest = utf8.UTFMax // one unknown token for a character
	}
	alphabet := newByteAlphabet()
	for _, token := range t.tokens {
		n := len(token)
		if t.model.byteLevel {
			if raw, ok := alphabet.raw(token); ok {
				n = len(raw)
			}
		}
		longest = max(longest, n)
	}
	for _, a := range t.added { // matched as they are written
		if a.lstrip || a.rstrip {
			return 0
		}
		longest = max(longest, len(a.content))
	}
	if t.normal != nil {
		for _, text := range t.normal.texts {
			longest = max(longest, len(text))
		}
	}
	return shrink * longest
}

// covers reports that every character of a text is at least one token, or part of one that is no longer than its text.
func (b *bpe) covers() bool {
	if b.byteLevel {
		for c, id := range b.bytes {
			if id < 0 && !neverInUTF8(c) {
				return false
			}
		}
		return true
	}
	return b.allBytes() || b.unk >= 0 && !b.fuseUnk
}

// formShrink bounds how much shorter, in bytes, a text can be in a normal form: a mathematical letter of four bytes becomes
// a plain one, three Hangul letters one syllable, and U+1FBE U+0308 U+0341 with its seven bytes U+0390 of two.
const formShrink = 4

// shrinkOf returns by what factor a normalizer can shorten text at most; 0: no bound is known.
func shrinkOf(n normalizer) int {
	switch n := n.(type) {
	case sequenceNormalizer:
		all := 1
		for _, n := range n {
			all *= shrinkOf(n)
		}
		return all
	case prependNormalizer:
		return 1
	case replaceNormalizer:
		if len(n.to) >= len(n.from) {
			return 1
		}
	case *normForm:
		return formShrink
	}
	return 0
}
