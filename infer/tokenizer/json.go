package tokenizer

import (
	"errors"
	"fmt"
	"maps"
	"sort"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonFile is the part of tokenizer.json that decides ids and text. Truncation and padding are the caller's business.
type jsonFile struct {
	AddedTokens   []jsonAdded    `json:"added_tokens"`
	Normalizer    jsontext.Value `json:"normalizer"`
	PreTokenizer  jsontext.Value `json:"pre_tokenizer"`
	PostProcessor jsontext.Value `json:"post_processor"`
	Decoder       jsontext.Value `json:"decoder"`
	Model         *jsonModel     `json:"model"`
}

type jsonAdded struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

type jsonModel struct {
	Type         *string        `json:"type"`
	Dropout      *float64       `json:"dropout"`
	UnkToken     *string        `json:"unk_token"`
	Prefix       *string        `json:"continuing_subword_prefix"`
	Suffix       *string        `json:"end_of_word_suffix"`
	FuseUnk      bool           `json:"fuse_unk"`
	ByteFallback bool           `json:"byte_fallback"`
	IgnoreMerges bool           `json:"ignore_merges"`
	Vocab        jsontext.Value `json:"vocab"`
	Merges       jsontext.Value `json:"merges"`
}

// FromJSON builds a tokenizer from the bytes of a tokenizer.json. Whatever in it decides ids but is not known is
// refused by name.
func FromJSON(tokenizerJSON []byte) (*Tokenizer, error) {
	t, err := fromJSON(tokenizerJSON)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer.json: %w", err)
	}
	return t, nil
}

