package jinja

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/ordered"
)

// chatOptions is the dialect of chat templates.
var chatOptions = Options{TrimBlocks: true, LstripBlocks: true}

func readJSON(t testing.TB, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ordered.DecodeJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func field(t testing.TB, v any, key string) any {
	t.Helper()
	f, ok := v.(*ordered.Map).Get(key)
	if !ok {
		t.Fatalf("golden has no %q", key)
	}
	return f
}

// knownRare lists the expressions marked rare whose result differs from the golden. None does.
var knownRare = map[string]bool{}

func TestGoldenExpressions(t *testing.T) {
	g := readJSON(t, "testdata/cases.json")
	for _, fault := range checkExpressions(t, g) {
		t.Error(fault)
	}
	// A golden that is changed by hand must be noticed.
	first := field(t, g, "expressions").([]any)[0].(*ordered.Map)
	first.Set("rendered", field(t, first, "rendered").(string)+" ")
	if len(checkExpressions(t, g)) != 1 {
		t.Error("a changed golden went unnoticed")
	}
}

func checkExpressions(t *testing.T, g any) (faults []string) {
	msgs := field(t, field(t, g, "expression_variables"), "msgs")
	counts := map[string]int{}
	for _, c := range field(t, g, "expressions").([]any) {
		kind, src := field(t, c, "kind").(string), field(t, c, "template").(string)
		got, err := render(src, chatOptions, map[string]any{"msgs": msgs})
		want := field(t, c, "rendered").(string)
		counts[kind]++
		switch ok := err == nil && got == want; {
		case !ok && !knownRare[src]:
			faults = append(faults, fmt.Sprintf("%s: %s\n got %q, %v\nwant %q", kind, src, got, err, want))
		case ok && knownRare[src]:
			faults = append(faults, src+" is listed as differing, but does not")
		}
	}
	if counts["common"] != 52 || counts["rare"] != 22 {
		faults = append(faults, fmt.Sprintf("found %v expressions, want 52 common and 22 rare", counts))
	}
	return faults
}

func render(src string, o Options, vars map[string]any) (string, error) {
	tpl, err := Parse("test", src, o)
	if err != nil {
		return "", err
	}
	out, err := tpl.Render(vars, Env{Now: time.Date(2024, 3, 7, 8, 9, 5, 0, time.UTC)})
	return out.S, err
}

func TestGoldenTemplates(t *testing.T) {
	g := readJSON(t, "testdata/cases.json")
	now, err := time.Parse("2006-01-02T15:04:05", field(t, g, "now").(string))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, tc := range field(t, g, "templates").([]any) {
		name := field(t, tc, "name").(string)
		tpl, err := Parse(name, field(t, tc, "template").(string), chatOptions)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range field(t, tc, "cases").([]any) {
			n++
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				vars := map[string]any{
					"bos_token": Literal(field(t, g, "bos_token").(string)), "eos_token": Literal(field(t, g, "eos_token").(string)),
				}
				for _, k := range []string{"messages", "tools", "add_generation_prompt"} {
					vars[k] = field(t, c, k)
				}
				kwargs := field(t, c, "kwargs").(*ordered.Map)
				for _, k := range kwargs.Keys() {
					vars[k], _ = kwargs.Get(k)
				}
				got, err := tpl.Render(vars, Env{Now: now})
				if want, ok := c.(*ordered.Map).Get("error"); ok {
					var raised *Raised
					if !errors.As(err, &raised) || raised.Text != want {
						t.Fatalf("got error %v, want %q raised", err, want)
					}
					return
				}
				if want := field(t, c, "rendered"); err != nil || got.S != want {
					t.Fatalf("error %v\n got %q\nwant %q", err, got.S, want)
				}
				checkSpans(t, got)
			})
		}
	}
	if n != 21 {
		t.Errorf("found %d cases, want 21", n)
	}
}

func TestGoldenSmolLM2(t *testing.T) {
	g := readJSON(t, "testdata/smollm2_chat.json")
	tpl, err := Parse("smollm2", field(t, g, "chat_template").(string), chatOptions)
	if err != nil {
		t.Fatal(err)
	}
	cases := field(t, g, "cases").([]any)
	if len(cases) != 5 {
		t.Errorf("found %d cases, want 5", len(cases))
	}
	for _, c := range cases {
		vars := map[string]any{"messages": field(t, c, "messages"), "add_generation_prompt": field(t, c, "add_generation_prompt")}
		got, err := tpl.Render(vars, Env{})
		if err != nil || got.S != field(t, c, "rendered") {
			t.Errorf("error %v\n got %q\nwant %q", err, got.S, field(t, c, "rendered"))
		}
	}
	if got := tpl.Names(); !slices.Equal(got, []string{"add_generation_prompt", "messages"}) {
		t.Errorf("names %v", got)
	}
}

// checkSpans holds the promise about Text: sorted, disjoint, maximal, inside.
func checkSpans(t testing.TB, got Text) {
	t.Helper()
	last := -1
	for _, s := range got.Literal {
		if s.Start <= last || s.End <= s.Start || s.End > len(got.S) {
			t.Fatalf("spans %v of a text of %d bytes are not sorted, disjoint and maximal", got.Literal, len(got.S))
		}
		last = s.End
	}
}
