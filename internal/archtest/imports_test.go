package archtest

import (
	"fmt"
	"strings"
	"testing"
)

// A layer is a folder and what of the module it may import: itself, and the folders named (with all below them; a trailing
// "$" means that folder alone). The longest matching folder decides. Everything may import internal/row and internal/ordered.
type layer struct {
	dir   string
	allow []string
}

// support is what any layer may use from internal. Each of these stands on nothing above itself.
var support = []string{
	"internal/row", "internal/ordered", "internal/jinja", "internal/objstore", "internal/hub", "internal/version",
}

var layers = []layer{
	// A command is a call into jobs; those without a job (tokenize, version) ask the engine's parts. Rows go through jobs alone.
	{"cmd", []string{"jobs", "infer", "internal"}},
	{"jobs", append([]string{"pipeline", "readers", "writers", "infer"}, support...)},
	{"pipeline", append([]string{"readers", "writers", "infer"}, support...)},
	{"readers", []string{"internal/row", "internal/ordered", "internal/objstore"}},
	{"writers", []string{"internal/row", "internal/ordered", "internal/objstore"}},

	{"infer", []string{"infer", "cuda", "internal"}},
	{"infer/device", []string{"infer/quant"}},
	{"infer/quant", nil},
	{"infer/kv", []string{"infer/device"}},
	{"infer/gguf", []string{"infer/quant", "internal"}},
	{"infer/safetensors", []string{"infer/quant", "internal"}},
	{"infer/tokenizer", []string{"internal"}},
	{"infer/chat", []string{"internal"}},
	{"infer/grammar", []string{"infer/tokenizer", "internal"}},
	{"infer/model", []string{"infer/device", "infer/quant", "infer/gguf", "infer/safetensors", "internal"}},
	{"infer/cpu", []string{"infer/device", "infer/quant", "internal"}},
	{"cuda", []string{"infer/device", "infer/quant", "internal"}},

	// Everything in internal stands on internal alone, but for the model hub, which opens what it found.
	{"internal", []string{"internal"}},
	{"internal/hub", []string{"internal", "infer/gguf", "infer/safetensors", "infer/quant"}},
	{"internal/row", nil},
	{"internal/ordered", nil},

	// Programs that are not part of the product.
	{"bench", []string{"jobs", "pipeline", "infer", "readers", "writers", "internal"}},
	{"examples", []string{"internal"}},
}

// everyone may import these whatever its layer says.
var everyone = []string{"internal/row$", "internal/ordered$"}

// testOnly packages start servers or hold helpers for tests; product code must not import them.
var testOnly = []string{"internal/s3test", "internal/faultproxy", "internal/archtest", "internal/testenv"}

// foreign rules: an import path at or below prefix is allowed only in the folders of only, or, where never is given,
// everywhere but in those.
var foreign = []struct {
	prefix      string
	only, never []string
	why         string
}{
	{"gocloud.dev", []string{"internal/objstore"}, nil, "internal/objstore is the only importer of gocloud.dev"},
	{"github.com/apache/arrow/go/v17/parquet", nil, nil, "parquet-go owns every Parquet byte"},
	{"github.com/apache/arrow/go/v17/arrow/flight", nil, nil, "there is no server here"},
	{"github.com/urfave/cli", []string{"cmd"}, nil, "only commands know the command line"},
	{"regexp", nil, []string{"infer/tokenizer", "infer/chat", "internal/jinja"}, "patterns that come with a model are matched by hand-written scanners"},
	{"net/http", nil, []string{"infer", "internal/jinja", "internal/row", "internal/ordered", "readers", "writers", "pipeline"}, "only stores and the model hub speak to a network"},
	{"os/exec", nil, []string{"infer", "internal/jinja", "internal/row", "internal/ordered", "readers", "writers", "pipeline", "jobs"}, "only the model hub starts a program"},
}

// forbidden reports whether rule i of foreign forbids folder dir what it is about.
func forbidden(i int, dir string) bool {
	if f := foreign[i]; len(f.never) > 0 {
		return withinAny(dir, f.never)
	}
	return !withinAny(dir, foreign[i].only)
}

func within(dir, folder string) bool {
	if exact, ok := strings.CutSuffix(folder, "$"); ok {
		return dir == exact
	}
	return dir == folder || strings.HasPrefix(dir, folder+"/")
}

func withinAny(dir string, folders []string) bool {
	for _, f := range folders {
		if within(dir, f) {
			return true
		}
	}
	return false
}

// layerOf returns the rule for a folder: the one with the longest matching name.
func layerOf(dir string) (layer, bool) {
	var best layer
	found := false
	for _, l := range layers {
		if within(dir, l.dir) && (!found || len(l.dir) > len(best.dir)) {
			best, found = l, true
		}
	}
	return best, found
}

