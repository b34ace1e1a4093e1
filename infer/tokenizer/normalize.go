package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// normalizer rewrites a text before it is pre-tokenised. prov, when not nil, holds for every byte of s the number of the
// literal span it comes from (0: data); the result's bytes carry it on, 0 where they come from several.
type normalizer interface {
	normalize(s string, prov []int32) (string, []int32)
}

// common returns the number that all of prov share, else 0.
func common(prov []int32) int32 {
	if len(prov) == 0 {
		return 0
	}
	for _, p := range prov {
		if p != prov[0] {
			return 0
		}
	}
	return prov[0]
}

func appendSame(prov []int32, p int32, n int) []int32 {
	for ; n > 0; n-- {
		prov = append(prov, p)
	}
	return prov
}

type sequenceNormalizer []normalizer

func (q sequenceNormalizer) normalize(s string, prov []int32) (string, []int32) {
	for _, n := range q {
		s, prov = n.normalize(s, prov)
	}
	return s, prov
}

// prependNormalizer puts its text in front of what is not empty.
type prependNormalizer string

func (p prependNormalizer) normalize(s string, prov []int32) (string, []int32) {
	if s == "" {
		return s, prov
	}
	if prov != nil {
		prov = append(appendSame(make([]int32, 0, len(p)+len(prov)), prov[0], len(p)), prov...)
	}
	return string(p) + s, prov
}

type replaceNormalizer struct{ from, to string }

func (r replaceNormalizer) normalize(s string, prov []int32) (string, []int32) {
	if !strings.Contains(s, r.from) {
		return s, prov
	}
	if prov == nil {
		return strings.ReplaceAll(s, r.from, r.to), nil
	}
	var b strings.Builder
	var out []int32
	for i := 0; ; {
		k := strings.Index(s[i:], r.from)
		if k < 0 {
			b.WriteString(s[i:])
			return b.String(), append(out, prov[i:]...)
		}
		b.WriteString(s[i : i+k])
		out = append(out, prov[i:i+k]...)
		i += k
		b.WriteString(r.to)
		out = appendSame(out, common(prov[i:i+len(r.from)]), len(r.to))
		i += len(r.from)
	}
}

// stripNormalizer drops white space at the ends.
type stripNormalizer struct{ left, right bool }

func (t stripNormalizer) normalize(s string, prov []int32) (string, []int32) {
	start, end := 0, len(s)
	if t.left {
		start = end - len(strings.TrimLeftFunc(s, unicode.IsSpace))
	}
	if t.right {
		end = start + len(strings.TrimRightFunc(s[start:], unicode.IsSpace))
	}
	if prov != nil {
		prov = prov[start:end]
	}
	return s[start:end], prov
}

// lowercaseNormalizer maps every character to lower case by itself, as Rust's char::to_lowercase does: İ becomes i̇.
type lowercaseNormalizer struct{}

func (lowercaseNormalizer) normalize(s string, prov []int32) (string, []int32) {
	out := make([]byte, 0, len(s))
	var outProv []int32
	for i, r := range s {
		before := len(out)
		if r == 'İ' {
			out = append(out, "i\u0307"...)
		} else {
			out = utf8.AppendRune(out, lower(r))
		}
		if prov != nil {
			outProv = appendSame(outProv, common(prov[i:i+utf8.RuneLen(r)]), len(out)-before)
		}
	}
	return string(out), outProv
}

// lower is unicode.ToLower with the letters that came after Go's tables (Unicode 15.0), up to Unicode 16.0.
func lower(r rune) rune {
	switch {
	case r >= 0x10D50 && r <= 0x10D65: // Garay
		return r + 0x20
	case r == 0xA7CB:
		return 0x264
	case r == 0xA7CC, r == 0xA7DA:
		return r + 1
	case r == 0xA7DC:
		return 0x19B
	case r == 0x1C89:
		return 0x1C8A
	}
	return unicode.ToLower(r)
}
