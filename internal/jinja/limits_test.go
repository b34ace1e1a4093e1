package jinja

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Every hostile template ends as an error that wraps ErrLimit, quickly and in little memory. The limits are an eighth
// of the default, so that the test is short; with BATCHMILL_LONG_TESTS=1 they are the default.
func TestHostileTemplates(t *testing.T) {
	wrap := func(open, inner, end string) string {
		const deep = 100_000
		return "{{ " + strings.Repeat(open, deep) + inner + strings.Repeat(end, deep) + " }}"
	}
	cases := []struct{ name, src string }{
		{"range(1e9) loop", "{% for i in range(1000000000) %}{% endfor %}"},
		{"nested empty loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"},
		{"nested empty loops over a list", "{% set r = range(100000) | list %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}"},
		{"string repetition", "{{ 'x' * 100000000000 }}"},
		{"list repetition", "{{ [1] * 100000000000 }}"},
		{"repetition beyond int64", "{{ 'x' * 100000000000000000000000000 }}"},
		{"doubling", "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"},
		{"doubling with ~", "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"},
		{"doubling a list", "{% set ns = namespace(s=[1, 2]) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"},
		{"doubling by replace", "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}"},
		{"doubling by format", "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}"},
		{"doubling by join", "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}"},
		{"doubling by a block", "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}"},
		{"doubling by a macro", "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = d(ns.s) %}{% endfor %}"},
		{"escaping", "{% set ns = namespace(s='&&') %}{% for i in range(40) %}{% set ns.s = (ns.s ~ ns.s) | escape %}{% endfor %}"},
		{"repr of repr", `{% set ns = namespace(s="'\\") %}{% for i in range(40) %}{% set ns.s = [ns.s] | string %}{% endfor %}`},
		{"json of json", `{% set ns = namespace(s='"') %}{% for i in range(40) %}{% set ns.s = ns.s | tojson %}{% endfor %}`},
		{"output", "{% for i in range(100000) %}" + strings.Repeat("x", 1000) + "{% endfor %}"},
		{"macro calling itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
		{"macros calling each other", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}"},
		{"macro as filter argument", "{% macro f() %}{{ [f()] | map('upper') | list }}{% endmacro %}{{ f() }}"},
		{"caller calling itself", "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}"},
		{"default calling itself", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}"},
		{"deep macro calling itself", "{% macro f() %}{{ " + strings.Repeat("(1, ", 60) + "f()" + strings.Repeat(")", 60) + " }}{% endmacro %}{{ f() }}"},
		{"recursive loop", "{% set ns = namespace() %}{% set ns.x = [ns] %}{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
		{"fan-out recursion", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}"},
		{"parentheses", "{{ " + strings.Repeat("(", 2_000_000) + " }}"},
		{"closed parentheses", wrap("(", "1", ")")},
		{"brackets", wrap("[", "", "]")},
		{"braces", wrap("{1:", "1", "}")},
		{"indexes", wrap("a[", "1", "]")},
		{"slices", wrap("a[1:", "", "]")},
		{"calls", wrap("a(", "", ")")},
		{"keyword arguments", wrap("a(b=", "1", ")")},
		{"filter arguments", wrap("a|d(", "1", ")")},
		{"minus signs", "{{ " + strings.Repeat("-", 100_000) + "1 }}"},
		{"not not not", "{{ " + strings.Repeat("not ", 100_000) + "1 }}"},
		{"if else chain", "{{ " + strings.Repeat("1 if 0 else ", 50_000) + "1 }}"},
		{"if chain", "{{ 1" + strings.Repeat(" if 1", 50_000) + " }}"},
		{"attribute chain", "{{ a" + strings.Repeat(".a", 100_000) + " }}"},
		{"filter chain", "{{ a" + strings.Repeat("|e", 100_000) + " }}"},
		{"filter block chain", "{% filter e" + strings.Repeat("|e", 100_000) + " %}{% endfilter %}"},
		{"test chain", "{{ a" + strings.Repeat(" is true()", 50_000) + " }}"},
		{"product chain", "{{ 1" + strings.Repeat(" * 1", 100_000) + " }}"},
		{"power chain", "{{ 1" + strings.Repeat("**1", 100_000) + " }}"},
		{"call chain", "{{ a" + strings.Repeat("()", 100_000) + " }}"},
		{"nested blocks", strings.Repeat("{% if 1 %}", 50_000)},
		{"nested for", strings.Repeat("{% for i in x %}", 50_000)},
		{"nested targets", "{% set " + strings.Repeat("(", 100_000) + "a" + strings.Repeat(")", 100_000) + " = 1 %}"},
		{"self-containing namespace", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}"},
		{"self-containing list", "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}"},
		{"self-containing dict", "{% set ns = namespace() %}{% set ns.a = {'k': (ns,)} %}{{ ns.a }}"},
		{"deep list printed", deepen("[v]") + "{{ ns.v }}"},
		{"deep list as JSON", deepen("[v]") + "{{ ns.v | tojson }}"},
		{"deep list compared", deepen("[v]") + "{% set a = ns.v %}{% set ns = namespace(v=1) %}" + deepen2("[v]") + "{{ a == ns.v }}"},
		{"deep lists ordered", deepen("[v]") + "{% set a = ns.v %}{% set ns = namespace(v=1) %}" + deepen2("[v]") + "{{ a < ns.v }}"},
		{"deep dict compared", deepen("{1: v}") + "{% set a = ns.v %}{% set ns = namespace(v=1) %}" + deepen2("{1: v}") + "{{ a == ns.v }}"},
		{"deep tuple as key", deepen("(v,)") + "{{ {ns.v: 1} }}"},
		{"wide list printed", "{% set ns = namespace(v=[1, 1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v }}"},
		{"wide list as JSON", "{% set ns = namespace(v=[1, 1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% endfor %}{{ ns.v | tojson }}"},
		{"wide list compared", "{% set ns = namespace(v=[1], w=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% set ns.w = [ns.w, ns.w] %}{% endfor %}{{ ns.v == ns.w }}"},
		{"wide list searched", "{% set ns = namespace(v=[1], w=[1]) %}{% for i in range(60) %}{% set ns.v = [ns.v, ns.v] %}{% set ns.w = [ns.w, ns.w] %}{% endfor %}{{ ns.v in [ns.w] }}"},
		{"wide tuple as key", "{% set ns = namespace(v=(1,)) %}{% for i in range(60) %}{% set ns.v = (ns.v, ns.v) %}{% endfor %}{{ {ns.v: 1} }}"},
		{"large power", "{{ 2 ** 1000000000 }}"},
		{"power of powers", "{{ 10 ** (10 ** (10 ** 10)) }}"},
		{"growing integer", "{% set ns = namespace(n=3) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"},
		{"format width", "{{ '%1000000000d' % 1 }}"},
		{"format star", "{{ '%*d' % (100000000000, 1) }}"},
		{"format precision", "{{ '%.1000000000f' % 1 }}"},
		{"str.format width", "{{ '{:1000000000}'.format('a') }}"},
		{"center", "{{ 'x'.center(100000000000) }}"},
		{"ljust", "{{ 'x'.ljust(100000000000) }}"},
		{"zfill", "{{ '1'.zfill(100000000000) }}"},
		{"expandtabs", `{{ '\t'.expandtabs(100000000000) }}`},
		{"indent", "{{ 'x' | indent(100000000000) }}"},
		{"tojson indent", "{{ [1] | tojson(indent=100000000000) }}"},
		{"indent of lines", `{{ ('\n' * 1000000) | indent('x' * 1000000, true, true) }}`},
		{"slices", "{{ [1] | slice(100000000000) | list }}"},
		{"batch fill", "{{ [1] | batch(100000000000, 0) | list }}"},
		{"replace between", "{{ ('x' * 1000000).replace('', 'y' * 1000000) }}"},
		{"join", "{{ ('x' * 100000).join(range(100000) | map('string') | list) }}"},
		{"scanning a long string", "{% set s = 'x' * 10000000 %}{% for i in range(100000) %}{{ 'y' in s }}{% endfor %}"},
		{"measuring a long string", "{% set s = 'é' * 5000000 %}{% for i in range(100000) %}{% set n = s | length %}{% endfor %}"},
		{"indexing a long string", "{% set s = 'é' * 5000000 %}{% for i in range(100000) %}{% set n = s[4000000] %}{% endfor %}"},
		{"comparing long strings", "{% set s = 'x' * 10000000 %}{% set t = s + '' %}{% for i in range(100000) %}{% set n = s == t %}{% endfor %}"},
		{"ordering long strings", "{% set s = 'x' * 10000000 %}{% set t = s + '' %}{% for i in range(100000) %}{% set n = s < t %}{% endfor %}"},
		{"affixes of long strings", "{% set s = 'x' * 10000000 %}{% set t = s + '' %}{% for i in range(100000) %}{% set n = s.startswith(t) %}{% endfor %}"},
		{"hashing long strings", "{% set s = 'x' * 10000000 %}{% set t = s ~ '' %}{% set d = {s: 1} %}{% for i in range(100000) %}{% set n = d[t] %}{% endfor %}"},
		{"stripping long strings", "{% set s = ' ' * 10000000 %}{% for i in range(100000) %}{% set n = s.strip() %}{% endfor %}"},
		{"stripping by a long set", "{% set s = 'é' * 1000000 %}{% set t = 'x' * 1000000 + 'é' %}{% for i in range(100000) %}{% set n = s.strip(t) %}{% endfor %}"},
		{"converting long strings", "{% set s = '1' * 10000000 %}{% for i in range(100000) %}{% set n = s | int %}{% set n = s | float %}{% endfor %}"},
		{"sorting", "{% set l = range(100000) | list %}{% for i in range(10000) %}{% set n = l | sort %}{% endfor %}"},
		{"unpacking", "{% macro f() %}{{ varargs | length }}{% endmacro %}{% set l = range(100000) | list %}{% for i in range(10000) %}{{ f(*l) }}{% endfor %}"},
		{"many spans", "{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s ~ 'a' ~ i %}{% endfor %}"},
		{"long error", "{{ [" + strings.Repeat("1,", 1000) + "].index('x' * 10000000) }}" + "{{ 'x' * 10000000000 }}"},
	}
	limits := Limits{Source: 8 << 20, Steps: DefaultSteps / 8, Built: DefaultBuilt / 8, Output: DefaultOutput / 8}
	if os.Getenv("BATCHMILL_LONG_TESTS") != "" {
		limits = Limits{Source: 8 << 20}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := render(c.src, Options{Limits: limits}, nil)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			var e *Error
			if !errors.As(err, &e) || e.Line < 1 || e.Column < 1 {
				t.Fatalf("got %v, want an error with a position", err)
			}
			if !errors.Is(err, ErrLimit) && c.name != "long error" && c.name != "parentheses" {
				t.Errorf("got %v, want a limit", err)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 4<<10 {
				t.Errorf("allocated %d MiB", mib)
			}
		})
	}
}

// deepen builds a value that is nested 10,000 deep, in ns.v.
func deepen(wrap string) string { return "{% set ns = namespace(v=1) %}" + deepen2(wrap) }

func deepen2(wrap string) string {
	return "{% for i in range(10000) %}{% set ns.v = " + strings.Replace(wrap, "v", "ns.v", 1) + " %}{% endfor %}"
}

func TestLimits(t *testing.T) {
	cases := []struct {
		name string
		l    Limits
		ok   string // within the limit
		bad  string // just beyond
	}{
		{"steps", Limits{Steps: 100}, "{% for i in range(20) %}{% endfor %}", "{% for i in range(200) %}{% endfor %}"},
		{"depth of calls", Limits{Depth: 20}, "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(19) }}",
			"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(20) }}"},
		{"depth of source", Limits{Depth: 20}, "{{ ((((((((1)))))))) }}", "{{ (((((((((((((((((((((1))))))))))))))))))))) }}"},
		{"output", Limits{Output: 10}, "{{ 'x' * 10 }}", "{{ 'x' * 11 }}"},
		{"output text", Limits{Output: 10}, "0123456789", "01234567890"},
		{"built", Limits{Built: 100}, "{{ 'x' * 100 }}", "{{ 'x' * 101 }}"},
		{"source", Limits{Source: 10}, "0123456789", "01234567890"},
	}
	for _, c := range cases {
		if _, err := render(c.ok, Options{Limits: c.l}, nil); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := render(c.bad, Options{Limits: c.l}, nil); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: got %v, want a limit", c.name, err)
		}
	}
	tpl, err := Parse("slow", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", Options{Limits: Limits{Time: time.Millisecond, Steps: 1 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := tpl.Render(nil, Env{}); !errors.Is(err, ErrLimit) || time.Since(start) > 2*time.Second {
		t.Errorf("time: got %v after %v", err, time.Since(start))
	}
}

