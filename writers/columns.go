package writers

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/row"
)

// Type is the type of a column of ours.
type Type uint8

// The types, with their Parquet form: UTF8 byte array, INT 64, INT 32, double, JSON byte array, list of INT 32.
const (
	String Type = iota
	Int64
	Int32
	Double
	JSON
	Int32List
)

func (t Type) String() string {
	return [...]string{"string", "int64", "int32", "double", "json", "list<int32>"}[t]
}

// Column describes one column of ours.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
	Result   bool   // decides equality between runs; the others are measurements
	OnAsking bool   // written only where --logprobs, --return-token-ids or --output-columns asks for it
	Doc      string // one sentence, for the documentation

	value func(*unit) cell
	dict  bool // few distinct values: dictionary-encoded in Parquet
}

// Columns is the table of our columns, in the order in which they are written.
func Columns() []Column { return append([]Column(nil), columnTable[:]...) }

// extraName is the column that takes what a JSONL source's plan did not foresee.
const extraName = "_extra"

// unit is what a row of the output is made from.
type unit struct {
	res  *row.Result
	from Provenance
	json []byte // scratch for a json cell
}

// cell is one value of ours. Which field holds it follows from the column's type; a JSON cell's text is valid until the
// next one of the same unit.
type cell struct {
	null bool
	s    string
	n    int64
	f    float64
	json []byte
	ids  []int32
}

var null = cell{null: true}

