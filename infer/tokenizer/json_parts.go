package tokenizer

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxPartDepth bounds sequences within sequences.
const maxPartDepth = 16

// part is any normalizer, pre-tokenizer, post-processor or decoder: its type and the fields of those that are known.
type part struct {
	Type string `json:"type"`

	Normalizers   []jsontext.Value `json:"normalizers"`
	PreTokenizers []jsontext.Value `json:"pretokenizers"`
	Processors    []jsontext.Value `json:"processors"`
	Decoders      []jsontext.Value `json:"decoders"`

	Prepend          string         `json:"prepend"`
	Pattern          *pattern       `json:"pattern"`
	Content          string         `json:"content"`
	StripLeft        bool           `json:"strip_left"`
	StripRight       bool           `json:"strip_right"`
	AddPrefixSpace   *bool          `json:"add_prefix_space"`
	UseRegex         *bool          `json:"use_regex"`
	Behavior         string         `json:"behavior"`
	Invert           bool           `json:"invert"`
	IndividualDigits bool           `json:"individual_digits"`
	Replacement      string         `json:"replacement"`
	PrependScheme    string         `json:"prepend_scheme"`
	Split            *bool          `json:"split"`
	Start            int            `json:"start"`
	Stop             int            `json:"stop"`
	Single           []templateItem `json:"single"`
	SpecialTokens    map[string]struct {
		IDs []int64 `json:"ids"`
	} `json:"special_tokens"`
	Sep jsontext.Value `json:"sep"`
	Cls jsontext.Value `json:"cls"`
}

type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

type templateItem struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

// readPart returns nil for null or absent.
func readPart(v jsontext.Value, depth int) (*part, error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return nil, nil
	}
	if depth > maxPartDepth {
		return nil, fmt.Errorf("sequences nested deeper than %d", maxPartDepth)
	}
	p := &part{}
	if err := unmarshal(v, p); err != nil {
		return nil, err
	}
	return p, nil
}

func unsupported(p *part) error { return fmt.Errorf("type %q is not supported", p.Type) }

// parseNormalizer returns nil for none. strips says that it can drop what stands first.
func parseNormalizer(v jsontext.Value, depth int) (n normalizer, strips bool, err error) {
	p, err := readPart(v, depth)
	if p == nil || err != nil {
		return nil, false, err
	}
	switch p.Type {
	case "Sequence":
		var q sequenceNormalizer
		for _, v := range p.Normalizers {
			n, s, err := parseNormalizer(v, depth+1)
			if err != nil {
				return nil, false, err
			}
			if n != nil {
				q = append(q, n)
			}
			strips = strips || s
		}
		return q, strips, nil
	case "NFC":
		return newNormForm(false, true), false, nil
	case "NFD":
		return newNormForm(false, false), false, nil
	case "NFKC":
		return newNormForm(true, true), false, nil
	case "NFKD":
		return newNormForm(true, false), false, nil
	case "Lowercase":
		return lowercaseNormalizer{}, false, nil
	case "Strip":
		return stripNormalizer{p.StripLeft, p.StripRight}, p.StripLeft, nil
	case "Prepend":
		if p.Prepend == "" {
			return nil, false, nil
		}
		return prependNormalizer(p.Prepend), false, nil
	case "Replace":
		from, err := p.Pattern.text()
		return replaceNormalizer{from, p.Content}, false, err
	}
	return nil, false, unsupported(p)
}

// text returns a pattern that is a fixed text.
func (p *pattern) text() (string, error) {
	switch {
	case p == nil || p.String == nil && p.Regex == nil:
		return "", errors.New("no pattern given")
	case p.Regex != nil:
		return "", fmt.Errorf("regular expression %q is not supported here", *p.Regex)
	case *p.String == "":
		return "", errors.New("an empty pattern is not supported")
	}
	return *p.String, nil
}

