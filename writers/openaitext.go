package writers

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// completionURL asks for a text without a conversation. Its answer has a shape of its own:
// https://platform.openai.com/docs/api-reference/completions/object.
const completionURL = "/v1/completions"

// urlLeaf finds the column of url among a Parquet source's leaves, -1 if there is none.
func urlLeaf(s *row.Schema) int {
	if s == nil {
		return -1
	}
	schema, ok := s.Parquet.(*parquet.Schema)
	if !ok {
		return -1
	}
	leaf, ok := schema.Lookup("url")
	if !ok {
		return -1
	}
	return leaf.ColumnIndex
}

// asksCompletion tells whether the record's url is /v1/completions.
func (o *openaiWriter) asksCompletion(rec *row.Record) bool {
	if rec == nil {
		return false
	}
	switch cells := rec.Cells.(type) {
	case row.JSON:
		members, _, err := scanMembers(cells, o.members[:0])
		if o.members = members; err != nil {
			return false
		}
		for _, m := range members {
			var name []byte
			if name, o.name = memberName(cells, m, o.name); string(name) != "url" {
				continue
			}
			if cells[m.value] != '"' {
				return false
			}
			name, o.name = memberName(cells, member{name: m.value, nameEnd: m.end}, o.name)
			return string(name) == completionURL
		}
	case parquet.Row:
		for i := range cells {
			if v := &cells[i]; o.urlLeaf >= 0 && v.Column() == o.urlLeaf && !v.IsNull() && v.Kind() == parquet.ByteArray {
				return string(v.ByteArray()) == completionURL
			}
		}
	}
	return false
}

func appendTextChoice(dst []byte, res *row.Result) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	text := ""
	if res.Completion != nil {
		text = *res.Completion
	}
	dst = appendString(append(dst, `{"text":`...), text)
	dst = strconv.AppendInt(append(dst, `,"index":`...), int64(res.Key.Sample), 10)
	dst = append(dst, `,"logprobs":`...)
	if res.Logprobs == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendTextLogprobs(dst, res.Logprobs)
	}
	dst = appendString(append(dst, `,"finish_reason":`...), string(res.FinishReason))
	return append(dst, '}')
}

// appendTextLogprobs writes the lists tokens, token_logprobs, top_logprobs (objects of a logprob for each text; null where
// none were asked for) and text_offset, in characters from the completion's start. A logprob that is not finite is null.
func appendTextLogprobs(dst []byte, list []row.TokenLogprob) []byte {
	each := func(name string, write func(t *row.TokenLogprob)) {
		dst = append(append(dst, name...), '[')
		for i := range list {
			if i > 0 {
				dst = append(dst, ',')
			}
			write(&list[i])
		}
		dst = append(dst, ']')
	}
	each(`{"tokens":`, func(t *row.TokenLogprob) { dst = appendString(dst, t.Token) })
	each(`,"token_logprobs":`, func(t *row.TokenLogprob) { dst = appendFloat(dst, t.Logprob, 64) })
	if slices.ContainsFunc(list, func(t row.TokenLogprob) bool { return len(t.Top) > 0 }) {
		each(`,"top_logprobs":`, func(t *row.TokenLogprob) { dst = appendTop(dst, t.Top) })
	} else {
		dst = append(dst, `,"top_logprobs":null`...)
	}
	at := 0
	each(`,"text_offset":`, func(t *row.TokenLogprob) {
		dst = strconv.AppendInt(dst, int64(at), 10)
		at += utf8.RuneCountInString(t.Token)
	})
	return append(dst, '}')
}

// appendTop writes {text: logprob}. Of tokens that read the same, parts of characters, the likeliest stays: it is first.
func appendTop(dst []byte, top []row.TokenLogprob) []byte {
	dst = append(dst, '{')
	for i := range top {
		t := &top[i]
		if slices.ContainsFunc(top[:i], func(before row.TokenLogprob) bool { return before.Token == t.Token }) {
			continue
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, t.Token)
		dst = appendFloat(append(dst, ':'), t.Logprob, 64)
	}
	return append(dst, '}')
}