var columnTable = [...]Column{
	{Name: "source_file", Type: String, Result: true, dict: true, Doc: "URL of the file that the row was read from.",
		value: func(u *unit) cell { return text(u.res.Key.Source) }},
	{Name: "row_index", Type: Int64, Result: true, Doc: "The row's place among the records of its file, from 0.",
		value: func(u *unit) cell { return cell{n: u.res.Key.Row} }},
	{Name: "custom_id", Type: String, Nullable: true, Result: true, Doc: "The user's own id, where there is one.",
		value: func(u *unit) cell { return textOrNull(u.res.CustomID) }},
	{Name: "sample_index", Type: Int32, Result: true, Doc: "Which of the row's samples this is, from 0.",
		value: func(u *unit) cell { return cell{n: int64(u.res.Key.Sample)} }},
	{Name: "status", Type: String, Result: true, dict: true, Doc: "ok, error or skipped.",
		value: func(u *unit) cell { return text(string(u.res.Status)) }},
	{Name: "completion", Type: String, Nullable: true, Result: true, Doc: "The generated text; also the text before an error, where there was some.",
		value: func(u *unit) cell { return textOrNull(u.res.Completion) }},
	{Name: "finish_reason", Type: String, Nullable: true, Result: true, dict: true, Doc: "stop, length (the text is cut) or error.",
		value: func(u *unit) cell {
			if u.res.FinishReason == "" {
				return null
			}
			return text(string(u.res.FinishReason))
		}},
	{Name: "stop_reason", Type: String, Nullable: true, Result: true, dict: true, Doc: "The stop string or end token that ended the text.",
		value: func(u *unit) cell { return textOrNull(u.res.StopReason) }},
	{Name: "error_code", Type: String, Nullable: true, Result: true, dict: true, Doc: "Why the row failed, as a code.",
		value: func(u *unit) cell {
			if u.res.Err == nil {
				return null
			}
			return text(string(u.res.Err.Code))
		}},
	{Name: "error_message", Type: String, Nullable: true, Doc: "Why the row failed, in words.",
		value: func(u *unit) cell {
			if u.res.Err == nil {
				return null
			}
			return text(u.res.Err.Message)
		}},
	{Name: "prompt_tokens", Type: Int32, Result: true, Doc: "Tokens of the prompt.",
		value: func(u *unit) cell { return cell{n: int64(u.res.PromptTokens)} }},
	{Name: "cached_tokens", Type: Int32, Doc: "Prompt tokens that were served from shared KV pages.",
		value: func(u *unit) cell { return cell{n: int64(u.res.CachedTokens)} }},
	{Name: "completion_tokens", Type: Int32, Result: true, Doc: "Generated tokens.",
		value: func(u *unit) cell { return cell{n: int64(u.res.CompletionTokens)} }},
	{Name: "total_tokens", Type: Int32, Result: true, Doc: "prompt_tokens + completion_tokens.",
		value: func(u *unit) cell { return cell{n: int64(u.res.PromptTokens) + int64(u.res.CompletionTokens)} }},
	{Name: "queue_time_ms", Type: Double, Nullable: true, Doc: "From entering the engine's queue to being scheduled first.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.Queue, true })
		}},
	{Name: "prefill_time_ms", Type: Double, Nullable: true, Doc: "From being scheduled first to the first token.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.Prefill, true })
		}},
	{Name: "ttft_ms", Type: Double, Nullable: true, Doc: "Time to the first token: queue + prefill.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.TTFT(), true })
		}},
	{Name: "decode_time_ms", Type: Double, Nullable: true, Doc: "From the first token to the last.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.Decode, true })
		}},
	{Name: "tpot_ms", Type: Double, Nullable: true, Doc: "Time per output token: decode / (completion_tokens - 1); null below two tokens.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.TPOT(u.res.CompletionTokens) })
		}},
	{Name: "e2e_latency_ms", Type: Double, Nullable: true, Doc: "queue + prefill + decode.",
		value: func(u *unit) cell {
			return milliseconds(u, func(t *row.Times) (time.Duration, bool) { return t.E2E(), true })
		}},
	{Name: "attempts", Type: Int32, Doc: "How often the engine ran the row; 0 for a copy of an equal one.",
		value: func(u *unit) cell { return cell{n: int64(u.res.Attempts)} }},
	{Name: "dedup_of", Type: Int64, Nullable: true, Doc: "The row_index, in the same file, of the row that this one copies.",
		value: func(u *unit) cell {
			if u.res.DedupOf == nil {
				return null
			}
			return cell{n: *u.res.DedupOf}
		}},
	{Name: "seed", Type: Int64, Result: true, Doc: "The seed that the row was sampled with.",
		value: func(u *unit) cell { return cell{n: u.res.Seed} }},
	{Name: "logprobs", Type: JSON, Nullable: true, Result: true, OnAsking: true, Doc: "OpenAI's logprobs.content list, with the id beside each token.",
		value: func(u *unit) cell {
			if u.res.Logprobs == nil {
				return null
			}
			u.json = appendLogprobs(u.json[:0], u.res.Logprobs, true)
			return cell{json: u.json}
		}},
	{Name: "token_ids", Type: Int32List, Nullable: true, Result: true, OnAsking: true, Doc: "The completion's token ids, the end token excluded.",
		value: func(u *unit) cell {
			if u.res.TokenIDs == nil {
				return null
			}
			return cell{ids: u.res.TokenIDs}
		}},
	{Name: "model", Type: String, Result: true, dict: true, Doc: "The model's name.",
		value: func(u *unit) cell { return text(u.from.Model) }},
	{Name: "model_digest", Type: String, Result: true, dict: true, Doc: "SHA-256 of the model's files.",
		value: func(u *unit) cell { return text(u.from.ModelDigest) }},
	{Name: "run_id", Type: String, dict: true, Doc: "The run that wrote the row.",
		value: func(u *unit) cell { return text(u.from.RunID) }},
}

// text is a string cell. Parquet strings and JSON are UTF-8; an error message may quote bytes that are not.
func text(s string) cell {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	return cell{s: s}
}

func textOrNull(s *string) cell {
	if s == nil {
		return null
	}
	return text(*s)
}

func milliseconds(u *unit, pick func(*row.Times) (time.Duration, bool)) cell {
	if u.res.Times == nil {
		return null
	}
	d, ok := pick(u.res.Times)
	if !ok {
		return null
	}
	return cell{f: float64(d) / float64(time.Millisecond)}
}
