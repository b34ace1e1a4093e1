package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// copy reads the results of a part, record by record.
func (c *copier) copy(in readers.Reader) error {
	for n := int64(0); ; n++ {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			return c.flush()
		}
		if err != nil {
			return err
		}
		res, err := c.result(rec)
		if err != nil {
			return Errorf(BadInput, "", "record %d: %w", n, err)
		}
		if len(c.record) > 0 && (c.record[0].Key.Source != res.Key.Source || c.record[0].Key.Row != res.Key.Row) {
			if err := c.flush(); err != nil {
				return err
			}
		}
		c.record = append(c.record, res)
	}
}

// result makes a record of a part into what the engine had said.
func (c *copier) result(rec *row.Record) (*row.Result, error) {
	if rec.Err != nil {
		return nil, rec.Err
	}
	f := fieldReader{fields: rec.Fields, prefix: c.prefix}
	res := &row.Result{
		Key:      row.UnitKey{Source: f.text("source_file"), Row: f.whole("row_index"), Sample: int32(f.whole("sample_index"))},
		CustomID: f.maybe("custom_id"), Status: row.Status(f.text("status")),
		Completion: f.maybe("completion"), StopReason: f.maybe("stop_reason"),
		PromptTokens: int32(f.whole("prompt_tokens")), CachedTokens: int32(f.whole("cached_tokens")), CompletionTokens: int32(f.whole("completion_tokens")),
		Attempts: int32(f.whole("attempts")), Seed: f.whole("seed"),
	}
	if reason := f.maybe("finish_reason"); reason != nil {
		res.FinishReason = row.FinishReason(*reason)
	}
	if code := f.maybe("error_code"); code != nil {
		res.Err = &row.Error{Code: row.Code(*code)}
		if m := f.maybe("error_message"); m != nil {
			res.Err.Message = *m
		}
	}
	if f.has("dedup_of") {
		n := f.whole("dedup_of")
		res.DedupOf = &n
	}
	if f.has("queue_time_ms") {
		res.Times = &row.Times{Queue: f.time("queue_time_ms"), Prefill: f.time("prefill_time_ms"), Decode: f.time("decode_time_ms")}
	}
	if f.has("logprobs") {
		res.Logprobs = f.logprobs("logprobs")
	}
	if f.has("token_ids") {
		res.TokenIDs = f.ids("token_ids")
	}
	if f.err == nil && (res.Status == row.Failed) != (res.Err != nil) {
		f.fail("status", string(res.Status))
	}
	return res, f.err
}

// fieldReader reads columns of ours from a record's fields. The first that has another type is its error.
type fieldReader struct {
	fields map[string]any
	prefix string
	err    error
}

func (f *fieldReader) get(name string) any { return f.fields[f.prefix+name] }

// has tells whether a value is there, and is not null.
func (f *fieldReader) has(name string) bool { return f.get(name) != nil }

func (f *fieldReader) fail(name string, v any) {
	if f.err == nil {
		f.err = fmt.Errorf("column %q holds %.60q, which is not a result", f.prefix+name, fmt.Sprint(v))
	}
}

func (f *fieldReader) text(name string) string {
	s, ok := f.get(name).(string)
	if !ok {
		f.fail(name, f.get(name))
	}
	return s
}

func (f *fieldReader) maybe(name string) *string {
	if !f.has(name) {
		return nil
	}
	s := f.text(name)
	return &s
}

func (f *fieldReader) whole(name string) int64 {
	n, ok := f.get(name).(int64)
	if !ok {
		f.fail(name, f.get(name))
	}
	return n
}

// time is a duration that was written in milliseconds; JSON has no digits behind the point of a whole one.
func (f *fieldReader) time(name string) time.Duration {
	switch v := f.get(name).(type) {
	case float64:
		return time.Duration(math.Round(v * float64(time.Millisecond)))
	case int64:
		return time.Duration(v) * time.Millisecond
	default:
		f.fail(name, v)
		return 0
	}
}

func (f *fieldReader) ids(name string) []int32 {
	list, ok := f.get(name).([]any)
	out := make([]int32, 0, len(list))
	for _, v := range list {
		n, is := v.(int64)
		ok = ok && is
		out = append(out, int32(n))
	}
	if !ok {
		f.fail(name, f.get(name))
	}
	return out
}

// logprobText is an entry of the column logprobs.
type logprobText struct {
	ID      int32         `json:"id"`
	Token   string        `json:"token"`
	Bytes   []uint16      `json:"bytes"` // numbers: a list of bytes would be base64
	Logprob *float64      `json:"logprob"`
	Top     []logprobText `json:"top_logprobs"`
}

func (f *fieldReader) logprobs(name string) []row.TokenLogprob {
	var data []byte
	var err error
	switch v := f.get(name).(type) {
	case string:
		data = []byte(v)
	case []byte:
		data = v
	default:
		data, err = json.Marshal(plain(v))
	}
	var list []logprobText
	if err == nil {
		err = json.Unmarshal(data, &list)
	}
	if err != nil {
		f.fail(name, f.get(name))
	}
	return logprobsOf(list)
}

func logprobsOf(list []logprobText) []row.TokenLogprob {
	out := make([]row.TokenLogprob, 0, len(list))
	for _, x := range list {
		l := row.TokenLogprob{ID: x.ID, Token: x.Token, Logprob: math.Inf(-1), Bytes: make([]byte, 0, len(x.Bytes))}
		for _, b := range x.Bytes {
			l.Bytes = append(l.Bytes, byte(b))
		}
		if x.Logprob != nil {
			l.Logprob = *x.Logprob
		}
		if len(x.Top) > 0 {
			l.Top = logprobsOf(x.Top)
		}
		out = append(out, l)
	}
	return out
}
