package jinja

import (
	"errors"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/ordered"
)

func TestStrictNull(t *testing.T) {
	vars := map[string]any{"text": nil, "a": "x", "d": ordered.MapOf("k", nil), "list": []any{"x", nil}, "nested": []any{nil}}
	for src, want := range map[string]string{ // templates and what their error says
		"{{ text }}":                             "text is null; test it with {% if text is none %} or give a default with {{ text or '' }}",
		"{{ d.k }}":                              "d.k is null",
		"{{ d['k'] }}":                           "d['k'] is null",
		"{{ list[1] }}":                          "list[1] is null",
		"{{ none }}":                             "a null would be written as text",
		"{{ d.get('zz') }}":                      "a null would be written",
		"{{ 'a' ~ text }}":                       "text is null",
		"{{ text ~ 'a' }}":                       "text is null",
		"{% set s = a ~ text %}":                 "text is null",
		"{{ 'a' + text }}":                       "a null would be written",
		"{{ text + 'a' }}":                       "a null would be written",
		"{{ list | join }}":                      "item 1 of what is joined is null",
		"{{ list | join(',') }}":                 "item 1 of what is joined is null",
		"{{ ','.join(list) }}":                   "item 1 of what is joined is null",
		"{{ [a] | join(text) }}":                 "a null would be written",
		"{{ text | trim }}":                      "text is null",
		"{{ d.k | upper }}":                      "d.k is null",
		"{{ text | string }}":                    "text is null",
		"{{ text | truncate(9) }}":               "must be a string, not null",
		"{{ text | default('') }}":               "a null would be written",
		"{{ list | map('upper') | list }}":       "a null would be written",
		"{{ '%s' % text }}":                      "a null would be written",
		"{{ '{}'.format(text) }}":                "a null would be written",
		"{{ text if a else 1 }}":                 "text is null",
		"{{ a and text }}":                       "a null would be written",
		"{% for x in list %}{{ x }}{% endfor %}": "x is null",
		"{% macro m(p) %}{{ p }}{% endmacro %}{{ m(text) }}": "p is null",
		"{% set s %}{{ text }}{% endset %}":                  "text is null",
	} {
		got, err := render(src, Options{Strict: true}, vars)
		if !errors.Is(err, ErrNull) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v, want ErrNull and %q", src, got, err, want)
		}
	}
	var e *Error
	if _, err := render("a\n b {{ text }}", Options{Strict: true}, vars); !errors.As(err, &e) || e.Line != 2 || e.Column != 4 || errors.Is(err, ErrUndefined) {
		t.Errorf("the place of a null: %v", err)
	}
	for src, want := range map[string]string{
		`{{ text or "" }}|`:                          "|",
		`{{ text|default("", true) }}|`:              "|",
		`{{ text|default("d", true)|upper }}`:        "D",
		"{% if text is none %}no{% endif %}":         "no",
		"{{ text is none }}{{ text == none }}":       "TrueTrue",
		"{% if text %}a{% else %}b{% endif %}":       "b",
		"{{ text | tojson }}":                        "null",
		"{{ list | reject('none') | join(',') }}":    "x",
		"{{ nested }}{{ d }}":                        "[None]{'k': None}",
		"{% set s = text %}{{ s is none }}":          "True",
		"{{ 'none' if text is none else text }}":     "none",
		"{{ a.split(none)[0] }}{{ a | trim(none) }}": "xx",
	} {
		if got, err := render(src, Options{Strict: true}, vars); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", src, got, err, want)
		}
	}
	for src, want := range map[string]string{ // a chat template is Python's
		"{{ text }}": "None", "{{ 'a' ~ text }}": "aNone", "{{ list | join(',') }}": "x,None", "{{ text | upper }}": "NONE", "{{ d.k }}": "None",
	} {
		if got, err := render(src, Options{}, vars); err != nil || got != want {
			t.Errorf("not strict: %s: got %q, %v, want %q", src, got, err, want)
		}
	}
}
