package row

import "fmt"

// Code names a way in which one row can fail. The set is closed: orchestrators and retries act on it.
type Code string

// The row error codes. Those that Retryable names may succeed when the row is run again as it is.
const (
	InvalidJSON        Code = "invalid_json"
	InvalidUTF8        Code = "invalid_utf8"
	InvalidRowType     Code = "invalid_row_type"
	LineTooLong        Code = "line_too_long"
	MissingColumn      Code = "missing_column"
	NullPrompt         Code = "null_prompt"
	EmptyPrompt        Code = "empty_prompt"
	InvalidMessages    Code = "invalid_messages"
	TemplateError      Code = "template_error"
	InvalidParams      Code = "invalid_params"
	InvalidConstraint  Code = "invalid_constraint"
	UnsupportedRequest Code = "unsupported_request"
	ContextExceeded    Code = "context_length_exceeded"
	KVBudgetExceeded   Code = "kv_budget_exceeded"
	NonFiniteLogits    Code = "non_finite_logits"
	IncompleteOutput   Code = "incomplete_structured_output"
	DuplicateID        Code = "duplicate_id"
	SourceTruncated    Code = "source_truncated"
	Timeout            Code = "timeout"
	Internal           Code = "internal"
)

// Retryable tells whether a row that failed with this code may succeed when it is run again unchanged. This is the
// one place that decides it.
func (c Code) Retryable() bool {
	switch c {
	case KVBudgetExceeded, Timeout, Internal:
		return true
	}
	return false
}

// Error is the failure of one row. Message names file, line or row, byte offset where there is one, and what to do.
type Error struct {
	Code    Code
	Message string
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes a row error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