// parsePreTokenizer returns the stages. byteLevel says that they end in the byte alphabet.
func parsePreTokenizer(v jsontext.Value, depth int) (stages []preStage, byteLevel bool, err error) {
	p, err := readPart(v, depth)
	if p == nil || err != nil {
		return nil, false, err
	}
	one := func(s preStage) ([]preStage, bool, error) { return []preStage{s}, false, nil }
	switch p.Type {
	case "Sequence":
		for _, v := range p.PreTokenizers {
			if byteLevel {
				return nil, false, errors.New("a step after ByteLevel is not supported")
			}
			s, b, err := parsePreTokenizer(v, depth+1)
			if err != nil {
				return nil, false, err
			}
			stages, byteLevel = append(stages, s...), b
		}
		return stages, byteLevel, nil
	case "ByteLevel":
		var s preStage
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			s.prefix, s.prefixAt = " ", prefixAlways
		}
		if p.UseRegex == nil || *p.UseRegex {
			s.split = gpt2Scan{unicodeClasses()}
		}
		return []preStage{s}, true, nil
	case "Digits":
		if p.IndividualDigits {
			return one(preStage{split: numberScan{unicodeClasses(), 1}})
		}
		return one(preStage{split: numberScan{unicodeClasses(), 0}})
	case "Metaspace":
		s, err := p.metaspace()
		return []preStage{s}, false, err
	case "Split":
		s, err := p.splitter()
		return []preStage{{split: s}}, false, err
	}
	return nil, false, unsupported(p)
}

func (p *part) metaspace() (preStage, error) {
	s := preStage{replaceSpaces: true, prefix: metaspace}
	if p.Replacement != "" && p.Replacement != metaspace {
		return s, fmt.Errorf("replacement %q of Metaspace is not supported", p.Replacement)
	}
	scheme, err := p.scheme()
	if err != nil {
		return s, err
	}
	s.prefixAt = scheme
	if p.Split == nil || *p.Split {
		s.split = textSplit{metaspace, mergedWithNext}
	}
	return s, nil
}

// scheme reads prepend_scheme, or add_prefix_space of older files.
func (p *part) scheme() (prefixScheme, error) {
	switch p.PrependScheme {
	case "first":
		return prefixFirst, nil
	case "never":
		return prefixNever, nil
	case "always":
		return prefixAlways, nil
	case "":
		if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
			return prefixNever, nil
		}
		return prefixAlways, nil
	}
	return prefixNever, fmt.Errorf("prepend_scheme %q is not known", p.PrependScheme)
}

