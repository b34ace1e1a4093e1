package jinja

import (
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/ordered"
)

var fixedEnv = Env{Now: time.Date(2024, 3, 7, 8, 9, 5, 0, time.UTC)}

// FuzzRender throws templates at the engine: whatever they are, they end in time, within their limits, and without an
// internal fault, with valid spans, and alike when rendered twice.
func FuzzRender(f *testing.F) {
	g := readJSON(f, "testdata/cases.json")
	for _, c := range field(f, g, "expressions").([]any) {
		f.Add(field(f, c, "template").(string))
	}
	for _, c := range field(f, g, "templates").([]any) {
		f.Add(field(f, c, "template").(string))
	}
	g = readJSON(f, "testdata/python.json")
	for _, c := range field(f, g, "cases").([]any) {
		f.Add(field(f, c, "template").(string))
	}
	vars := map[string]any{}
	v := field(f, g, "variables").(*ordered.Map)
	for _, k := range v.Keys() {
		vars[k], _ = v.Get(k)
	}
	vars["messages"] = []any{ordered.MapOf("role", "user", "content", &Text{S: "a<s>b", Literal: []Span{{1, 4}}})}
	limits := Limits{Steps: 100_000, Depth: 40, Output: 1 << 20, Built: 4 << 20, Source: 1 << 16}
	f.Fuzz(func(t *testing.T, src string) {
		for _, o := range []Options{{TrimBlocks: true, LstripBlocks: true, Limits: limits}, {Strict: true, Limits: limits}} {
			tpl, err := Parse("fuzz", src, o)
			if err != nil {
				checkFault(t, err)
				return
			}
			start := time.Now()
			got, err := tpl.Render(vars, fixedEnv)
			if took := time.Since(start); took > 5*time.Second {
				t.Fatalf("took %v", took)
			}
			if err != nil {
				checkFault(t, err)
				continue
			}
			if len(got.S) > limits.Output {
				t.Fatalf("%d bytes of output", len(got.S))
			}
			checkSpans(t, got)
			again, err := tpl.Render(vars, fixedEnv)
			if err != nil || again.S != got.S {
				t.Fatalf("a second render differs: %q, %v, first %q", again.S, err, got.S)
			}
		}
	})
}

func checkFault(t *testing.T, err error) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok || strings.Contains(e.Msg, "internal fault") || e.Line < 1 || e.Column < 1 {
		t.Fatalf("%T %v", err, err)
	}
}
