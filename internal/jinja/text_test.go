package jinja

import (
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
)

// marked shows the literal ranges of a text in brackets.
func marked(t Text) string {
	var b strings.Builder
	at := 0
	for _, s := range t.Literal {
		b.WriteString(t.S[at:s.Start] + "⟦" + t.S[s.Start:s.End] + "⟧")
		at = s.End
	}
	return b.String() + t.S[at:]
}

func TestProvenance(t *testing.T) {
	vars := map[string]any{
		"x": "data", "sp": "  d  ", "n": int64(5), "list": []any{"p", "q"},
		"mixed": Text{S: "ab<s>cd", Literal: []Span{{2, 5}}},
		"m":     ordered.MapOf("role", "user", "content", &Text{S: "u<e>", Literal: []Span{{1, 4}}}),
	}
	cases := []struct{ src, want string }{
		{"a{{ x }}b", "⟦a⟧data⟦b⟧"},
		{"a{{ 'b' }}{# c #}d", "⟦abd⟧"},
		{"{{ 'a' + x + 'b' }}", "⟦a⟧data⟦b⟧"},
		{"{{ 'a' ~ n ~ 'b' }}", "⟦a⟧5⟦b⟧"},
		{"{{ mixed }}{{ m.content }}{{ m['role'] }}", "ab⟦<s>⟧cdu⟦<e>⟧user"},
		{"{{ mixed[1:4] }}|{{ mixed[2] }}|{{ mixed[::-1] }}", "b⟦<s|<|⟧dc⟦>s<⟧ba"},
		{"{{ ('<' + sp + '>') | trim }}{{ sp.strip() }}{{ ('  ' ~ x ~ '  ').strip() }}", "⟦<⟧  d  ⟦>⟧ddata"},
		{"{% set y = '<' + x %}{{ y }}{% set z %}<{{ x }}>{% endset %}{{ z }}", "⟦<⟧data⟦<⟧data⟦>⟧"},
		{"{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(x) }}{{ f('l') }}", "⟦[⟧data⟦][l]⟧"},
		{"{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}c{{ x }}{% endcall %}", "⟦(c⟧data⟦)⟧"},
		{"{{ list | join(', ') }}{{ ', '.join(list) }}", "p⟦, ⟧qp⟦, ⟧q"},
		{"{{ ['a', x] | join }}", "⟦a⟧data"},
		{"{{ mixed.split('<')[1] }}{{ (x ~ '|' ~ x).split('a') | join('_') }}", "⟦s>⟧cdd⟦_⟧t⟦_|⟧d⟦_⟧t⟦_⟧"},
		{"{{ mixed.partition('s') | join }}{{ mixed.removeprefix('ab').removesuffix('d') }}", "ab⟦<s>⟧cd⟦<s>⟧c"},
		{"{{ mixed.replace('b', '-').replace('c', x) }}", "a⟦-<s>⟧datad"},
		{"{{ 'LIT'.replace('I', x) }}{{ 'LIT' | replace('I', 'o') }}", "⟦L⟧data⟦TLoT⟧"},
		{"{{ mixed | upper }}{{ mixed.title() }}{{ 'abc' | capitalize }}", "AB⟦<S>⟧CDAb<S>Cd⟦Abc⟧"},
		{"{{ ('<' ~ x ~ '>') | e }}{{ '%s:%s' % ('a', x) }}{{ '{}/{:>3}'.format(x, 'a') }}", "⟦&lt;⟧data⟦&gt;a:⟧datadata⟦/⟧  ⟦a⟧"},
		{"{{ x | tojson }}{{ 'a' | tojson }}{{ ['a'] | tojson }}{{ ['a'] }}", `"data"⟦"a"⟧["a"]['a']`},
		{"{{ x | default('d') }}{{ zz | default('d') }}", "data⟦d⟧"},
		{"{{ 'a' if n else x }}{{ x if n else 'a' }}{{ zz or 'b' }}{{ x and 'c' }}", "⟦a⟧data⟦bc⟧"},
		{"{% for c in mixed %}{{ c }}{% endfor %}{{ mixed | list | join }}", "ab⟦<s>⟧cdab⟦<s>⟧cd"},
		{"{% filter trim %} {{ x }}! {% endfilter %}{% set b | upper %}q{{ x }}{% endset %}{{ b }}", "data⟦!Q⟧DATA"},
		{"{{ 'ab' * 2 }}{{ mixed[2:6] * 2 }}", "⟦abab<s>⟧c⟦<s>⟧c"},
		{"{{ ('a\\n' ~ x) | indent('>') }}{{ mixed | truncate(6, true, '~', 0) }}{{ 'z'.center(3) }}", "⟦a\n>⟧dataab⟦<s>~⟧ ⟦z⟧ "},
		{"{% set d = {'k': 'v', x: x} %}{{ d.k }}{{ d.data }}{% for k in d %}{{ k }}{% endfor %}", "⟦v⟧data⟦k⟧data"},
		{"{{ namespace(a='x' ~ x).a }}{{ dict(a='l').a }}", "⟦x⟧data⟦l⟧"},
		{"{{ strftime_now('%Y') }}{{ mixed | string }}{{ mixed | reverse }}{{ (mixed | first) ~ (mixed[2:] | first) }}", "⟦2024⟧ab⟦<s>⟧cddc⟦>s<⟧baa⟦<⟧"},
		{"{{ ['b', 'a', x] | sort | join }}{{ [x, 'l'] | map('trim') | join }}{{ mixed.splitlines()[0] }}", "⟦ab⟧datadata⟦l⟧ab⟦<s>⟧cd"},
		{"{{ '' ~ x ~ '' }}{{ '' }}{% set e = '' %}{{ e }}", "data"},
	}
	for _, c := range cases {
		tpl, err := Parse("test", c.src, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		got, err := tpl.Render(vars, fixedEnv)
		if err != nil {
			t.Errorf("%s: %v", c.src, err)
			continue
		}
		checkSpans(t, got)
		if marked(got) != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.src, marked(got), c.want)
		}
	}
}

