package jinja

import "strconv"

// nullText is called where a null would become the text "None". Chat templates are written for Python, where it does.
// Where names are strict it is an error: no prompt means the word, a missing value does. what names the value, or is "".
func (e *exec) nullText(what string) {
	if !e.t.opts.Strict {
		return
	}
	if what == "" {
		e.failWith(ErrNull, "a null would be written as text; test for it with {% if ... is none %} or give a default with ... or ''")
	}
	e.failWith(ErrNull, e.clip(what)+" is null; test it with {% if "+e.clip(what)+" is none %} or give a default with {{ "+e.clip(what)+" or '' }}")
}

// textFrom is toText of what an expression came to, with the expression's name in the error for a null.
func (e *exec) textFrom(x expr, v any) (string, []Span) {
	if v == nil {
		e.nullText(e.named(x))
	}
	return e.toText(v)
}

// named is how a template writes a name with attributes and items ("row.text", "row['text']"); "" for anything else.
func (e *exec) named(x expr) string {
	switch x := x.(type) {
	case *nameExpr:
		return e.t.ids[x.id]
	case *attrExpr:
		if of := e.named(x.x); of != "" {
			return of + "." + x.name
		}
	case *itemExpr:
		key, ok := x.key.(*constExpr)
		of := e.named(x.x)
		if !ok || of == "" {
			return ""
		}
		if s, _, ok := asString(key.v); ok {
			return of + "['" + s + "']"
		}
		if n, ok := key.v.(int64); ok {
			return of + "[" + strconv.FormatInt(n, 10) + "]"
		}
	}
	return ""
}
