package readers

import (
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
)

// OpenAIColumns are the keys of OpenAI's batch request line; ask for them to use OpenAI.
var OpenAIColumns = []string{"custom_id", "method", "url", "body"}

// OpenAIRequest is one line of OpenAI's batch input (platform.openai.com/docs/guides/batch).
type OpenAIRequest struct {
	CustomID string
	URL      string
	Body     *ordered.Map // model, messages or prompt, and parameters
}

// Chat tells whether the body holds messages rather than a prompt.
func (r *OpenAIRequest) Chat() bool { return r.URL == chatURL }

const (
	chatURL       = "/v1/chat/completions"
	completionURL = "/v1/completions"
)

// IsOpenAI tells whether a record has the shape of a batch request: method, url and body.
func IsOpenAI(rec *row.Record) bool {
	for _, k := range OpenAIColumns[1:] {
		if _, ok := rec.Fields[k]; !ok {
			return false
		}
	}
	_, ok := rec.Fields["url"].(string)
	return ok
}

// OpenAI reads a record of that shape. What we do not serve is an error, never silence.
func OpenAI(rec *row.Record) (*OpenAIRequest, *row.Error) {
	for _, k := range OpenAIColumns {
		if _, ok := rec.Fields[k]; !ok {
			return nil, row.Errorf(row.MissingColumn, "%s row %d: the batch request has no %q", rec.Source, rec.Row, k)
		}
	}
	fail := func(code row.Code, format string, args ...any) (*OpenAIRequest, *row.Error) {
		e := row.Errorf(code, format, args...)
		return nil, row.Errorf(code, "%s row %d: %s", rec.Source, rec.Row, e.Message)
	}
	id, ok := rec.Fields["custom_id"].(string)
	if !ok {
		return fail(row.InvalidParams, "custom_id must be a string")
	}
	if m, ok := rec.Fields["method"].(string); !ok || m != "POST" {
		return fail(row.UnsupportedRequest, "method %v is not supported, only POST", rec.Fields["method"])
	}
	url, _ := rec.Fields["url"].(string)
	if url != chatURL && url != completionURL {
		return fail(row.UnsupportedRequest, "url %q is not supported (known: %s, %s)", url, chatURL, completionURL)
	}
	body, ok := rec.Fields["body"].(*ordered.Map)
	if !ok {
		return fail(row.InvalidRowType, "body must be a JSON object")
	}
	if s, ok := body.Get("stream"); ok && s != false && s != nil {
		return fail(row.UnsupportedRequest, "stream is not supported in a batch")
	}
	return &OpenAIRequest{CustomID: id, URL: url, Body: body}, nil
}
