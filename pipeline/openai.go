package pipeline

import (
	"math"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/chat"
	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// request is what a row of the OpenAI batch shape asks for, over the job's own settings.
type request struct {
	messages []any  // of a chat request, else nil
	prompt   string // of a completion request
	params   infer.Params
	samples  int32
}

// maxSamples bounds n of a request, as OpenAI does: each costs a whole completion.
const maxSamples = 128

// ignoredKeys of a request's body do not decide its completion.
var ignoredKeys = map[string]bool{"model": true, "user": true, "metadata": true, "store": true, "service_tier": true, "stream": true, "safety_identifier": true}

// openAI reads a record of the OpenAI batch shape. A key that is not served is an error, never silence.
func (p *Preparer) openAI(rec *row.Record) (*request, *row.Error) {
	in, rerr := readers.OpenAI(rec)
	if rerr != nil {
		return nil, rerr
	}
	r := &request{params: p.Params, samples: p.Samples}
	bad := func(key string, v any) *row.Error {
		return p.at(rec, row.InvalidParams, "body.%s cannot be %s", key, kindOf(v))
	}
	wantLogprobs, top := false, 0
	for i := range in.Body.Len() {
		key, v := in.Body.At(i)
		if v == nil || ignoredKeys[key] {
			continue
		}
		ok := true
		switch key {
		case "messages":
			if !in.Chat() {
				return nil, p.at(rec, row.UnsupportedRequest, "body.messages belongs to /v1/chat/completions")
			}
			if r.messages, rerr = chat.NormalizeMessages(v); rerr != nil {
				return nil, p.at(rec, rerr.Code, "body.messages: %s", rerr.Message)
			}
		case "prompt":
			if in.Chat() {
				return nil, p.at(rec, row.UnsupportedRequest, "body.prompt belongs to /v1/completions")
			}
			if r.prompt, ok = v.(string); !ok {
				return nil, p.at(rec, row.UnsupportedRequest, "body.prompt must be text; write a request for each prompt")
			}
		case "max_tokens", "max_completion_tokens":
			ok = intParam(v, &r.params.MaxTokens)
			if ok && r.params.MaxTokens < 1 {
				return nil, p.at(rec, row.InvalidParams, "body.%s must be at least 1, not %d", key, r.params.MaxTokens)
			}
		case "temperature":
			ok = floatParam(v, &r.params.Temperature)
		case "top_p":
			ok = floatParam(v, &r.params.TopP)
		case "top_k":
			ok = intParam(v, &r.params.TopK)
		case "min_p":
			ok = floatParam(v, &r.params.MinP)
		case "repetition_penalty":
			ok = floatParam(v, &r.params.RepetitionPenalty)
		case "presence_penalty":
			ok = floatParam(v, &r.params.PresencePenalty)
		case "frequency_penalty":
			ok = floatParam(v, &r.params.FrequencyPenalty)
		case "seed":
			_, ok = v.(int64) // Preparer.seed takes it, also of a request that fails
		case "n":
			n := 0
			if ok = intParam(v, &n); ok && (n < 1 || n > maxSamples) {
				return nil, p.at(rec, row.InvalidParams, "body.n is %d, outside 1 to %d", n, maxSamples)
			}
			r.samples = int32(n)
		case "stop":
			r.params.Stop, ok = stops(v)
		case "logprobs":
			if b, is := v.(bool); is && in.Chat() {
				wantLogprobs = b
			} else {
				ok = !in.Chat() && intParam(v, &top)
				wantLogprobs = ok
			}
		case "top_logprobs":
			ok = intParam(v, &top)
		case "response_format":
			m, _ := v.(*ordered.Map)
			if kind, _ := m.Get("type"); kind != "text" {
				return nil, p.at(rec, row.UnsupportedRequest, "body.response_format %v is not served", kind)
			}
		default:
			return nil, p.at(rec, row.UnsupportedRequest, "body.%s is not served; leave it out", key)
		}
		if !ok {
			return nil, bad(key, v)
		}
	}
	if in.Chat() && r.messages == nil {
		return nil, p.at(rec, row.InvalidMessages, "body.messages is missing")
	}
	if _, given := in.Body.Get("prompt"); !in.Chat() && !given {
		return nil, p.at(rec, row.NullPrompt, "body.prompt is missing")
	}
	if wantLogprobs {
		r.params.Logprobs = top
	}
	if int(r.samples) > int(p.Samples) {
		return nil, p.at(rec, row.UnsupportedRequest, "body.n is %d; give the job --samples %d", r.samples, r.samples)
	}
	return r, nil
}

func intParam(v any, to *int) bool {
	n, ok := v.(int64)
	if ok = ok && n >= math.MinInt32 && n <= math.MaxInt32; ok {
		*to = int(n)
	}
	return ok
}

func floatParam(v any, to *float64) bool {
	switch n := v.(type) {
	case float64:
		*to = n
	case int64:
		*to = float64(n)
	default:
		return false
	}
	return true
}

func stops(v any) ([]string, bool) {
	switch v := v.(type) {
	case string:
		return []string{v}, true
	case []any:
		list := make([]string, len(v))
		for i, x := range v {
			s, ok := x.(string)
			if !ok {
				return nil, false
			}
			list[i] = s
		}
		return list, true
	}
	return nil, false
}

// openAIText renders a request: messages through the chat template, a completion's prompt as it is.
func (p *Preparer) openAIText(rec *row.Record, r *request) (text jinja.Text, chatted bool, rerr *row.Error) {
	if r.messages == nil {
		return jinja.Text{S: r.prompt}, false, nil
	}
	if p.Chat == nil || p.Raw {
		return text, false, p.at(rec, row.InvalidMessages, "the request holds chat messages, but %s; give --chat-template FILE", p.whyNoChat())
	}
	return p.chat(rec, r.messages)
}
