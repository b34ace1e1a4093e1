package writers

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/batchmill/batchmill/internal/row"
)

// openaiWriter writes the lines of an OpenAI batch result, one for each row of the input whose units were ok:
//
//	{"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}
//
// The body is a text_completion where the record's url is /v1/completions, else a chat.completion. The samples of a row
// are its choices. What failed belongs into the errors file (NewDeadLetters with the
// same configuration), as {"id", "custom_id", "response": null, "error": {"code", "message"}}.
// See https://platform.openai.com/docs/api-reference/batch.
type openaiWriter struct {
	from   Provenance
	out    *bufio.Writer
	own    []*Column
	digest *digester
	stats  Stats
	unit   unit
	line   []byte

	open    bool        // choices of a row are being collected
	key     row.UnitKey // of that row
	legacy  bool        // it asked /v1/completions
	custom  *string
	choices []byte
	usage   struct{ prompt, cached, completion int64 }

	members []member // scratch
	name    []byte
	urlLeaf int // column of url in a Parquet source's rows; -1 for none
}

func newOpenAI(w io.Writer, cfg Config) (*openaiWriter, error) {
	all := cfg
	all.Own = nil // the body has no columns to choose from
	own, err := ownColumns(all)
	if err != nil {
		return nil, err
	}
	return &openaiWriter{from: cfg.Provenance, out: bufio.NewWriterSize(w, writeBufferBytes), own: own,
		digest: newDigester("openai", own), unit: unit{from: cfg.Provenance}, urlLeaf: urlLeaf(cfg.Source)}, nil
}

func (o *openaiWriter) Write(rec *row.Record, res *row.Result) error {
	o.unit.res = res
	for _, c := range o.own {
		o.digest.cell(c, c.value(&o.unit))
	}
	o.digest.endRow()
	o.stats.count(res.Status)
	if res.Status != row.OK {
		return nil
	}
	if o.open && (o.key.Source != res.Key.Source || o.key.Row != res.Key.Row) {
		if err := o.flush(); err != nil {
			return err
		}
	}
	if !o.open {
		o.open, o.key, o.custom, o.choices = true, res.Key, res.CustomID, shrink(o.choices)
		o.legacy = o.asksCompletion(rec)
		o.usage.prompt, o.usage.cached, o.usage.completion = int64(res.PromptTokens), int64(res.CachedTokens), 0
	}
	o.usage.completion += int64(res.CompletionTokens)
	if o.legacy {
		o.choices = appendTextChoice(o.choices, res)
	} else {
		o.choices = appendChoice(o.choices, res)
	}
	return nil
}

func appendChoice(dst []byte, res *row.Result) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = strconv.AppendInt(append(dst, `{"index":`...), int64(res.Key.Sample), 10)
	dst = append(dst, `,"message":{"role":"assistant","content":`...)
	if res.Completion == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendString(dst, *res.Completion)
	}
	dst = append(dst, `,"refusal":null},"logprobs":`...)
	if res.Logprobs == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendLogprobs(append(dst, `{"content":`...), res.Logprobs, false)
		dst = append(dst, `,"refusal":null}`...)
	}
	dst = appendString(append(dst, `,"finish_reason":`...), string(res.FinishReason))
	return append(dst, '}')
}

// flush writes the collected row.
func (o *openaiWriter) flush() error {
	if !o.open {
		return nil
	}
	o.open = false
	id := requestID(o.key.Source, o.key.Row)
	b := appendOpenAIHead(shrink(o.line), id, o.custom)
	b = appendString(append(b, `,"response":{"status_code":200,"request_id":`...), id)
	prefix, object := "chatcmpl-", "chat.completion"
	if o.legacy {
		prefix, object = "cmpl-", "text_completion"
	}
	b = appendString(append(b, `,"body":{"id":`...), prefix+id)
	b = appendString(append(b, `,"object":`...), object)
	created := int64(0)
	if !o.from.Created.IsZero() {
		created = o.from.Created.Unix()
	}
	b = strconv.AppendInt(append(b, `,"created":`...), created, 10)
	b = appendString(append(b, `,"model":`...), o.from.Model)
	b = append(append(b, `,"choices":[`...), o.choices...)
	b = strconv.AppendInt(append(b, `],"usage":{"prompt_tokens":`...), o.usage.prompt, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), o.usage.completion, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), o.usage.prompt+o.usage.completion, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), o.usage.cached, 10)
	b = appendString(append(b, `}},"system_fingerprint":`...), o.from.ModelDigest)
	b = append(b, `}},"error":null}`+"\n"...)
	o.line = b
	if _, err := o.out.Write(b); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

func (o *openaiWriter) Close(...row.KeyValue) (Stats, error) {
	if err := o.flush(); err != nil {
		return o.stats, err
	}
	if err := o.out.Flush(); err != nil {
		return o.stats, fmt.Errorf("write output: %w", err)
	}
	o.stats.ResultDigest = o.digest.sum()
	return o.stats, nil
}

// requestID names a row: 96 bits of the SHA-256 of its identity, so that a second run gives the same.
func requestID(source string, index int64) string {
	h := sha256.Sum256(append(binary.LittleEndian.AppendUint64(nil, uint64(index)), source...))
	return hex.EncodeToString(h[:12])
}

func appendOpenAIHead(dst []byte, id string, custom *string) []byte {
	dst = appendString(append(dst, `{"id":`...), requestPrefix+id)
	dst = append(dst, `,"custom_id":`...)
	if custom == nil {
		return append(dst, "null"...)
	}
	return appendString(dst, *custom)
}

func appendOpenAIError(dst []byte, res *row.Result) []byte {
	dst = appendOpenAIHead(dst, requestID(res.Key.Source, res.Key.Row), res.CustomID)
	dst = appendError(append(dst, `,"response":null,"error":`...), res)
	return append(dst, '}')
}

// appendError writes {"code", "message"}.
func appendError(dst []byte, res *row.Result) []byte {
	e := res.Err
	if e == nil {
		e = row.Errorf(row.Internal, "failed without a reason")
	}
	dst = appendString(append(dst, `{"code":`...), string(e.Code))
	dst = appendString(append(dst, `,"message":`...), e.Message)
	return append(dst, '}')
}

// RequestID is the "id" of the line of an OpenAI batch result or error that belongs to a row.
func RequestID(source string, index int64) string { return requestPrefix + requestID(source, index) }

const requestPrefix = "batch_req_"

// reservedMembers are the members that a dead letter adds. Readers take them off again: a record that still has one has
// it from its user.
var reservedMembers = []string{"_error", "_seed", "_raw_base64"}

func reserved(name string) bool { return slices.Contains(reservedMembers, name) }