// checkImports returns what is wrong with the imports of a file in folder dir. Tests may reach across layers (a writer's
// test reads back with a reader), but not for the foreign packages.
func checkImports(dir string, test bool, imports []string) []string {
	var wrong []string
	rule, known := layerOf(dir)
	if !known {
		return []string{fmt.Sprintf("folder %q belongs to no layer: add it to the table in internal/archtest, and to docs/ARCHITECTURE.md", dir)}
	}
	for _, imp := range imports {
		for i, f := range foreign {
			below := imp == f.prefix || strings.HasPrefix(imp, f.prefix+"/")
			if below && forbidden(i, dir) && !(test && len(f.never) > 0) {
				wrong = append(wrong, fmt.Sprintf("imports %s: %s", imp, f.why))
			}
		}
		target, ours := strings.CutPrefix(imp, module+"/")
		if !ours || test {
			continue
		}
		switch {
		case withinAny(target, testOnly) && !withinAny(dir, testOnly):
			wrong = append(wrong, fmt.Sprintf("imports %s, which is for tests", target))
		case within(target, rule.dir) && !isOwnLayer(target, rule):
			wrong = append(wrong, fmt.Sprintf("imports %s, a layer of its own that %s may not know", target, rule.dir))
		case !within(target, rule.dir) && !withinAny(target, rule.allow) && !withinAny(target, everyone):
			wrong = append(wrong, fmt.Sprintf("imports %s, which %s may not know", target, rule.dir))
		}
	}
	return wrong
}

// isOwnLayer reports whether a folder below rule.dir is governed by the same rule, or named by it.
func isOwnLayer(target string, rule layer) bool {
	l, ok := layerOf(target)
	return ok && l.dir == rule.dir || withinAny(target, rule.allow)
}

func TestImports(t *testing.T) {
	for _, f := range tree(t) {
		for _, w := range checkImports(f.dir, f.test, f.imports()) {
			t.Errorf("%s %s", f.path, w)
		}
	}
}

// TestImportRulesBite proves that the checker finds what it should, and leaves alone what is right.
func TestImportRulesBite(t *testing.T) {
	cases := []struct {
		dir, imp string
		test     bool
		bad      bool
	}{
		{"cmd/batchmill", "jobs", false, false},
		{"cmd/batchmill", "pipeline", false, true},
		{"cmd/batchmill", "readers", false, true},
		{"cmd/batchmill", "infer/tokenizer", false, false},
		{"jobs", "pipeline", false, false},
		{"jobs", "cmd/batchmill", false, true},
		{"pipeline", "jobs", false, true},
		{"pipeline", "infer/tokenizer", false, false},
		{"readers", "writers", false, true},
		{"readers", "infer/quant", false, true},
		{"readers", "writers", true, false},
		{"writers", "readers", false, true},
		{"infer", "readers", false, true},
		{"infer", "infer/kv", false, false},
		{"infer", "infer/cpu", false, false},
		{"infer/cpu", "infer", false, true},
		{"infer/cpu", "infer/model", false, true},
		{"infer/cpu", "infer/device", false, false},
		{"infer/device", "infer/cpu", false, true},
		{"infer/tokenizer", "infer/quant", false, true},
		{"infer/tokenizer", "internal/row", false, false},
		{"internal/row", "internal/ordered", false, false},
		{"internal/row", "internal/jinja", false, true},
		{"internal/objstore", "infer", false, true},
		{"internal/hub", "infer/gguf", false, false},
		{"internal/hub", "infer", false, true},
		{"jobs", "internal/s3test", false, true},
		{"jobs", "internal/s3test", true, false},
		{"somewhere", "jobs", false, true},
	}
	for _, c := range cases {
		got := checkImports(c.dir, c.test, []string{module + "/" + c.imp})
		if (len(got) > 0) != c.bad {
			t.Errorf("%s -> %s (test %v): %v, want bad %v", c.dir, c.imp, c.test, got, c.bad)
		}
	}
	for imp, bad := range map[string]map[string]bool{
		"gocloud.dev/blob":                               {"jobs": true, "readers": true, "internal/objstore": false},
		"gocloud.dev/blob/s3blob":                        {"writers": true, "internal/objstore": false},
		"github.com/apache/arrow/go/v17/parquet/pqarrow": {"writers": true, "internal/objstore": true},
		"github.com/apache/arrow/go/v17/arrow/flight":    {"readers": true},
		"github.com/apache/arrow/go/v17/arrow/array":     {"readers": false},
		"github.com/urfave/cli/v2":                       {"jobs": true, "cmd/batchmill": false},
		"regexp":                                         {"infer/tokenizer": true, "internal/jinja": true},
		"regexp/syntax":                                  {"infer/tokenizer": true, "infer/gguf": false},
		"net/http":                                       {"infer/cpu": true, "readers": true, "internal/hub": false},
		"os/exec":                                        {"jobs": true, "infer": true, "internal/hub": false},
	} {
		for dir, want := range bad {
			if got := checkImports(dir, false, []string{imp}); (len(got) > 0) != want {
				t.Errorf("%s -> %s: %v, want bad %v", dir, imp, got, want)
			}
		}
	}
}
