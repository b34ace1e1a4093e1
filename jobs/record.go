package jobs

import (
	"encoding/json"
	"math"
	"time"

	"github.com/batchmill/batchmill/internal/row"
)

// resultRecord is the stored form of a result: one JSON object. Durations are nanoseconds; a logprob of minus infinity
// is null.
type resultRecord struct {
	Source   string           `json:"source"`
	Row      int64            `json:"row"`
	Sample   int32            `json:"sample,omitempty"`
	Units    int32            `json:"units,omitempty"` // results that the record has in all, where more than one
	CustomID *string          `json:"custom_id,omitempty"`
	Status   row.Status       `json:"status"`
	Code     row.Code         `json:"code,omitempty"`
	Message  string           `json:"message,omitempty"`
	Text     []byte           `json:"text,omitempty"` // bytes: JSON text would not keep every string
	HasText  bool             `json:"has_text,omitempty"`
	Finish   row.FinishReason `json:"finish,omitempty"`
	Stop     []byte           `json:"stop,omitempty"`
	HasStop  bool             `json:"has_stop,omitempty"`
	Tokens   [3]int32         `json:"tokens"` // prompt, cached, completion
	Times    *[3]int64        `json:"times,omitempty"`
	Attempts int32            `json:"attempts"`
	DedupOf  *int64           `json:"dedup_of,omitempty"`
	Seed     int64            `json:"seed"`
	Logprobs []logprobRecord  `json:"logprobs,omitempty"`
	HasLog   bool             `json:"has_log,omitempty"`
	TokenIDs []int32          `json:"ids,omitempty"`
	HasIDs   bool             `json:"has_ids,omitempty"`
}

type logprobRecord struct {
	ID      int32           `json:"i"`
	Bytes   []byte          `json:"b"`
	Token   []byte          `json:"t"`
	Logprob *float64        `json:"l"`
	Top     []logprobRecord `json:"top,omitempty"`
}

// encodeResult gives the stored form of a result whose record has a number of them in all. It holds no line feed.
func encodeResult(r *row.Result, units int) ([]byte, error) {
	rec := resultRecord{
		Source: r.Key.Source, Row: r.Key.Row, Sample: r.Key.Sample,
		CustomID: r.CustomID, Status: r.Status, Finish: r.FinishReason,
		Tokens:   [3]int32{r.PromptTokens, r.CachedTokens, r.CompletionTokens},
		Attempts: r.Attempts, DedupOf: r.DedupOf, Seed: r.Seed,
		Logprobs: packLogprobs(r.Logprobs), HasLog: r.Logprobs != nil,
		TokenIDs: r.TokenIDs, HasIDs: r.TokenIDs != nil,
	}
	if units > 1 {
		rec.Units = int32(units)
	}
	if r.Err != nil {
		rec.Code, rec.Message = r.Err.Code, r.Err.Message
	}
	if r.Completion != nil {
		rec.Text, rec.HasText = []byte(*r.Completion), true
	}
	if r.StopReason != nil {
		rec.Stop, rec.HasStop = []byte(*r.StopReason), true
	}
	if t := r.Times; t != nil {
		rec.Times = &[3]int64{int64(t.Queue), int64(t.Prefill), int64(t.Decode)}
	}
	return json.Marshal(&rec)
}

func decodeResult(data []byte) (r *row.Result, units int, err error) {
	var rec resultRecord
	if err := json.Unmarshal(data, &rec); err != nil {
		return nil, 0, err
	}
	r = &row.Result{
		Key:      row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: rec.Sample},
		CustomID: rec.CustomID, Status: rec.Status, FinishReason: rec.Finish,
		PromptTokens: rec.Tokens[0], CachedTokens: rec.Tokens[1], CompletionTokens: rec.Tokens[2],
		Attempts: rec.Attempts, DedupOf: rec.DedupOf, Seed: rec.Seed,
		Logprobs: unpackLogprobs(rec.Logprobs, rec.HasLog), TokenIDs: rec.TokenIDs,
	}
	if rec.HasIDs && r.TokenIDs == nil {
		r.TokenIDs = []int32{}
	}
	if rec.Code != "" {
		r.Err = &row.Error{Code: rec.Code, Message: rec.Message}
	}
	if rec.HasText {
		s := string(rec.Text)
		r.Completion = &s
	}
	if rec.HasStop {
		s := string(rec.Stop)
		r.StopReason = &s
	}
	if t := rec.Times; t != nil {
		r.Times = &row.Times{Queue: time.Duration(t[0]), Prefill: time.Duration(t[1]), Decode: time.Duration(t[2])}
	}
	return r, max(1, int(rec.Units)), nil
}

// flagsOf says how a result counts when it is met again.
func flagsOf(status row.Status, code row.Code) uint32 {
	switch {
	case status != row.Failed:
		return 0
	case code.Retryable():
		return failedFlag | againFlag
	}
	return failedFlag
}

func packLogprobs(in []row.TokenLogprob) []logprobRecord {
	out := make([]logprobRecord, 0, len(in))
	for _, l := range in {
		rec := logprobRecord{ID: l.ID, Bytes: l.Bytes, Token: []byte(l.Token), Top: packLogprobs(l.Top)}
		if !math.IsInf(l.Logprob, 0) && !math.IsNaN(l.Logprob) {
			rec.Logprob = &l.Logprob
		}
		out = append(out, rec)
	}
	return out
}

func unpackLogprobs(in []logprobRecord, has bool) []row.TokenLogprob {
	if !has {
		return nil
	}
	out := make([]row.TokenLogprob, 0, len(in))
	for _, rec := range in {
		l := row.TokenLogprob{ID: rec.ID, Bytes: rec.Bytes, Token: string(rec.Token), Logprob: math.Inf(-1)}
		if rec.Logprob != nil {
			l.Logprob = *rec.Logprob
		}
		l.Top = unpackLogprobs(rec.Top, len(rec.Top) > 0)
		out = append(out, l)
	}
	return out
}
