package tokenizer

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// unmarshal decodes one JSON value and nothing after it; of duplicate names the last wins, as in the tokenizers library.
// Errors are worded for people who know the file, not this program: where, what stands there and what should.
func unmarshal(data []byte, v any) error {
	err := json.Unmarshal(data, v, jsontext.AllowDuplicateNames(true))
	if err == nil {
		return nil
	}
	var wrong *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &wrong) && wrong.GoType != nil && wrong.JSONKind != 0:
		where := strings.ReplaceAll(strings.TrimPrefix(string(wrong.JSONPointer), "/"), "/", ".")
		if where == "" {
			where = "it"
		}
		return fmt.Errorf("%s is %s where %s is expected", where, found(wrong), expected(wrong.GoType))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("not valid JSON: it ends too early, after %d bytes", len(data))
	case errors.As(err, &syntax) && syntax.Err != nil:
		return fmt.Errorf("not valid JSON: %w at byte %d", syntax.Err, syntax.ByteOffset)
	}
	return err
}

func found(e *json.SemanticError) string {
	switch e.JSONKind {
	case jsontext.KindNumber:
		if len(e.JSONValue) > 0 {
			return string(e.JSONValue)
		}
		return "a number"
	case jsontext.KindString:
		return "text"
	case jsontext.KindTrue, jsontext.KindFalse:
		return "true or false"
	case jsontext.KindBeginArray:
		return "a list"
	case jsontext.KindBeginObject:
		return "an object"
	}
	return "null"
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}