func fromJSON(data []byte) (*Tokenizer, error) {
	var f jsonFile
	if err := unmarshal(data, &f); err != nil {
		return nil, err
	}
	if f.Model == nil {
		return nil, errors.New("no model in it")
	}
	t := &Tokenizer{bos: -1, eos: -1}
	vocab, err := f.Model.check()
	if err != nil {
		return nil, err
	}
	if err := t.setVocab(vocab); err != nil {
		return nil, err
	}
	words := maps.Clone(t.ids)
	if err := t.addTokens(f.AddedTokens); err != nil {
		return nil, err
	}
	if t.normalizer, t.stripsLeft, err = parseNormalizer(f.Normalizer, 0); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	stages, byteLevel, err := parsePreTokenizer(f.PreTokenizer, 0)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	t.stages = stages
	if t.model, err = f.Model.build(t, words, byteLevel); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if t.before, t.after, err = parsePostProcessor(f.PostProcessor, t, 0); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if t.decoders, err = parseDecoder(f.Decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if len(t.before) > 0 {
		t.bos = t.before[0]
	}
	if n := len(t.after); n > 0 {
		t.eos = t.after[n-1]
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	t.digest, err = f.digest(t)
	return t, err
}

// check refuses models that are not BPE as we do it, and returns the vocabulary.
func (m *jsonModel) check() (map[string]int64, error) {
	absent := func(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }
	switch {
	case m.Type == nil && (absent(m.Merges) || absent(m.Vocab)): // with both it is BPE, from before the type was written
		return nil, errors.New("model has no type, and not the vocab and merges of a BPE model, the only type that is supported")
	case m.Type != nil && *m.Type != "BPE":
		return nil, fmt.Errorf("model type %q is not supported: only BPE is", *m.Type)
	case absent(m.Vocab):
		return nil, errors.New("model has no vocab")
	case absent(m.Merges):
		return nil, errors.New("model has no merges")
	}
	if m.Dropout != nil && *m.Dropout != 0 {
		return nil, fmt.Errorf("model has dropout %v: its ids would be random", *m.Dropout)
	}
	if m.Prefix != nil && *m.Prefix != "" {
		return nil, fmt.Errorf("model option continuing_subword_prefix %q is not supported", *m.Prefix)
	}
	if m.Suffix != nil && *m.Suffix != "" {
		return nil, fmt.Errorf("model option end_of_word_suffix %q is not supported", *m.Suffix)
	}
	var vocab map[string]int64
	if err := unmarshal(m.Vocab, &vocab); err != nil {
		return nil, fmt.Errorf("model: vocab: %w", err)
	}
	return vocab, nil
}

// setVocab fills the tables of tokens.
func (t *Tokenizer) setVocab(vocab map[string]int64) error {
	t.ids = make(map[string]int32, len(vocab))
	for token, id := range vocab {
		if err := t.put(token, id); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) put(token string, id int64) error {
	if id < 0 || id >= maxVocab {
		return fmt.Errorf("token %q has id %d: ids lie in [0, %d)", token, id, maxVocab)
	}
	if n := int(id) + 1 - len(t.tokens); n > 0 {
		t.tokens = append(t.tokens, make([]string, n)...)
		t.present = append(t.present, make([]bool, n)...)
		t.special = append(t.special, make([]bool, n)...)
	}
	if t.present[id] {
		return fmt.Errorf("tokens %q and %q have the same id %d", t.tokens[id], token, id)
	}
	t.tokens[id], t.present[id], t.ids[token] = token, true, int32(id)
	return nil
}

// addTokens registers added tokens. One whose text is in the vocabulary has that id, whatever its own says. The tokenizers
// library numbers the others on from the vocabulary's size and reads over the ids in the file; where the two disagree
// the model's ids are not known, and the file is refused.
func (t *Tokenizer) addTokens(list []jsonAdded) error {
	sort.SliceStable(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	seen := map[string]bool{}
	next := int64(len(t.ids))
	for _, a := range list {
		if a.Content == "" || seen[a.Content] {
			continue
		}
		seen[a.Content] = true
		if len(a.Content) > maxAddedToken {
			return fmt.Errorf("added token %d has %d bytes: more than %d", a.ID, len(a.Content), maxAddedToken)
		}
		id, ok := t.ids[a.Content]
		if !ok {
			if a.ID != next {
				return fmt.Errorf("added token %q has id %d, where the next free one is %d", a.Content, a.ID, next)
			}
			if err := t.put(a.Content, a.ID); err != nil {
				return fmt.Errorf("added_tokens: %w", err)
			}
			id = int32(a.ID)
			next++
		}
		t.special[id] = a.Special
		t.added = append(t.added, addedToken{content: a.Content, id: id, special: a.Special, singleWord: a.SingleWord,
			lstrip: a.LStrip, rstrip: a.RStrip, normalized: a.Normalized})
	}
	return nil
}

// build makes the merge model.
func (m *jsonModel) build(t *Tokenizer, words map[string]int32, byteLevel bool) (*bpe, error) {
	b := newBPE(len(t.tokens))
	b.byteLevel, b.fuseUnk, b.byteFallback = byteLevel, m.FuseUnk, m.ByteFallback
	if m.UnkToken != nil {
		id, ok := words[*m.UnkToken]
		if !ok {
			return nil, fmt.Errorf("unk_token %q is not in the vocabulary", *m.UnkToken)
		}
		b.unk = id
	}
	if err := b.setSymbols(words); err != nil {
		return nil, err
	}
	pairs, err := m.pairs()
	if err != nil {
		return nil, fmt.Errorf("merges: %w", err)
	}
	if err := b.setMerges(words, t.special, pairs); err != nil {
		return nil, err
	}
	if m.IgnoreMerges {
		b.setWhole(words, t.special)
	}
	return b, nil
}

// pairs reads merges in either form: "a b", or ["a", "b"], whose parts may hold spaces.
func (m *jsonModel) pairs() ([][2]string, error) {
	var list []jsontext.Value
	if err := unmarshal(m.Merges, &list); err != nil {
		return nil, err
	}
	pairs := make([][2]string, len(list))
	for i, v := range list {
		if v.Kind() == '"' {
			var s string
			if err := unmarshal(v, &s); err != nil {
				return nil, err
			}
			a, c, ok := strings.Cut(s, " ")
			if !ok || strings.Contains(c, " ") {
				return nil, fmt.Errorf("merge %d, %q, is not two tokens with a space between", i, s)
			}
			pairs[i] = [2]string{a, c}
			continue
		}
		var two []string
		if err := unmarshal(v, &two); err != nil {
			return nil, err
		}
		if len(two) != 2 {
			return nil, fmt.Errorf("merge %d has %d parts", i, len(two))
		}
		pairs[i] = [2]string(two)
	}
	return pairs, nil
}

// WithConfig returns a copy that knows the BOS and EOS tokens that a tokenizer_config.json names (a text, or an object
// with the text as its content). Names that the tokenizer does not have are refused.
func (t *Tokenizer) WithConfig(tokenizerConfigJSON []byte) (*Tokenizer, error) {
	var c struct {
		BOS jsontext.Value `json:"bos_token"`
		EOS jsontext.Value `json:"eos_token"`
	}
	if err := unmarshal(tokenizerConfigJSON, &c); err != nil {
		return nil, fmt.Errorf("read tokenizer_config.json: %w", err)
	}
	n := t.clone()
	for _, f := range []struct {
		name string
		v    jsontext.Value
		to   *int32
	}{{"bos_token", c.BOS, &n.bos}, {"eos_token", c.EOS, &n.eos}} {
		if len(f.v) == 0 || f.v.Kind() == 'n' {
			continue
		}
		var token string
		if f.v.Kind() == '{' {
			var o struct {
				Content string `json:"content"`
			}
			if err := unmarshal(f.v, &o); err != nil {
				return nil, fmt.Errorf("read %s of tokenizer_config.json: %w", f.name, err)
			}
			token = o.Content
		} else if err := unmarshal(f.v, &token); err != nil {
			return nil, fmt.Errorf("read %s of tokenizer_config.json: %w", f.name, err)
		}
		id, ok := t.ids[token]
		if !ok {
			return nil, fmt.Errorf("read tokenizer_config.json: %s %q is not in the vocabulary", f.name, token)
		}
		*f.to = id
	}
	return n, nil
}
