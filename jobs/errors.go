package jobs

import (
	"context"
	"errors"
	"fmt"
)

// Kind classes the ways in which a whole command can end. Each has one exit code (see Kind.ExitCode), so that cron,
// Airflow and the like can tell what to retry.
type Kind int

// The kinds of failure.
const (
	Internal      Kind = iota // a fault of ours
	Usage                     // the command line makes no sense
	Config                    // the configuration, or the store, cannot work
	BadInput                  // input, plan or model is damaged, unsupported or does not match
	NoInput                   // input or model is missing
	Unavailable               // model source or device unavailable for now
	StorageIO                 // storage failed after retries
	Interrupted               // stopped by a signal; committed parts are kept
	TooManyErrors             // done, but too many rows failed
	RowErrors                 // done, with error rows, under --strict-exit
	NothingToDo               // everything was there already, with --skip-exit
)

// ExitCode is the process exit code of a kind.
func (k Kind) ExitCode() int {
	switch k {
	case RowErrors:
		return 3
	case TooManyErrors:
		return 4
	case Usage:
		return 64
	case Config:
		return 78
	case BadInput:
		return 65
	case NoInput:
		return 66
	case Unavailable:
		return 69
	case StorageIO:
		return 74
	case Interrupted:
		return 75
	case NothingToDo:
		return 99
	}
	return 70
}

// Error ends a command. Hint says what the user can do.
type Error struct {
	Kind Kind
	Err  error
	Hint string
	Exit int // exit code, where it is not the kind's; 0 = the kind's
}

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Err.Error()
	}
	return e.Err.Error() + "\n  " + e.Hint
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error. The format may use %w.
func Errorf(kind Kind, hint, format string, args ...any) *Error {
	return &Error{Kind: kind, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// KindOf finds the kind of any error that a command ends with. An unclassified one is Internal, save a cancelled
// context, which is an interruption.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Internal
}

// ExitCode is the exit code of any error that a command ends with.
func ExitCode(err error) int {
	var e *Error
	if errors.As(err, &e) && e.Exit != 0 {
		return e.Exit
	}
	return KindOf(err).ExitCode()
}
