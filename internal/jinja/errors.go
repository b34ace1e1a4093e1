package jinja

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrLimit is wrapped by the errors of templates that ran into one of their Limits.
var ErrLimit = errors.New("template limit reached")

// ErrUndefined is wrapped by errors about undefined names and attributes.
var ErrUndefined = errors.New("undefined value")

// ErrNull is wrapped by the errors of strict templates that would write a null as text.
var ErrNull = errors.New("null value")

// Error is what Parse and Render return: what is wrong, and where in the template's source.
type Error struct {
	Name   string // the template's name as given to Parse
	Line   int    // 1-based
	Column int    // 1-based, in characters
	Msg    string
	Err    error // *Raised, ErrLimit, ErrUndefined, ErrNull or nil
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Msg) }

// Unwrap gives the cause, for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// Raised is the cause of an Error where the template itself called raise_exception.
type Raised struct{ Text string }

func (r *Raised) Error() string { return r.Text }

// newError places an error at a byte offset of the source.
func newError(name, src string, at pos, msg string, cause error) *Error {
	off := min(int(at), len(src))
	before := src[:off]
	line := strings.LastIndexByte(before, '\n') + 1
	return &Error{
		Name: name, Msg: msg, Err: cause,
		Line:   1 + strings.Count(before, "\n"),
		Column: 1 + utf8.RuneCountInString(before[line:]),
	}
}

// pos is a byte offset into the template's source.
type pos int32
