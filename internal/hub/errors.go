package hub

import (
	"errors"
	"fmt"
)

// Kind says what went wrong in terms of what a caller does about it.
type Kind uint8

// Usage: the reference is not well formed. Missing: what it names does not exist. Damaged: a file is not what it should be,
// or of a kind that is not supported. Unavailable: the source cannot be reached now, or not from here; a later try may
// succeed. NotCached: it is not on this machine and the network was not to be used.
const (
	Usage Kind = iota + 1
	Missing
	Damaged
	Unavailable
	NotCached
)

// Error is a failure to get at a model. Hint says what a user can do.
type Error struct {
	Kind Kind
	Ref  string
	Hint string
	Err  error
}

func (e *Error) Error() string {
	s := e.Err.Error()
	if e.Ref != "" {
		s = "model " + e.Ref + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf gives the kind of an error of this package; 0 for another.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// failure makes an Error that does not know its reference yet; withRef adds it.
func failure(kind Kind, hint, format string, args ...any) error {
	return &Error{Kind: kind, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// withRef names the reference in an Error that has none.
func withRef(err error, ref string) error {
	var e *Error
	if err == nil || errors.As(err, &e) && e.Ref != "" {
		return err
	}
	if e == nil {
		return fmt.Errorf("model %s: %w", ref, err)
	}
	if err == error(e) {
		return &Error{Kind: e.Kind, Ref: ref, Hint: e.Hint, Err: e.Err}
	}
	return &Error{Kind: e.Kind, Ref: ref, Err: err} // its text has the hint already
}

// also adds a second failure, if there is one, to a first.
func also(err, second error) error {
	if second == nil {
		return err
	}
	return errors.Join(err, second)
}
