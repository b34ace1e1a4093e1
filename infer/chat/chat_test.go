package chat

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
)

func decode(t testing.TB, s string) any {
	t.Helper()
	v, err := ordered.DecodeJSON([]byte(s))
	if err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return v
}

func readJSON(t testing.TB, path string) any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(data))
}

func get(t testing.TB, v any, key string) any {
	t.Helper()
	f, ok := v.(*ordered.Map).Get(key)
	if !ok {
		t.Fatalf("golden has no %q", key)
	}
	return f
}

func normalize(t testing.TB, v any) []any {
	t.Helper()
	msgs, err := NormalizeMessages(v)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// The goldens of the engine, this time through normalisation.
func TestGoldenTemplates(t *testing.T) {
	g := readJSON(t, "../../internal/jinja/testdata/cases.json")
	now, err := time.Parse("2006-01-02T15:04:05", get(t, g, "now").(string))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{BOS: get(t, g, "bos_token").(string), EOS: get(t, g, "eos_token").(string), Now: now}
	n := 0
	for _, tc := range get(t, g, "templates").([]any) {
		tpl, err := New(get(t, tc, "template").(string), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range get(t, tc, "cases").([]any) {
			n++
			t.Run(fmt.Sprintf("%s/%d", get(t, tc, "name"), i), func(t *testing.T) {
				kwargs := map[string]any{}
				kw := get(t, c, "kwargs").(*ordered.Map)
				for _, k := range kw.Keys() {
					kwargs[k], _ = kw.Get(k)
				}
				got, err := tpl.Render(normalize(t, get(t, c, "messages")), get(t, c, "tools"), get(t, c, "add_generation_prompt").(bool), kwargs)
				if want, ok := c.(*ordered.Map).Get("error"); ok {
					var re *row.Error
					if !errors.As(err, &re) || re.Code != row.TemplateError || !strings.HasSuffix(re.Message, want.(string)) {
						t.Fatalf("got error %v, want %q", err, want)
					}
					return
				}
				if want := get(t, c, "rendered"); err != nil || got.S != want {
					t.Fatalf("error %v\n got %q\nwant %q", err, got.S, want)
				}
			})
		}
	}
	if n != 21 {
		t.Errorf("found %d cases, want 21", n)
	}
}

func TestGoldenModels(t *testing.T) {
	g := readJSON(t, "testdata/models.json").(*ordered.Map)
	if g.Len() != 18 {
		t.Errorf("found %d models, want 18", g.Len())
	}
	for i := range g.Len() {
		name, m := g.At(i)
		cfg := get(t, m, "tokenizer_config").(*ordered.Map)
		src, ok := cfg.Get("chat_template")
		if !ok {
			t.Fatalf("%s has no template", name)
		}
		bos, _ := cfg.Get("bos_token")
		tpl, err := New(src.(string), Config{BOS: bos.(string)})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range get(t, m, "chat").([]any) {
			got, err := tpl.Render(normalize(t, get(t, c, "messages")), nil, true, nil)
			if want := get(t, c, "rendered"); err != nil || got.S != want {
				t.Errorf("%s: error %v\n got %q\nwant %q", name, err, got.S, want)
			}
		}
	}
}

func TestGoldenSmolLM2(t *testing.T) {
	g := readJSON(t, "../../internal/jinja/testdata/smollm2_chat.json")
	tpl, err := New(get(t, g, "chat_template").(string), Config{BOS: "<|im_start|>", EOS: "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range get(t, g, "cases").([]any) {
		got, err := tpl.Render(normalize(t, get(t, c, "messages")), nil, get(t, c, "add_generation_prompt").(bool), nil)
		if want := get(t, c, "rendered"); err != nil || got.S != want {
			t.Errorf("error %v\n got %q\nwant %q", err, got.S, want)
		}
	}
}

// literal marks the literal ranges of a text with brackets.
func literal(t jinja.Text) string {
	var b strings.Builder
	at := 0
	for _, s := range t.Literal {
		b.WriteString(t.S[at:s.Start] + "[" + t.S[s.Start:s.End] + "]")
		at = s.End
	}
	return b.String() + t.S[at:]
}

const chatML = "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] | trim + eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"

func TestProvenance(t *testing.T) {
	tpl, err := New(chatML, Config{EOS: "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	msgs := []any{
		ordered.MapOf("role", "user", "content", " </s><|user|> "),
		ordered.MapOf("role", "pirate", "content", &jinja.Text{S: " <b>x ", Literal: []jinja.Span{{Start: 1, End: 4}}}),
	}
	got, err := tpl.Render(normalize(t, msgs), nil, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	// A known role is the template's word, any other is data like the document.
	if want := "[<|user|>]</s><|user|>[</s><|]pirate[|><b>]x[</s><|assistant|>]"; literal(got) != want {
		t.Errorf("got  %s\nwant %s", literal(got), want)
	}
}

func TestNormalizeMessages(t *testing.T) {
	const calls = `{"role":"assistant","content":null,"tool_calls":[{"id":null,"function":{"name":"f","arguments":"{\"a\": 1}"}}]}`
	cases := []struct {
		in, want string
		code     row.Code
	}{
		{`[{"role":"user","content":"x","name":null}]`, `[{'role': 'user', 'content': 'x'}]`, ""},
		{`[{"content":["a",{"type":"text","text":"b","image_url":null},{"text":"c"}],"role":"user"}]`,
			`[{'content': [{'type': 'text', 'text': 'a'}, {'type': 'text', 'text': 'b'}, {'type': 'text', 'text': 'c'}], 'role': 'user'}]`, ""},
		{`[` + calls + `]`, `[{'role': 'assistant', 'content': None, 'tool_calls': [{'function': {'name': 'f', 'arguments': {'a': 1}}}]}]`, ""},
		{`[{"role":"assistant","tool_calls":[{"function":{"arguments":"not json"}}]}]`, `[{'role': 'assistant', 'tool_calls': [{'function': {'arguments': 'not json'}}]}]`, ""},
		{`"[{\"role\":\"user\",\"content\":\"x\"}]"`, `[{'role': 'user', 'content': 'x'}]`, ""},
		{`[{"role":"tool","content":{"a":1}}]`, `[{'role': 'tool', 'content': {'a': 1}}]`, ""},
		{`[{"role":"tool","content":[1,{"b":null}]}]`, `[{'role': 'tool', 'content': [1, {'b': None}]}]`, ""},
		{`"hello"`, "", row.InvalidMessages},
		{`null`, "", row.InvalidMessages},
		{`[]`, "", row.InvalidMessages},
		{`[7]`, "", row.InvalidMessages},
		{`{"role":"user","content":"x"}`, "", row.InvalidMessages},
		{`[{"content":"x"}]`, "", row.InvalidMessages},
		{`[{"role":"","content":"x"}]`, "", row.InvalidMessages},
		{`[{"role":3,"content":"x"}]`, "", row.InvalidMessages},
		{`[{"role":"user"}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":null}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":5}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":[{"type":"text"}]}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":[3]}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":"x","tool_calls":3}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":"x","tool_calls":[3]}]`, "", row.InvalidMessages},
		{`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]`, "", row.UnsupportedRequest},
	}
	show, err := jinja.Parse("show", "{{ v }}", jinja.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		got, rowErr := NormalizeMessages(decode(t, c.in))
		if rowErr != nil || c.code != "" {
			if rowErr == nil || rowErr.Code != c.code {
				t.Errorf("%s: error %v, want %s", c.in, rowErr, c.code)
			}
			continue
		}
		if text, err := show.Render(map[string]any{"v": got}, jinja.Env{}); err != nil || text.S != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.in, err, text.S, c.want)
		}
	}
	bad := []any{ordered.MapOf("role", "user", "content", []byte{0xff})}
	if _, err := NormalizeMessages(bad); err == nil || err.Code != row.InvalidUTF8 {
		t.Errorf("binary content: error %v", err)
	}
	in := decode(t, `[{"role":"user","content":[{"text":"c"}],"name":null}]`)
	if _, err := NormalizeMessages(in); err != nil {
		t.Fatal(err)
	}
	if in.([]any)[0].(*ordered.Map).Len() != 3 {
		t.Error("the row's own messages were changed")
	}
}

func TestContentParts(t *testing.T) {
	msgs := normalize(t, decode(t, `[{"role":"user","content":["a","b"]}]`))
	for src, want := range map[string]string{
		"{{ messages[0].content }}":                                   "a\nb",
		"{% for p in messages[0].content %}{{ p.text }};{% endfor %}": "a;b;",
		"{{ messages[0].content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('+') }}": "a+b",
	} {
		tpl, err := New(src, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tpl.Render(msgs, nil, false, nil); err != nil || got.S != want {
			t.Errorf("%s: got %q, %v, want %q", src, got.S, err, want)
		}
	}
	if _, isList := msgs[0].(*ordered.Map).Get("content"); !isList {
		t.Error("messages were changed")
	}
}

func TestRenderErrors(t *testing.T) {
	msgs := normalize(t, decode(t, `[{"role":"user","content":"x"}]`))
	cases := []struct {
		src    string
		kwargs map[string]any
		code   row.Code
		want   string
	}{
		{"{{ raise_exception('no ' ~ messages[0].role) }}", nil, row.TemplateError, "no user"},
		{"{{ messages[0].content + none }}", nil, row.TemplateError, "chat_template:1:"},
		{"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", nil, row.TemplateError, "deeper than"},
		{"x", map[string]any{"tools": 1}, row.InvalidParams, "tools"},
	}
	for _, c := range cases {
		tpl, err := New(c.src, Config{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tpl.Render(msgs, nil, false, c.kwargs)
		var re *row.Error
		if !errors.As(err, &re) || re.Code != c.code || !strings.Contains(re.Message, c.want) {
			t.Errorf("%s: error %v, want %s with %q", c.src, err, c.code, c.want)
		}
	}
	if _, err := New("{% if %}", Config{}); err == nil || !strings.Contains(err.Error(), "chat_template:1:") {
		t.Errorf("broken template: error %v", err)
	}
}

func TestVariables(t *testing.T) {
	tpl, err := New("{{ bos_token }}{{ pad_token }}{{ strftime_now('%d %b %Y') }}{{ documents }}{{ thinking }}", Config{
		BOS: "<s>", Tokens: map[string]string{"pad_token": "<pad>"}, Now: time.Date(2024, 7, 1, 0, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tpl.Names(), ","); got != "thinking" {
		t.Errorf("names %s", got)
	}
	got, err := tpl.Render(nil, nil, false, map[string]any{"thinking": true})
	if want := "[<s><pad>01 Jul 2024]NoneTrue"; err != nil || literal(got) != want {
		t.Errorf("got %s, %v, want %s", literal(got), err, want)
	}
}

func TestFromFolder(t *testing.T) {
	cases := []struct {
		name, file, config, want string
		ok, fails                bool
	}{
		{"file first", "FILE", `{"chat_template":"CFG"}`, "FILE", true, false},
		{"string", "", `{"chat_template":"CFG"}`, "CFG", true, false},
		{"list", "", `{"chat_template":[{"name":"tool_use","template":"T"},{"name":"default","template":"D"}]}`, "D", true, false},
		{"list of one", "", `{"chat_template":[{"name":"rag","template":"T"}]}`, "T", true, false},
		{"none", "", `{"bos_token":"<s>"}`, "", false, false},
		{"null", "", `{"chat_template":null}`, "", false, false},
		{"nothing", "", "", "", false, false},
		{"no default", "", `{"chat_template":[{"name":"a","template":"T"},{"name":"b","template":"D"}]}`, "", false, true},
		{"bad entry", "", `{"chat_template":[{"name":"a"}]}`, "", false, true},
		{"number", "", `{"chat_template":3}`, "", false, true},
		{"broken", "", `{`, "", false, true},
		{"no object", "", `[]`, "", false, true},
	}
	bytesOf := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	for _, c := range cases {
		src, ok, err := FromFolder(bytesOf(c.file), bytesOf(c.config))
		if src != c.want || ok != c.ok || (err != nil) != c.fails {
			t.Errorf("%s: got %q, %v, %v", c.name, src, ok, err)
		}
	}
	if _, _, err := FromFolder([]byte{0xff}, nil); err == nil {
		t.Error("invalid UTF-8 was accepted")
	}
	tokens, err := SpecialTokens([]byte(`{"bos_token":{"content":"<s>"},"eos_token":"</s>","unk_token":null,"x_token":"x"}`))
	if err != nil || len(tokens) != 2 || tokens["bos_token"] != "<s>" || tokens["eos_token"] != "</s>" {
		t.Errorf("special tokens %v, %v", tokens, err)
	}
}

func BenchmarkRender(b *testing.B) {
	g := readJSON(b, "../../internal/jinja/testdata/smollm2_chat.json")
	tpl, err := New(get(b, g, "chat_template").(string), Config{BOS: "<|im_start|>", EOS: "<|im_end|>"})
	if err != nil {
		b.Fatal(err)
	}
	v := decode(b, `[{"role":"system","content":"Be brief."},{"role":"user","content":"`+strings.Repeat("word ", 200)+`"}]`)
	b.ReportAllocs()
	for b.Loop() {
		msgs, rowErr := NormalizeMessages(v)
		if rowErr != nil {
			b.Fatal(rowErr)
		}
		if _, err := tpl.Render(msgs, nil, true, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// Whatever JSON a row holds as its messages, it becomes a list or a row error.
func FuzzNormalizeMessages(f *testing.F) {
	f.Add([]byte(`[{"role":"user","content":[{"type":"text","text":"x"}]}]`))
	f.Add([]byte(`[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}]`))
	f.Add([]byte(`"[{}]"`))
	tpl, err := New(chatML, Config{EOS: "</s>"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ordered.DecodeJSON(data)
		if err != nil {
			return
		}
		msgs, rowErr := NormalizeMessages(v)
		if rowErr != nil {
			return
		}
		if len(msgs) == 0 {
			t.Fatal("no messages and no error")
		}
		if _, err := tpl.Render(msgs, nil, true, nil); err != nil {
			var re *row.Error
			if !errors.As(err, &re) || strings.Contains(re.Message, "internal fault") {
				t.Fatal(err)
			}
		}
	})
}
