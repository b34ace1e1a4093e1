package jinja

import (
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
)

func benchTemplate(b *testing.B) (src string, vars map[string]any) {
	g := readJSON(b, "testdata/smollm2_chat.json")
	return field(b, g, "chat_template").(string), map[string]any{
		"messages": []any{
			ordered.MapOf("role", "system", "content", "Be brief."),
			ordered.MapOf("role", "user", "content", strings.Repeat("word ", 200)),
		},
		"add_generation_prompt": true,
	}
}

func BenchmarkParseChatML(b *testing.B) {
	src, _ := benchTemplate(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("chat", src, chatOptions); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenderChatML(b *testing.B) {
	src, vars := benchTemplate(b)
	tpl, err := Parse("chat", src, chatOptions)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tpl.Render(vars, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAndRenderChatML(b *testing.B) {
	src, vars := benchTemplate(b)
	b.ReportAllocs()
	for b.Loop() {
		tpl, err := Parse("chat", src, chatOptions)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tpl.Render(vars, Env{}); err != nil {
			b.Fatal(err)
		}
	}
}

// The longest golden template, with tools.
func BenchmarkRenderTools(b *testing.B) {
	g := readJSON(b, "testdata/cases.json")
	for _, tc := range field(b, g, "templates").([]any) {
		if field(b, tc, "name") != "tools_namespace" {
			continue
		}
		tpl, err := Parse("chat", field(b, tc, "template").(string), chatOptions)
		if err != nil {
			b.Fatal(err)
		}
		c := field(b, tc, "cases").([]any)[0]
		vars := map[string]any{"messages": field(b, c, "messages"), "tools": field(b, c, "tools"), "add_generation_prompt": true}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := tpl.Render(vars, Env{}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