func (p *part) splitter() (splitter, error) {
	if p.Pattern != nil && p.Pattern.Regex != nil {
		s, full, ok := patternScanner(*p.Pattern.Regex)
		if !ok {
			return nil, fmt.Errorf("pattern %q is not known: pre-tokenizer patterns are matched by scanners written for each", *p.Pattern.Regex)
		}
		// Where a pattern matches everywhere, dropping what does not match leaves the same pieces.
		if p.Behavior == "Isolated" && (!p.Invert || full) || p.Behavior == "Removed" && p.Invert && full {
			return s, nil
		}
		return nil, fmt.Errorf("pattern %q with behavior %q, invert %t is not supported", *p.Pattern.Regex, p.Behavior, p.Invert)
	}
	at, err := p.Pattern.text()
	if err != nil {
		return nil, err
	}
	behaviors := map[string]splitBehavior{"Isolated": isolated, "MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext, "Contiguous": contiguous}
	b, ok := behaviors[p.Behavior]
	if !ok || p.Invert {
		return nil, fmt.Errorf("splitting at %q with behavior %q, invert %t is not supported", at, p.Behavior, p.Invert)
	}
	return textSplit{at, b}, nil
}

// parsePostProcessor returns the ids put before and after a single text.
func parsePostProcessor(v jsontext.Value, t *Tokenizer, depth int) (before, after []int32, err error) {
	p, err := readPart(v, depth)
	if p == nil || err != nil {
		return nil, nil, err
	}
	switch p.Type {
	case "Sequence":
		for _, v := range p.Processors {
			b, a, err := parsePostProcessor(v, t, depth+1)
			if err != nil {
				return nil, nil, err
			}
			if len(b)+len(a) > 0 && len(before)+len(after) > 0 {
				return nil, nil, errors.New("a sequence with two steps that add tokens is not supported")
			}
			before, after = append(before, b...), append(after, a...)
		}
		return before, after, nil
	case "ByteLevel": // offsets only
		return nil, nil, nil
	case "RobertaProcessing", "BertProcessing":
		cls, err := namedID(p.Cls, t)
		if err != nil {
			return nil, nil, fmt.Errorf("cls: %w", err)
		}
		sep, err := namedID(p.Sep, t)
		if err != nil {
			return nil, nil, fmt.Errorf("sep: %w", err)
		}
		return []int32{cls}, []int32{sep}, nil
	case "TemplateProcessing":
		return p.template(t)
	}
	return nil, nil, unsupported(p)
}

// namedID reads ["text", id].
func namedID(v jsontext.Value, t *Tokenizer) (int32, error) {
	var two []jsontext.Value
	if err := unmarshal(v, &two); err != nil {
		return 0, err
	}
	if len(two) != 2 {
		return 0, errors.New("not a pair of token and id")
	}
	var id int64
	if err := unmarshal(two[1], &id); err != nil {
		return 0, err
	}
	return t.checkID(id)
}

func (t *Tokenizer) checkID(id int64) (int32, error) {
	if id < 0 || id >= maxVocab || !t.has(int32(id)) {
		return 0, fmt.Errorf("id %d is not in the vocabulary", id)
	}
	return int32(id), nil
}

func (p *part) template(t *Tokenizer) (before, after []int32, err error) {
	text := false
	for _, item := range p.Single {
		switch {
		case item.Sequence != nil:
			if text || item.Sequence.ID != "A" {
				return nil, nil, errors.New("a template that holds the text other than once is not supported")
			}
			text = true
		case item.SpecialToken != nil:
			s, ok := p.SpecialTokens[item.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("special token %q of the template is not defined", item.SpecialToken.ID)
			}
			for _, v := range s.IDs {
				id, err := t.checkID(v)
				if err != nil {
					return nil, nil, err
				}
				if text {
					after = append(after, id)
				} else {
					before = append(before, id)
				}
			}
		default:
			return nil, nil, errors.New("a template item is neither a special token nor the text")
		}
	}
	if !text {
		return nil, nil, errors.New("the template does not hold the text")
	}
	return before, after, nil
}

// parseDecoder returns the steps of a decoder; none at all means tokens joined by spaces.
func parseDecoder(v jsontext.Value) ([]decoderSpec, error) {
	if len(v) == 0 || v.Kind() == 'n' {
		return []decoderSpec{joinDecoder{}}, nil
	}
	fused := false
	return appendDecoder(nil, v, &fused, 0)
}

func appendDecoder(list []decoderSpec, v jsontext.Value, fused *bool, depth int) ([]decoderSpec, error) {
	p, err := readPart(v, depth)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("an empty step")
	}
	switch p.Type {
	case "Sequence":
		for _, v := range p.Decoders {
			if list, err = appendDecoder(list, v, fused, depth+1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case "Fuse":
		*fused = true
		return list, nil
	}
	if *fused && p.Type != "Strip" && p.Type != "Replace" {
		return nil, fmt.Errorf("type %q after Fuse is not supported", p.Type)
	}
	switch p.Type {
	case "ByteLevel":
		*fused = true
		return append(list, byteLevelDecoder{newByteAlphabet()}), nil
	case "ByteFallback":
		return append(list, byteFallbackDecoder{}), nil
	case "Metaspace":
		from := p.Replacement
		if from == "" {
			from = metaspace
		}
		scheme, err := p.scheme()
		return append(list, metaspaceDecoder{from, scheme != prefixNever}), err
	case "Replace":
		from, err := p.Pattern.text()
		if *fused && utf8.RuneCountInString(from) > 1 {
			return nil, fmt.Errorf("replacing %q after Fuse is not supported", from)
		}
		return append(list, replaceDecoder{from: from, to: p.Content}), err
	case "Strip":
		c, n := utf8.DecodeRuneInString(p.Content)
		if n == 0 || n != len(p.Content) || p.Start < 0 || p.Stop < 0 {
			return nil, fmt.Errorf("stripping %q, %d at the start and %d at the end, is not supported", p.Content, p.Start, p.Stop)
		}
		return append(list, stripDecoder{c: c, left: p.Start, right: p.Stop, fused: *fused}), nil
	}
	return nil, unsupported(p)
}
