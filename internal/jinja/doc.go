// Package jinja renders Jinja templates, chat templates above all, with Python's semantics and under hard limits.
//
// A template comes with a model or from a user and is code: it may loop, recurse or grow without end, and it is fed
// with rows nobody has read. So everything is bounded: steps, nesting (of the source, of calls and of values), bytes
// built, output, time and source size. A breach is an ordinary *Error with a line and a column; nothing a template or
// its variables contain can end the process.
//
// Strings remember where they came from. A Text carries the byte ranges that stem from the template itself; all else
// is data. The ranges survive output, concatenation, slicing, stripping, splitting, joining and replacing, so that a
// tokenizer can recognise a special token that the template wrote and ignore the same characters in a document.
//
//	t, err := jinja.Parse("chat", "<s>{{ text | trim }}", jinja.Options{})
//	out, err := t.Render(map[string]any{"text": " <s> "}, jinja.Env{})
//	// out.S == "<s><s>", out.Literal == []jinja.Span{{0, 3}}
//
// Variables are values of package ordered (nil, bool, int64, *big.Int, float64, string, []any, *ordered.Map) and Text
// or *Text for strings with a provenance of their own. A template can change none of them: lists and dicts are
// immutable, as in the sandbox that the usual chat templates are written for; only namespace objects have state.
//
// What differs from Jinja2: no files (include, import, extends, block), no automatic escaping and hence no Markup
// type, no random, urlize, pprint and xmlattr filters. Filters that are generators in Python (map, select, batch, ...)
// can be read once here too, but work when they are called, so that an error in an item nobody reads shows as well.
package jinja
