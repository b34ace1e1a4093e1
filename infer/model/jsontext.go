package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// decodeConfig decodes a model's JSON file into v. Errors name the file's keys, and say what stands there and what should.
func decodeConfig(file string, data []byte, v any) error {
	err := json.Unmarshal(data, v)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &wrong):
		what := wrong.Field
		if what == "" {
			what = "its content"
		}
		return fmt.Errorf("read %s: %s is %s where %s is expected", file, what, jsonKind(wrong.Value), expected(wrong.Type))
	case errors.As(err, &syntax) && syntax.Offset >= int64(len(data)):
		return fmt.Errorf("read %s: it is not valid JSON: it ends too early, after %d bytes; fetch it again", file, len(data))
	case errors.As(err, &syntax):
		return fmt.Errorf("read %s: it is not valid JSON: %w (at byte %d)", file, err, syntax.Offset)
	}
	return fmt.Errorf("read %s: %w", file, err)
}

// jsonKind words the kind of a value that encoding/json names.
func jsonKind(value string) string {
	kind, number, _ := strings.Cut(value, " ")
	switch {
	case kind == "string":
		return "text"
	case kind == "number" && number != "":
		return number
	case kind == "bool":
		return "true or false"
	case kind == "array":
		return "a list"
	case kind == "object":
		return "an object"
	}
	return "a " + kind
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int, reflect.Int32, reflect.Int64:
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
