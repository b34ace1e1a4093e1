package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/ordered"
)

// FromFolder finds a model folder's chat template in the contents of chat_template.jinja, which goes first, and of
// tokenizer_config.json; either may be nil. ok is false where the model has none. In tokenizer_config.json
// chat_template may be a string or a list of named templates, of which "default" is taken.
func FromFolder(chatTemplateJinja, tokenizerConfigJSON []byte) (src string, ok bool, err error) {
	if chatTemplateJinja != nil {
		if !utf8.Valid(chatTemplateJinja) {
			return "", false, fmt.Errorf("chat_template.jinja is not valid UTF-8")
		}
		return string(chatTemplateJinja), true, nil
	}
	cfg, err := tokenizerConfig(tokenizerConfigJSON)
	if err != nil || cfg == nil {
		return "", false, err
	}
	switch v, _ := cfg.Get("chat_template"); v := v.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case []any:
		return fromList(v)
	default:
		return "", false, fmt.Errorf("chat_template in tokenizer_config.json is %s, not a string or a list", describe(v))
	}
}

func fromList(list []any) (string, bool, error) {
	var names []string
	for _, it := range list {
		m, _ := it.(*ordered.Map)
		name, _ := m.Get("name")
		src, _ := m.Get("template")
		n, isName := name.(string)
		s, isSrc := src.(string)
		if !isName || !isSrc {
			return "", false, fmt.Errorf("chat_template in tokenizer_config.json: an entry has no name or no template")
		}
		if n == "default" || len(list) == 1 {
			return s, true, nil
		}
		names = append(names, n)
	}
	if len(names) == 0 {
		return "", false, nil
	}
	return "", false, fmt.Errorf("the model has no default chat template, only %s: write one of them to a file and give it with --chat-template", strings.Join(names, ", "))
}

// SpecialTokens reads the special tokens that templates refer to from tokenizer_config.json: variable names
// (bos_token, eos_token, pad_token, ...) and their text.
func SpecialTokens(tokenizerConfigJSON []byte) (map[string]string, error) {
	cfg, err := tokenizerConfig(tokenizerConfigJSON)
	if err != nil {
		return nil, err
	}
	tokens := map[string]string{}
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		v, _ := cfg.Get(name)
		if m, ok := v.(*ordered.Map); ok { // an added token with its flags
			v, _ = m.Get("content")
		}
		if s, ok := v.(string); ok {
			tokens[name] = s
		}
	}
	return tokens, nil
}

// tokenizerConfig decodes the file; nil without error where there is none.
func tokenizerConfig(data []byte) (*ordered.Map, error) {
	if data == nil {
		return nil, nil
	}
	v, err := ordered.DecodeJSON(data)
	if err != nil {
		return nil, fmt.Errorf("decode tokenizer_config.json: %w", err)
	}
	m, ok := v.(*ordered.Map)
	if !ok {
		return nil, fmt.Errorf("tokenizer_config.json is %s, not an object", describe(v))
	}
	return m, nil
}