// Data must never become literal, whatever a template does to it: no digit of the data lands in a literal range.
func TestDataStaysData(t *testing.T) {
	const secret = "0123456789"
	vars := map[string]any{"x": secret, "l": []any{secret, "7"}, "d": ordered.MapOf("4", "5")}
	g := readJSON(t, "testdata/python.json")
	v := field(t, g, "variables").(*ordered.Map)
	digits := func(s string) bool { return strings.ContainsAny(s, secret) }
	names := strings.Split("upper lower title capitalize trim string e tojson list first last length reverse sort join unique indent striptags urlencode wordwrap center safe max min", " ")
	for _, f := range names {
		for _, src := range []string{"{{ x | F }}", "{{ ('a' ~ x ~ 'b') | F }}", "{{ l | F }}", "{{ (l | F) ~ 'z' }}", "{{ d | F }}", "{{ (x ~ 'a')[2:] | F | string }}"} {
			src = strings.Replace(src, "F", f, 1)
			tpl, err := Parse("test", src, Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := tpl.Render(vars, Env{})
			if err != nil {
				continue // not every filter fits every value
			}
			checkSpans(t, got)
			for _, s := range got.Literal {
				if digits(got.S[s.Start:s.End]) {
					t.Errorf("%s: %s", src, marked(got))
				}
			}
		}
	}
	// The same over the bank of templates, with their own digits left out and strings of digits as variables.
	for _, k := range v.Keys() {
		if s, _ := v.Get(k); isString(s) {
			vars[k] = secret
		} else {
			vars[k] = s
		}
	}
	n := 0
	for _, c := range field(t, g, "cases").([]any) {
		src := field(t, c, "template").(string)
		if digits(src) || strings.Contains(src, "strftime") {
			continue
		}
		tpl, err := Parse("test", src, chatOptions)
		if err != nil {
			continue
		}
		got, err := tpl.Render(vars, fixedEnv)
		if err != nil {
			continue
		}
		n++
		checkSpans(t, got)
		for _, s := range got.Literal {
			if digits(got.S[s.Start:s.End]) {
				t.Errorf("%s: %s", src, marked(got))
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d templates of the bank took part", n)
	}
}

func TestStrict(t *testing.T) {
	vars := map[string]any{"a": "x", "d": ordered.MapOf("k", "v")}
	good := map[string]string{
		"{{ a }}":                              "x",
		"{{ zz | default('d') }}":              "d",
		"{{ zz is defined }}":                  "False",
		"{{ zz is not defined }}":              "True",
		"{{ d.zz | default('d') }}":            "d",
		"{% if d.zz is defined %}a{% endif %}": "",
		"{{ 'a' if false }}":                   "",
	}
	for src, want := range good {
		if got, err := render(src, Options{Strict: true}, vars); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", src, got, err, want)
		}
	}
	for _, src := range []string{
		"{{ zz }}", "{{ d.zz }}", "{{ d['zz'] }}", "{{ zz ~ 'a' }}", "{{ 'a' + zz }}", "{% if zz %}{% endif %}", "{% for i in zz %}{% endfor %}", "{{ zz | length }}",
		"{{ zz | upper }}", "{{ zz | list }}", "{{ zz == 1 }}", "{{ 1 == zz }}", "{{ 'a' == zz }}", "{{ 'a' in zz }}", "{{ zz in 'a' }}", "{{ zz in ['a'] }}", "{{ not zz }}", "{{ zz or 1 }}",
		"{{ [zz] }}", "{{ [zz] | join }}", "{{ zz | join }}", "{{ zz is none }}", "{{ zz is string }}", "{{ zz.a }}", "{{ zz | tojson }}",
		"{{ 1 if zz else 2 }}", "{{ zz | first }}", "{{ [d] | map(attribute='zz') | join }}", "{{ [d] | selectattr('zz') | list }}", "{{ '%s' % zz }}", "{{ '{}'.format(zz) }}", "{{ zz | items | list }}",
	} {
		if got, err := render(src, Options{Strict: true}, vars); !errors.Is(err, ErrUndefined) {
			t.Errorf("%s: got %q, %v, want an undefined value", src, got, err)
		}
	}
}

func TestNames(t *testing.T) {
	cases := []struct {
		src  string
		want []string
	}{
		{"{{ b }} {{ a.x }} {{ a['y'] }} {{ f(c) }}", []string{"a", "b", "c", "f"}},
		{"{% set x = a %}{{ x }}", []string{"a"}},
		{"{{ x }}{% set x = 1 %}", []string{"x"}},
		{"{% for i in items %}{{ i }}{{ loop.index }}{% endfor %}{{ i }}", []string{"i", "items"}},
		{"{% for i, (j, k) in items if j > lim %}{{ k }}{% else %}{{ z }}{% endfor %}", []string{"items", "lim", "z"}},
		{"{% macro m(a, b=c) %}{{ a }}{{ b }}{{ d }}{{ caller() }}{{ varargs }}{% endmacro %}{{ m(e) }}", []string{"c", "d", "e"}},
		{"{% call(x) m(y) %}{{ x }}{{ z }}{% endcall %}", []string{"m", "y", "z"}},
		{"{{ x | default('a') }}{{ y | d }}", []string{}},
		{"{{ x | default('a') }}{{ x }}", []string{"x"}},
		{"{% if tools is defined %}{{ tools }}{% endif %}{{ q if q is not undefined }}", []string{}},
		{"{% with a = b %}{{ a }}{% endwith %}{{ a }}", []string{"a", "b"}},
		{"{% set ns = namespace(x=1) %}{% set ns.x = y %}{{ range(3) }}{{ dict(a=b) }}", []string{"b", "y"}},
		{"{% set x.y = 1 %}", []string{"x"}},
		{"{% set t %}{{ a }}{% endset %}{{ t }}", []string{"a"}},
		{"{{ 'a' 'b' }}{{ true }}{{ none }}", []string{}},
	}
	for _, c := range cases {
		tpl, err := Parse("test", c.src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := tpl.Names(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.src, got, c.want)
		}
	}
	tpl, err := Parse("test", "{{ a.b['c'] | selectattr('d', 'eq', 'e') | map(attribute='f') }}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"b", "c", "d", "e", "f"} {
		if !tpl.Mentions(w) {
			t.Errorf("does not mention %s", w)
		}
	}
	if tpl.Mentions("a") || tpl.Mentions("x") {
		t.Error("mentions a variable or nothing")
	}
}

func TestErrorPositions(t *testing.T) {
	cases := []struct {
		src          string
		line, column int
		msg          string
	}{
		{"a\nbé {{ 1 / 0 }}", 2, 9, "division by zero"},
		{"{{ x.y }}", 1, 5, "'x' is undefined"},
		{"a\r\n\r\n{{ foo( }}", 3, 9, "unexpected }"},
		{"{% if x %}\n{% for i in y %}\n{% endif %}", 3, 4, "unexpected {% endif %}, expected {% endfor %}"},
		{"\n  {% if x %}", 2, 6, "block is never closed: {% endif %} is missing"},
		{"{{ 'a' | nope }}", 1, 10, "no filter named nope"},
		{"{% include 'x' %}", 1, 4, "not supported"},
		{"{{ 'a' + 1 }}", 1, 8, "can only concatenate str"},
		{"{{ l.append(1) }}", 1, 5, "list.append is not allowed"},
		{"{{ raise_exception('x') }}", 1, 19, "the template raised: x"},
		{"{% macro m() %}\n{{ 1 + none }}{% endmacro %}\n\n{{ m() }}", 2, 6, "unsupported operand"},
		{"{{ a }}\n{{ bad }}", 2, 1, "unsupported Go type struct"},
	}
	for _, c := range cases {
		_, err := render(c.src, Options{}, map[string]any{"l": []any{}, "bad": struct{}{}})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: got %v", c.src, err)
			continue
		}
		if e.Line != c.line || e.Column != c.column || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("%q: got %v, want %d:%d: %s", c.src, err, c.line, c.column, c.msg)
		}
	}
}