// The stack of the deepest allowed template in the deepest allowed recursion stays far from the gigabyte at which Go
// ends a process.
func TestWorstStack(t *testing.T) {
	const deep = DefaultDepth - 10
	nested := func(open, end string) string { // a macro that calls itself from as deep as parses
		for n := deep; n > 0; n-- {
			src := "{% macro f(n) %}{{ " + strings.Repeat(open, n) + "f(n)" + strings.Repeat(end, n) + " }}{% endmacro %}{{ f(1) }}"
			if _, err := Parse("deep", src, Options{}); err == nil {
				return src
			}
		}
		return ""
	}
	for _, src := range []string{
		nested("(", ",)"), nested("[", "]"), nested("not ", ""), nested("", "|e"), nested("", "*1"), nested("n and ", ""), nested("1 if 0 else ", ""),
		"{% macro f(n) %}" + strings.Repeat("{% for i in [1] %}", deep/2) + "{{ f(n) }}" + strings.Repeat("{% endfor %}", deep/2) + "{% endmacro %}{{ f(1) }}",
		"{% macro f(n) %}" + strings.Repeat("{% set x %}", deep/2) + "{{ f(n) }}" + strings.Repeat("{% endset %}", deep/2) + "{% endmacro %}{{ f(1) }}",
	} {
		tpl, err := Parse("deep", src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan uint64)
		go func() { // a fresh stack, which keeps the size it grew to until the next collection
			if _, err := tpl.Render(nil, Env{}); !errors.Is(err, ErrLimit) {
				t.Errorf("got %v, want a limit", err)
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			done <- m.StackInuse
		}()
		if used := <-done; used > 64<<20 {
			t.Errorf("stacks take %d MiB", used>>20)
		} else {
			t.Logf("stacks: %d KiB", used>>10)
		}
	}
}
