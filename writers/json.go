package writers

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/batchmill/batchmill/internal/row"
)

const hexDigits = "0123456789abcdef"

// appendString writes s as a JSON string. Besides what JSON demands it escapes U+0085, U+2028 and U+2029, at which
// readers in other languages split lines; HTML's characters stay as they are; invalid UTF-8 becomes U+FFFD.
func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, s[start:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, size := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(append(dst, s[start:i]...), `\ufffd`...)
			start = i + 1
		case r == 0x85:
			dst = append(append(dst, s[start:i]...), `\u0085`...)
			start = i + size
		case r == 0x2028 || r == 0x2029:
			dst = append(append(dst, s[start:i]...), `\u202`...)
			dst = append(dst, hexDigits[r&15])
			start = i + size
		}
		i += size
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// appendFloat writes the shortest decimal that reads back as f, in the notation that ECMAScript and Go use; bits is 32
// or 64. JSON has no infinity and no NaN: they are null.
func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return append(dst, "null"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

// appendCell writes a value of ours.
func appendCell(dst []byte, t Type, c cell) []byte {
	if c.null {
		return append(dst, "null"...)
	}
	switch t {
	case String:
		return appendString(dst, c.s)
	case Int64, Int32:
		return strconv.AppendInt(dst, c.n, 10)
	case Double:
		return appendFloat(dst, c.f, 64)
	case JSON:
		return append(dst, c.json...)
	}
	return appendInts(dst, c.ids)
}

func appendInts(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

// appendLogprobs writes the content list of OpenAI's logprobs (token, bytes, logprob, top_logprobs), with the token's
// id in front where withID is set. A logprob that is not finite is null.
func appendLogprobs(dst []byte, list []row.TokenLogprob, withID bool) []byte {
	return appendLogprobList(dst, list, withID, true)
}

func appendLogprobList(dst []byte, list []row.TokenLogprob, withID, withTop bool) []byte {
	dst = append(dst, '[')
	for i := range list {
		t := &list[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if withID {
			dst = append(dst, `"id":`...)
			dst = append(strconv.AppendInt(dst, int64(t.ID), 10), ',')
		}
		dst = appendString(append(dst, `"token":`...), t.Token)
		dst = append(dst, `,"bytes":[`...)
		for k, b := range t.Bytes {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(b), 10)
		}
		dst = appendFloat(append(dst, `],"logprob":`...), t.Logprob, 64)
		if withTop {
			dst = appendLogprobList(append(dst, `,"top_logprobs":`...), t.Top, withID, false)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}
