package tokenizer

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Metadata is what FromGGUF reads of a GGUF file: each method reports whether the key is there with that type.
type Metadata interface {
	String(key string) (string, bool)
	Strings(key string) ([]string, bool)
	Int32s(key string) ([]int32, bool)
	Float32s(key string) ([]float32, bool)
	Uint(key string) (uint64, bool)
	Bool(key string) (bool, bool)
}

// Keys and token types of the GGUF specification (github.com/ggml-org/ggml, docs/gguf.md).
const (
	ggufModel       = "tokenizer.ggml.model"
	ggufPre         = "tokenizer.ggml.pre"
	ggufTokens      = "tokenizer.ggml.tokens"
	ggufTypes       = "tokenizer.ggml.token_type"
	ggufScores      = "tokenizer.ggml.scores"
	ggufMerges      = "tokenizer.ggml.merges"
	ggufBOS         = "tokenizer.ggml.bos_token_id"
	ggufEOS         = "tokenizer.ggml.eos_token_id"
	ggufUnknown     = "tokenizer.ggml.unknown_token_id"
	ggufAddBOS      = "tokenizer.ggml.add_bos_token"
	ggufAddEOS      = "tokenizer.ggml.add_eos_token"
	ggufSpacePrefix = "tokenizer.ggml.add_space_prefix"

	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

// ggufPreset is what the name in tokenizer.ggml.pre stands for.
type ggufPreset struct {
	stages       []preStage
	ignoreMerges bool
	addBOS       bool // where the file does not say
	nfc          bool // as in the model's own tokenizer.json, which GGUF cannot express
}

// preset returns what a name stands for. Names that share a pattern with one here but are not known to share the rest are
// left out: a wrong guess degrades answers silently.
func preset(name string) (ggufPreset, bool) {
	t := unicodeClasses()
	stages := func(s ...splitter) []preStage {
		list := make([]preStage, len(s))
		for i := range s {
			list[i].split = s[i]
		}
		return list
	}
	switch name {
	case "gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "mpt", "olmo", "jais", "gigachat":
		return ggufPreset{stages: stages(gpt2Scan{t})}, true
	case "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b":
		return ggufPreset{stages: stages(numberScan{t, 1}, gpt2Scan{t})}, true
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral":
		return ggufPreset{stages: stages(wordScan{t: t, digits: 3}), ignoreMerges: true, addBOS: true}, true
	case "dbrx", "smaug-bpe":
		return ggufPreset{stages: stages(wordScan{t: t, digits: 3})}, true
	case "qwen2", "deepseek-r1-qwen":
		return ggufPreset{stages: stages(wordScan{t: t, digits: 1}), nfc: true}, true
	case "stablelm2":
		return ggufPreset{stages: stages(wordScan{t: t, digits: 1})}, true
	case "qwen35":
		return ggufPreset{stages: stages(wordScan{t: t, digits: 1, marks: true}), nfc: true}, true
	case "gpt-4o", "llama4":
		return ggufPreset{stages: stages(casedScan{t: t, digits: 3, contractions: true})}, true
	case "tekken":
		return ggufPreset{stages: stages(casedScan{t: t, digits: 1}), ignoreMerges: true, addBOS: true}, true
	case "deepseek-v3":
		return ggufPreset{stages: stages(numberScan{t, 3}, cjkScan{}, deepseekScan{t})}, true
	}
	return ggufPreset{}, false
}

// FromGGUF builds a tokenizer from the metadata of a GGUF file: byte-level BPE (tokenizer.ggml.model gpt2) or
// SentencePiece BPE by scores (llama). Other models and unknown names in tokenizer.ggml.pre are refused by name.
func FromGGUF(kv Metadata) (*Tokenizer, error) {
	t, err := fromGGUF(kv)
	if err != nil {
		return nil, fmt.Errorf("read the tokenizer of the GGUF file: %w", err)
	}
	return t, nil
}

func fromGGUF(kv Metadata) (*Tokenizer, error) {
	kind, ok := kv.String(ggufModel)
	if !ok {
		return nil, fmt.Errorf("no %s in its metadata", ggufModel)
	}
	if kind != "gpt2" && kind != "llama" {
		return nil, fmt.Errorf("%s %q is not supported: gpt2 and llama are", ggufModel, kind)
	}
	t := &Tokenizer{bos: -1, eos: -1}
	types, err := t.ggufVocab(kv)
	if err != nil {
		return nil, err
	}
	addBOS := kind == "llama"
	pre := ""
	if kind == "gpt2" {
		p, err := t.ggufByteLevel(kv)
		if err != nil {
			return nil, err
		}
		addBOS = p.addBOS
		pre, _ = kv.String(ggufPre)
	} else if err := t.ggufSentencePiece(kv, types); err != nil {
		return nil, err
	}
	if err := t.ggufAround(kv, addBOS, kind == "llama"); err != nil {
		return nil, err
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	t.digest = ggufDigest(t, kv, kind, pre)
	return t, nil
}

// ggufVocab fills the tables of tokens and returns their types, all 1 where the file has none. Rows that only pad the
// embedding, [PADn], stand for nothing. Of equal texts the lowest id is the one that text becomes.
func (t *Tokenizer) ggufVocab(kv Metadata) ([]int32, error) {
	tokens, ok := kv.Strings(ggufTokens)
	if !ok || len(tokens) == 0 {
		return nil, fmt.Errorf("no %s in its metadata", ggufTokens)
	}
	if len(tokens) > maxVocab {
		return nil, fmt.Errorf("%d tokens: more than %d", len(tokens), maxVocab)
	}
	types, ok := kv.Int32s(ggufTypes)
	if !ok {
		types = make([]int32, len(tokens))
	}
	if len(types) != len(tokens) {
		return nil, fmt.Errorf("%s has %d entries for %d tokens", ggufTypes, len(types), len(tokens))
	}
	n := len(tokens)
	for n > 0 && isPad(tokens[n-1], n-1, types[n-1]) {
		n--
	}
	t.tokens = make([]string, n)
	t.present, t.special = make([]bool, n), make([]bool, n)
	t.ids = make(map[string]int32, n)
	for id := range n {
		text := strings.ToValidUTF8(tokens[id], "\uFFFD")
		if text == "" || isPad(text, id, types[id]) {
			continue
		}
		t.tokens[id], t.present[id] = text, true
		t.special[id] = types[id] == typeControl || types[id] == typeUnknown
		if _, ok := t.ids[text]; ok {
			continue
		}
		t.ids[text] = int32(id)
		if !t.special[id] && types[id] != typeUserDefined {
			continue
		}
		if len(text) > maxAddedToken {
			return nil, fmt.Errorf("token %d has %d bytes: more than %d", id, len(text), maxAddedToken)
		}
		t.added = append(t.added, addedToken{content: text, id: int32(id), special: t.special[id]})
	}
	return types[:n], nil
}

func isPad(token string, id int, kind int32) bool {
	return kind == typeUnused && token == "[PAD"+strconv.Itoa(id)+"]"
}

func (t *Tokenizer) ggufByteLevel(kv Metadata) (ggufPreset, error) {
	name, ok := kv.String(ggufPre)
	if !ok {
		return ggufPreset{}, fmt.Errorf("no %s in its metadata, so how to split text is not known (hint: convert the model again with a newer converter)", ggufPre)
	}
	p, ok := preset(name)
	if !ok {
		return ggufPreset{}, fmt.Errorf("%s %q is not known", ggufPre, name)
	}
	t.stages = p.stages
	if p.nfc {
		t.normalizer = newNormForm(false, true)
	}
	merges, ok := kv.Strings(ggufMerges)
	if !ok {
		return p, fmt.Errorf("no %s in its metadata", ggufMerges)
	}
	pairs := make([][2]string, len(merges))
	for i, m := range merges {
		k := -1
		if m != "" {
			k = strings.IndexByte(m[1:], ' ') // a token may be a space
		}
		if k < 0 {
			return p, fmt.Errorf("merge %d, %q, is not two tokens with a space between", i, m)
		}
		pairs[i] = [2]string{m[:k+1], m[k+2:]}
	}
	b := newBPE(len(t.tokens))
	b.byteLevel = true
	if err := b.setSymbols(t.ids); err != nil {
		return p, err
	}
	if err := b.setMerges(t.ids, t.special, pairs); err != nil {
		return p, err
	}
	if p.ignoreMerges {
		b.setWhole(t.ids, t.special)
	}
	t.model = b
	t.decoders = []decoderSpec{byteLevelDecoder{newByteAlphabet()}}
	return p, nil
}

// ggufSentencePiece sets up SentencePiece BPE. A space goes in front of the text and after every special token unless
// add_space_prefix is off, as in llama.cpp and in the tokenizers library's legacy form.
func (t *Tokenizer) ggufSentencePiece(kv Metadata, types []int32) error {
	scores, ok := kv.Float32s(ggufScores)
	if !ok || len(scores) < len(types) {
		return fmt.Errorf("%s is missing or has fewer entries than there are tokens", ggufScores)
	}
	normalizer := sequenceNormalizer{}
	decoders := []decoderSpec{replaceDecoder{from: metaspace, to: " "}, byteFallbackDecoder{}}
	if add, ok := kv.Bool(ggufSpacePrefix); add || !ok {
		normalizer = append(normalizer, prependNormalizer(metaspace))
		decoders = append(decoders, stripDecoder{c: ' ', left: 1, fused: true})
	}
	t.normalizer = append(normalizer, replaceNormalizer{" ", metaspace})
	t.decoders = decoders
	b := newBPE(len(t.tokens))
	b.byteFallback, b.fuseUnk = true, true
	unk, ok := kv.Uint(ggufUnknown)
	if !ok {
		unk = 0
	}
	if unk < uint64(len(t.tokens)) && t.present[unk] {
		b.unk = int32(unk)
	}
	words := make(map[string]int32, len(t.ids))
	for text, id := range t.ids {
		if !t.special[id] {
			words[text] = id
		}
	}
	if err := b.setSymbols(words); err != nil {
		return err
	}
	for text, id := range words {
		if types[id] == typeByte {
			delete(words, text) // its text in a document is not the byte
		}
	}
	t.model = b
	return b.setScores(words, scores)
}

// ggufAround finds BOS and EOS and whether they are added. SentencePiece's own ids are the default of its kind.
func (t *Tokenizer) ggufAround(kv Metadata, addBOS, sentencePiece bool) error {
	id := func(key string, otherwise int32) (int32, error) {
		v, ok := kv.Uint(key)
		if !ok {
			if sentencePiece && t.has(otherwise) {
				return otherwise, nil
			}
			return -1, nil
		}
		if v > math.MaxInt32 || !t.has(int32(v)) {
			return -1, fmt.Errorf("%s is %d, which is not in the vocabulary", key, v)
		}
		return int32(v), nil
	}
	var err error
	if t.bos, err = id(ggufBOS, 1); err != nil {
		return err
	}
	if t.eos, err = id(ggufEOS, 2); err != nil {
		return err
	}
	if v, ok := kv.Bool(ggufAddBOS); ok {
		addBOS = v
		if v && t.bos < 0 {
			return errors.New(ggufAddBOS + " is set, but there is no " + ggufBOS)
		}
	}
	if addBOS && t.bos >= 0 {
		t.before = []int32{t.bos}
	}
	if v, ok := kv.Bool(ggufAddEOS); ok && v {
		if t.eos < 0 {
			return errors.New(ggufAddEOS + " is set, but there is no " + ggufEOS)
		}
		t.after = []int32{t.eos}
	}
	return nil
}

func ggufDigest(t *Tokenizer, kv Metadata, kind, pre string) string {
	h := t.startDigest("gguf " + kind)
	prefix, ok := kv.Bool(ggufSpacePrefix)
	fmt.Fprintf(h, "pre %q prefix %t unk %d\n", pre, prefix || !ok, t.model.unk)
	if kind == "gpt2" {
		merges, _ := kv.Strings(ggufMerges)
		for _, m := range merges {
			io.WriteString(h, m+"\n")
		}
	} else {
		scores, _ := kv.Float32s(ggufScores)
		for _, s := range scores[:len(t.tokens)] {
			fmt.Fprintf(h, "%08x\n", math.Float32bits(s))
		}
	}
	return endDigest(h)
}
