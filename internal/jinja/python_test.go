package jinja

import (
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
)

// knownDifferent lists templates that render otherwise here than in Jinja2, with the reason.
var knownDifferent = map[string]string{
	"{{ (1).real }}":                   "numbers have no attributes real and imag",
	"{{ loop }}|{{ self is defined }}": "self refers to the blocks of a template, which there are none of",
}

// testdata/python.json holds what Jinja2 3.1.6 in its immutable sandbox (with break and continue, do, generation and a
// json.dumps tojson) makes of each template, or that it fails. The texts of its errors are not compared.
// python_random.json holds random expressions in the same form.
func TestAgainstPython(t *testing.T) {
	for _, file := range []string{"testdata/python.json", "testdata/python_random.json"} {
		t.Run(file, func(t *testing.T) { againstPython(t, file) })
	}
}

func againstPython(t *testing.T, file string) {
	g := readJSON(t, file)
	vars := map[string]any{}
	v := field(t, g, "variables").(*ordered.Map)
	for _, k := range v.Keys() {
		vars[k], _ = v.Get(k)
	}
	for _, c := range field(t, g, "cases").([]any) {
		m := c.(*ordered.Map)
		src := field(t, m, "template").(string)
		o := chatOptions
		if _, plain := m.Get("plain"); plain {
			o = Options{}
		}
		got, err := render(src, o, vars)
		want, ok := m.Get("rendered")
		reason, known := knownDifferent[src]
		same := ok == (err == nil) && (!ok || got == want)
		switch {
		case !same && !known:
			wantErr, _ := m.Get("error")
			t.Errorf("%s\n got %q, %v\nwant %q, %v", src, got, err, want, wantErr)
		case same && known:
			t.Errorf("%s is listed as different (%s), but is not", src, reason)
		}
	}
}
