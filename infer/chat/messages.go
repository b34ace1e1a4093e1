package chat

import (
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
)

// knownRoles are the roles that chat templates know. As values they are literal text: they come from this list, not
// from a document, and some templates build special tokens from them ('<|' + message.role + '|>').
var knownRoles = func() map[string]*jinja.Text {
	roles := map[string]*jinja.Text{}
	for _, r := range []string{"system", "developer", "user", "assistant", "tool", "function", "ipython", "model"} {
		roles[r] = jinja.Literal(r)
	}
	return roles
}()

// textType is the type of every part that is left.
var textType = jinja.Literal("text")

// toolRoles are those whose content may be any object or list: what a tool returned, for the template to write as JSON.
var toolRoles = map[string]bool{"tool": true, "function": true, "ipython": true}

// NormalizeMessages checks a row's messages, from JSON or Parquet, and brings them to one form: a list of objects with
// a role (*jinja.Text where it is a known one, else string) and a content that is a string, a list of text parts, or
// null. It does not change v.
//
// Null fields other than the content are dropped, since columns of structs cannot leave a field out. Null content is
// for messages with tool calls only. Arguments of tool calls that are JSON text become objects, as templates expect.
// A string is read as the JSON text of a list. Errors are InvalidMessages, InvalidUTF8, or UnsupportedRequest for
// parts that are not text.
func NormalizeMessages(v any) ([]any, *row.Error) {
	if s, ok := v.(string); ok {
		decoded, err := ordered.DecodeJSON([]byte(s))
		if err != nil {
			return nil, row.Errorf(row.InvalidMessages, "messages are a text that is no JSON (%v): give a list of objects with role and content", err)
		}
		v = decoded
	}
	list, ok := v.([]any)
	if !ok {
		return nil, row.Errorf(row.InvalidMessages, "messages are %s: give a list of objects with role and content", describe(v))
	}
	if len(list) == 0 {
		return nil, row.Errorf(row.InvalidMessages, "messages are empty: give at least one")
	}
	out := make([]any, len(list))
	for i, m := range list {
		om, ok := m.(*ordered.Map)
		if !ok || om == nil {
			return nil, row.Errorf(row.InvalidMessages, "message %d is %s: give an object with role and content", i, describe(m))
		}
		n, err := normalizeMessage(i, om)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func normalizeMessage(i int, m *ordered.Map) (*ordered.Map, *row.Error) {
	role, hasRole := m.Get("role")
	name, ok := role.(string)
	if !hasRole || !ok || name == "" {
		return nil, row.Errorf(row.InvalidMessages, "message %d has no role: give a string such as user", i)
	}
	calls, _ := m.Get("tool_calls")
	function, _ := m.Get("function_call")
	out := &ordered.Map{}
	for j := range m.Len() {
		key, v := m.At(j)
		var err *row.Error
		switch key {
		case "role":
			if known := knownRoles[name]; known != nil {
				v = known
			}
		case "content":
			v, err = normalizeContent(i, name, v)
		case "tool_calls":
			v, err = normalizeCalls(i, v)
		}
		if err != nil {
			return nil, err
		}
		if v == nil && key != "content" {
			continue
		}
		out.Set(key, v)
	}
	if content, _ := m.Get("content"); content == nil && calls == nil && function == nil {
		return nil, row.Errorf(row.InvalidMessages, "message %d (%s) has no content: only messages with tool calls may go without", i, name)
	}
	return out, nil
}

func normalizeContent(i int, role string, v any) (any, *row.Error) {
	switch v := v.(type) {
	case nil, string, *jinja.Text, jinja.Text:
		return v, nil
	case []byte: // Parquet columns without the annotation for text
		if !utf8.Valid(v) {
			return nil, row.Errorf(row.InvalidUTF8, "content of message %d (%s) is not valid UTF-8", i, role)
		}
		return string(v), nil
	case []any:
		parts := make([]any, len(v))
		for j, p := range v {
			part, err := normalizePart(i, j, p)
			if err != nil && toolRoles[role] {
				return v, nil
			}
			if err != nil {
				return nil, err
			}
			parts[j] = part
		}
		return parts, nil
	case *ordered.Map:
		if toolRoles[role] {
			return v, nil
		}
	}
	return nil, row.Errorf(row.InvalidMessages, "content of message %d (%s) is %s: give a string or a list of text parts", i, role, describe(v))
}

func normalizePart(i, j int, p any) (any, *row.Error) {
	switch p := p.(type) {
	case string, *jinja.Text, jinja.Text:
		return ordered.MapOf("type", textType, "text", p), nil
	case *ordered.Map:
		kind, _ := p.Get("type")
		text, _ := p.Get("text")
		if kind != nil && kind != "text" {
			return nil, row.Errorf(row.UnsupportedRequest, "part %d of message %d has the type %v: only text parts are supported", j, i, kind)
		}
		switch text.(type) {
		case string, *jinja.Text, jinja.Text:
		default:
			return nil, row.Errorf(row.InvalidMessages, "part %d of message %d has no text", j, i)
		}
		out := ordered.MapOf("type", textType)
		for k := range p.Len() {
			if key, v := p.At(k); v != nil && key != "type" {
				out.Set(key, v)
			}
		}
		return out, nil
	}
	return nil, row.Errorf(row.InvalidMessages, "part %d of message %d is %s: give an object with type and text", j, i, describe(p))
}

// normalizeCalls checks a list of tool calls and parses arguments that are JSON text.
func normalizeCalls(i int, v any) (any, *row.Error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, row.Errorf(row.InvalidMessages, "tool_calls of message %d are %s: give a list", i, describe(v))
	}
	out := make([]any, len(list))
	for j, c := range list {
		call, ok := c.(*ordered.Map)
		if !ok || call == nil {
			return nil, row.Errorf(row.InvalidMessages, "tool call %d of message %d is %s: give an object", j, i, describe(c))
		}
		out[j] = parsedArguments(call)
	}
	return out, nil
}

// parsedArguments is a call with its arguments as an object, also inside its "function".
func parsedArguments(call *ordered.Map) *ordered.Map {
	out := &ordered.Map{}
	for i := range call.Len() {
		key, v := call.At(i)
		switch f := v.(type) {
		case nil:
			continue
		case *ordered.Map:
			if key == "function" && f != nil {
				v = parsedArguments(f)
			}
		case string:
			if key == "arguments" {
				if d, err := ordered.DecodeJSON([]byte(f)); err == nil {
					if object, ok := d.(*ordered.Map); ok {
						v = object
					}
				}
			}
		}
		out.Set(key, v)
	}
	return out
}

// describe names a value's type as a user would.
func describe(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string, *jinja.Text, jinja.Text:
		return "a string"
	case []any:
		return "a list"
	case *ordered.Map:
		return "an object"
	case []byte:
		return "binary"
	}
	return "a number"
}
