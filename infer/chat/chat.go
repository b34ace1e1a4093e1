// Package chat turns messages into a prompt with a model's chat template.
//
// A template comes from chat_template.jinja, tokenizer_config.json or GGUF metadata and runs in package jinja under
// its limits. The prompt carries its provenance: what the template wrote is literal, what messages brought is data, so
// that a special token in a document stays text.
//
//	src, ok, err := chat.FromFolder(chatTemplateJinja, tokenizerConfigJSON)
//	t, err := chat.New(src, chat.Config{BOS: "<s>", EOS: "</s>", Now: jobStart})
//	msgs, rowErr := chat.NormalizeMessages(v)
//	prompt, err := t.Render(msgs, nil, true, nil)
package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
)

// Config is what a template is rendered with besides a row's messages.
type Config struct {
	BOS, EOS string            // bos_token and eos_token; literal text
	Tokens   map[string]string // further special tokens by variable name (pad_token, unk_token, ...); literal text
	Now      time.Time         // the clock of strftime_now, pinned for a job so that prompts can be reproduced
	Limits   jinja.Limits
}

// Template is a parsed chat template, immutable and safe for concurrent use.
type Template struct {
	t      *jinja.Template
	env    jinja.Env
	tokens map[string]any
	parts  bool
}

// reserved variables are set by Render and cannot be template arguments.
var reserved = map[string]bool{"messages": true, "tools": true, "add_generation_prompt": true}

// New parses a template in the dialect of the usual chat templates (TrimBlocks, LstripBlocks).
func New(src string, c Config) (*Template, error) {
	t, err := jinja.Parse("chat_template", src, jinja.Options{TrimBlocks: true, LstripBlocks: true, Limits: c.Limits})
	if err != nil {
		return nil, fmt.Errorf("parse chat template: %w", err)
	}
	tokens := map[string]any{}
	for name, token := range c.Tokens {
		tokens[name] = jinja.Literal(token)
	}
	for name, token := range map[string]string{"bos_token": c.BOS, "eos_token": c.EOS} {
		if token != "" || tokens[name] == nil {
			tokens[name] = jinja.Literal(token)
		}
	}
	return &Template{
		t: t, env: jinja.Env{Now: c.Now}, tokens: tokens,
		// A template that reads content parts mentions their field: part.text, part['text'], selectattr('type', 'equalto', 'text').
		parts: t.Mentions("text"),
	}, nil
}

// ReadsParts tells whether the template itself handles contents that are lists of parts. For others Render joins the
// text parts with newlines.
func (t *Template) ReadsParts() bool { return t.parts }

// Names lists the variables that the template needs beyond those that Render always sets: arguments that a caller may
// want to give as kwargs.
func (t *Template) Names() []string {
	var names []string
	for _, n := range t.t.Names() {
		if _, isToken := t.tokens[n]; !isToken && !reserved[n] && n != "documents" {
			names = append(names, n)
		}
	}
	return names
}

// Render makes the prompt. messages come from NormalizeMessages; tools is nil or a list of tool definitions; kwargs
// are further variables. The error is a *row.Error: TemplateError where the template raised, failed or ran into a limit,
// InvalidParams where kwargs name a variable that Render sets.
func (t *Template) Render(messages []any, tools any, addGenerationPrompt bool, kwargs map[string]any) (jinja.Text, error) {
	if !t.parts {
		messages = flattened(messages)
	}
	vars := make(map[string]any, len(t.tokens)+len(kwargs)+4)
	for name, token := range t.tokens {
		vars[name] = token
	}
	vars["documents"] = nil
	for name, v := range kwargs {
		if reserved[name] {
			return jinja.Text{}, row.Errorf(row.InvalidParams, "chat template arguments cannot set %q: remove it from chat_template_kwargs", name)
		}
		vars[name] = v
	}
	vars["messages"], vars["tools"], vars["add_generation_prompt"] = messages, tools, addGenerationPrompt
	out, err := t.t.Render(vars, t.env)
	if err != nil {
		return jinja.Text{}, templateError(err)
	}
	return out, nil
}

func templateError(err error) *row.Error {
	var raised *jinja.Raised
	if errors.As(err, &raised) {
		return row.Errorf(row.TemplateError, "the chat template refuses these messages: %s", raised.Text)
	}
	return row.Errorf(row.TemplateError, "cannot render the chat template: %v", err)
}

// flattened replaces contents that are lists of text parts by one string each. The slice is copied where that happens.
func flattened(messages []any) []any {
	copied := false
	for i, m := range messages {
		om, ok := m.(*ordered.Map)
		if !ok {
			continue
		}
		content, _ := om.Get("content")
		parts, ok := content.([]any)
		if !ok || !allText(parts) {
			continue
		}
		if !copied {
			messages, copied = append([]any(nil), messages...), true
		}
		flat := &ordered.Map{}
		for j := range om.Len() {
			k, v := om.At(j)
			if k == "content" {
				v = joinParts(parts)
			}
			flat.Set(k, v)
		}
		messages[i] = flat
	}
	return messages
}

// allText tells whether all are parts; what a tool returned may be any list.
func allText(parts []any) bool {
	for _, p := range parts {
		m, _ := p.(*ordered.Map)
		if kind, _ := m.Get("type"); kind != textType {
			return false
		}
	}
	return true
}

// joinParts joins the texts of parts with newlines.
func joinParts(parts []any) any {
	var b strings.Builder
	var literal []jinja.Span
	for i, p := range parts {
		if i > 0 {
			b.WriteByte('\n')
		}
		pm, _ := p.(*ordered.Map)
		v, _ := pm.Get("text")
		var t jinja.Text
		switch v := v.(type) {
		case string:
			t.S = v
		case jinja.Text:
			t = v
		case *jinja.Text:
			t = *v
		}
		for _, s := range t.Literal {
			literal = append(literal, jinja.Span{Start: b.Len() + s.Start, End: b.Len() + s.End})
		}
		b.WriteString(t.S)
	}
	if literal == nil {
		return b.String()
	}
	return &jinja.Text{S: b.String(), Literal: literal}
}
