package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestBadRows: each bad row is one error row with its code, and the rows beside it are answered as if it were not there.
func TestBadRows(t *testing.T) {
	m := model(t)
	dir := t.TempDir()
	rows := []struct{ text, code string }{
		{`{"id": "good-1", "prompt": "What do cats eat?"}`, ""},
		{`{"id": "broken", "prompt": "no end`, "invalid_json"},
		{`[1, 2, 3]`, "invalid_row_type"},
		{`"just text"`, "invalid_row_type"},
		{"{\"id\": \"utf8\", \"prompt\": \"\xff\xfe\"}", "invalid_utf8"},
		{`{"id": "missing", "text": "no prompt here"}`, "missing_column"},
		{`{"id": "PROMPT", "PROMPT": "keys match exactly"}`, "missing_column"},
		{`{"id": "null", "prompt": null}`, "null_prompt"},
		{`{"id": "long", "prompt": "` + strings.Repeat("word and another ", 20000) + `"}`, "context_length_exceeded"},
		{`{"id": "messages", "messages": [{"role": "user"}, 7]}`, "invalid_messages"},
		{`{"id": "good-2", "prompt": "What do cats eat?"}`, ""},
	}
	var text []string
	for _, r := range rows {
		text = append(text, r.text)
	}
	in := write(t, dir+"/rows.jsonl", []byte("\xef\xbb\xbf"+strings.Join(text, "\r\n")+"\n\n"))
	s := job(t, 0, nil, "--model", m, "--input", in, "--output", dir+"/out", "--max-tokens", "8")
	if s.Rows.Total != int64(len(rows)) || s.Rows.OK != 2 {
		t.Errorf("rows %+v, want %d with 2 ok", s.Rows, len(rows))
	}
	_, got := lines(t, dir+"/out")
	if len(got) != len(rows) {
		t.Fatalf("%d lines, want %d", len(got), len(rows))
	}
	for i, r := range rows {
		l := got[i]
		switch {
		case r.code == "" && (l.Status != "ok" || l.Completion == nil):
			t.Errorf("row %d: %+v, want ok", i, l)
		case r.code != "" && (l.Status != "error" || l.ErrorCode == nil || *l.ErrorCode != r.code):
			t.Errorf("row %d: %+v, want %s", i, l, r.code)
		case r.code != "" && (l.ErrorMessage == nil || !strings.Contains(*l.ErrorMessage, "rows.jsonl")):
			t.Errorf("row %d: message does not name the file: %+v", i, l)
		}
	}
	if a, b := got[0].Completion, got[len(got)-1].Completion; a == nil || b == nil || *a != *b {
		t.Errorf("equal rows differ: %v %v", a, b)
	}
	// Under --strict-exit the same job tells by its exit code that a person should look.
	if strict := batchmill(t, nil, "run", "--model", m, "--input", in, "--output", dir+"/strict", "--max-tokens", "8", "--strict-exit"); strict.code != 3 {
		t.Errorf("--strict-exit: exit %d, want 3\n%s", strict.code, strict.stderr)
	}
}

// TestRefused: what cannot work ends at once, with the exit code an orchestrator acts on and a message a person can use.
func TestRefused(t *testing.T) {
	m := model(t)
	dir := t.TempDir()
	one := write(t, dir+"/one.jsonl", []byte(`{"prompt": "hello"}`+"\n"))
	whole := read(t, m)
	damaged := append([]byte{}, whole[:1<<20]...)
	truncated := write(t, dir+"/truncated.gguf", damaged)
	magic := append([]byte("NOPE"), whole[4:4096]...)
	wrong := write(t, dir+"/wrong.gguf", magic)
	utf16 := write(t, dir+"/utf16.jsonl", []byte("\xff\xfe{\x00\"\x00a\x00\"\x00:\x001\x00}\x00\n\x00"))
	cut := write(t, dir+"/cut.parquet", read(t, tasks())[:5000])
	cases := []struct {
		name string
		code int
		args []string
		say  []string // what stderr must hold
	}{
		{"no such input", 66, []string{"--model", m, "--input", dir + "/absent.jsonl", "--output", dir + "/o1"}, []string{"absent.jsonl"}},
		{"glob without match", 66, []string{"--model", m, "--input", dir + "/*.nothing", "--output", dir + "/o2"}, []string{"*.nothing"}},
		{"no such model", 66, []string{"--model", dir + "/absent.gguf", "--input", one, "--output", dir + "/o3"}, []string{"absent.gguf"}},
		{"truncated model", 65, []string{"--model", truncated, "--input", one, "--output", dir + "/o4"}, []string{"truncated.gguf"}},
		{"not a model", 65, []string{"--model", wrong, "--input", one, "--output", dir + "/o5"}, []string{"wrong.gguf"}},
		{"utf-16", 65, []string{"--model", m, "--input", utf16, "--output", dir + "/o6"}, []string{"UTF-16", "utf16.jsonl"}},
		{"cut parquet", 65, []string{"--model", m, "--input", cut, "--output", dir + "/o7", "--prompt", "{{ text }}"}, []string{"cut.parquet"}},
		{"unknown column in the template", 64, []string{"--model", m, "--input", tasks(), "--output", dir + "/o8", "--prompt", "{{ txet }}"}, []string{"txet"}},
		{"template does not parse", 64, []string{"--model", m, "--input", tasks(), "--output", dir + "/o9", "--prompt", "{{ text "}, []string{"--prompt:1:"}},
		{"output equals input", 64, []string{"--model", m, "--input", one, "--output", one}, []string{"one.jsonl"}},
		{"output inside input", 64, []string{"--model", m, "--input", dir + "/", "--output", dir + "/inside/"}, []string{"inside"}},
		{"unknown flag", 64, []string{"--model", m, "--input", one, "--output", dir + "/o10", "--promt", "x"}, []string{"promt"}},
		{"no input at all", 64, []string{"--model", m, "--output", dir + "/o11"}, []string{"--input"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := batchmill(t, nil, append([]string{"run"}, c.args...)...)
			if got.code != c.code {
				t.Errorf("exit %d, want %d\n%s", got.code, c.code, got.stderr)
			}
			for _, want := range c.say {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("stderr does not say %q:\n%s", want, got.stderr)
				}
			}
			if strings.Contains(got.stderr, "goroutine ") {
				t.Errorf("a stack trace is no message:\n%s", got.stderr)
			}
			if got.stdout != "" {
				t.Errorf("stdout should be empty: %s", got.stdout)
			}
			if left, _ := filepath.Glob(c.args[len(c.args)-1] + "/part-*"); len(left) > 0 {
				t.Errorf("a refused job left %v", left)
			}
		})
	}
}

// TestEmptyInput: no rows is a job like any other, with a valid, empty output.
func TestEmptyInput(t *testing.T) {
	m := model(t)
	dir := t.TempDir()
	in := write(t, dir+"/empty.jsonl", nil)
	if s := job(t, 0, nil, "--model", m, "--input", in, "--output", dir+"/out"); s.Rows.Total != 0 {
		t.Errorf("rows %+v, want none", s.Rows)
	}
}