func TestVariables(t *testing.T) {
	vars := map[string]any{
		"big": new(big.Int).Lsh(big.NewInt(1), 80), "small": big.NewInt(7), "i": 3, "bad": Text{S: "ab", Literal: []Span{{1, 9}}},
		"nilText": (*Text)(nil), "nilMap": (*ordered.Map)(nil), "range": "mine",
	}
	for src, want := range map[string]string{
		"{{ big }}": "1208925819614629174706176", "{{ small + 1 }}": "8", "{{ i * 2 }}": "6", "{{ nilText }}": "None", "{{ nilMap | length }}": "0", "{{ range }}": "mine",
	} {
		if got, err := render(src, Options{}, vars); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", src, got, err, want)
		}
	}
	if _, err := render("{{ bad }}", Options{}, vars); err == nil {
		t.Error("spans outside of the text were accepted")
	}
	if _, err := Parse("x", "a\xffb", Options{}); err == nil {
		t.Error("invalid UTF-8 was accepted")
	}
}

// Templates share nothing between renders, also when they are rendered at once.
func TestConcurrentRenders(t *testing.T) {
	tpl, err := Parse("test", "{% set ns = namespace(n=0) %}{% macro f() %}{{ ns.n }}{% endmacro %}{% for i in range(k) %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ f() }}{{ s }}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, 8)
	for w := range 8 {
		go func() {
			for k := range 50 {
				out, err := tpl.Render(map[string]any{"k": int64(k + w), "s": strings.Repeat("s", w)}, Env{})
				if want := big.NewInt(int64(k+w)).String() + strings.Repeat("s", w); err == nil && out.S != want {
					err = errors.New("got " + out.S + ", want " + want)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
