package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// isSpace is Python's str.isspace for one character: unicode.IsSpace and the four information separators.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Case mappings are the full ones of Unicode, where one character may become several ("ß" -> "SS").

func upper(s string) string {
	if ascii(s) {
		return strings.ToUpper(s)
	}
	return cases.Upper(language.Und).String(s)
}

func lower(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	return cases.Lower(language.Und).String(s)
}

func casefold(s string) string {
	if ascii(s) {
		return strings.ToLower(s)
	}
	return cases.Fold().String(s)
}

// titleFirst puts the first character in title case and the rest in lower case.
func titleFirst(s string) string {
	if s == "" {
		return s
	}
	n := runeLen(s)
	r, _ := utf8.DecodeRuneInString(s)
	first := upper(s[:n])
	if t := unicode.ToTitle(r); utf8.RuneCountInString(first) == 1 {
		first = string(t)
	} else { // a character that becomes several: only the first of them is large
		k := runeLen(first)
		first = first[:k] + lower(first[k:])
	}
	return first + lower(s[n:])
}

func swapcase(s string) string {
	var b strings.Builder
	for i, r := range s {
		c := s[i : i+runeLen(s[i:])]
		switch {
		case unicode.IsUpper(r):
			c = lower(c)
		case unicode.IsLower(r):
			c = upper(c)
		}
		b.WriteString(c)
	}
	return b.String()
}

// pyTitle is str.title: every run of letters on its own.
func pyTitle(s string) string {
	var b strings.Builder
	in := false
	for i, r := range s {
		c := s[i : i+runeLen(s[i:])]
		cased := unicode.IsUpper(r) || unicode.IsLower(r) || unicode.IsTitle(r)
		switch {
		case cased && in:
			c = lower(c)
		case cased:
			c = titleFirst(c)
		}
		in = cased
		b.WriteString(c)
	}
	return b.String()
}

// splitLines cuts at Python's line boundaries and returns pairs of byte offsets: the line, and its end with the break.
func splitLines(s string) (lines [][3]int) {
	from := 0
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '\n', '\v', '\f', '\r', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			end := i + n
			if r == '\r' && end < len(s) && s[end] == '\n' {
				end++
			}
			lines = append(lines, [3]int{from, i, end})
			from, i = end, end
			continue
		}
		i += n
	}
	if from < len(s) {
		lines = append(lines, [3]int{from, len(s), len(s)})
	}
	return lines
}

// mapping charges an operation on every character of s.
func (e *exec) mapping(s string) {
	e.build(3 * len(s)) // a character grows at most threefold
	e.step(len(s) / charsPerStep)
}

// textOp makes a method or filter from a function of the string alone; what it makes keeps its provenance stretch by
// stretch.
func textOp(f func(string) string) func(e *exec, self any, c call) any {
	return func(e *exec, self any, _ call) any {
		s, lit := e.toText(self)
		e.mapping(s)
		return mapped(s, lit, f)
	}
}

// wholeOp is textOp for functions that depend on the whole string.
func wholeOp(f func(string) string) func(e *exec, self any, c call) any {
	return func(e *exec, self any, _ call) any {
		s, lit := e.toText(self)
		e.mapping(s)
		return likeWhole(f(s), wholly(s, lit))
	}
}

// predicate tells whether all characters satisfy f and there is one.
func predicate(f func(r rune) bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, _ call) any {
		s, _ := e.toText(self)
		e.step(len(s) / charsPerStep)
		for _, r := range s {
			if !f(r) {
				return false
			}
		}
		return s != ""
	}
}

// caseTest tells whether there is a cased character and none of the other case.
func caseTest(is, other func(r rune) bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, _ call) any {
		s, _ := e.toText(self)
		e.step(len(s) / charsPerStep)
		found := false
		for _, r := range s {
			if other(r) || unicode.IsTitle(r) {
				return false
			}
			found = found || is(r)
		}
		return found
	}
}

func isDigitRune(r rune) bool {
	return unicode.Is(unicode.Nd, r) || unicode.Is(unicode.No, r) && strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉①②③④⑤⑥⑦⑧⑨", r)
}

// strip removes characters of a set (whitespace where it is None) at both ends, or one.
func strip(left, right bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, lit := e.toText(self)
		in := isSpace
		if c.has(0) && c.p[0] != nil {
			in = e.runeSet(e.wantString(c.p[0], "argument of "+c.name))
		}
		i, j := 0, len(s)
		if left {
			i = j - len(strings.TrimLeftFunc(s, in))
		}
		if right {
			j = i + len(strings.TrimRightFunc(s[i:], in))
		}
		e.step((i + len(s) - j) / charsPerStep)
		return substring(s, lit, i, j)
	}
}

// runeSet tells whether a character is one of a string's.
func (e *exec) runeSet(set string) func(rune) bool {
	const small = 16
	if len(set) <= small {
		return func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	e.build(len(set))
	e.step(len(set))
	m := map[rune]bool{}
	for _, r := range set {
		m[r] = true
	}
	return func(r rune) bool { return m[r] }
}

// split is str.split and str.rsplit.
func split(fromRight bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, lit := e.toText(self)
		e.step(len(s) / charsPerStep)
		most := c.num(e, 1, -1)
		if most < 0 {
			most = len(s) + 1
		}
		var cuts [][2]int // of the pieces
		if !c.has(0) || c.p[0] == nil {
			cuts = splitSpace(s, most, fromRight)
		} else {
			sep := e.wantString(c.p[0], "separator")
			if sep == "" {
				e.fail("empty separator")
			}
			cuts = splitSep(s, sep, most, fromRight)
		}
		e.buildCells(3 * len(cuts))
		out := make([]any, len(cuts))
		for i, cut := range cuts {
			out[i] = substring(s, lit, cut[0], cut[1])
		}
		return out
	}
}

func splitSep(s, sep string, most int, fromRight bool) (cuts [][2]int) {
	if fromRight {
		end := len(s)
		for len(cuts) < most {
			i := strings.LastIndex(s[:end], sep)
			if i < 0 {
				break
			}
			cuts = append(cuts, [2]int{i + len(sep), end})
			end = i
		}
		cuts = append(cuts, [2]int{0, end})
		return reversed(cuts)
	}
	at := 0
	for len(cuts) < most {
		i := strings.Index(s[at:], sep)
		if i < 0 {
			break
		}
		cuts = append(cuts, [2]int{at, at + i})
		at += i + len(sep)
	}
	return append(cuts, [2]int{at, len(s)})
}

func splitSpace(s string, most int, fromRight bool) (cuts [][2]int) {
	i, j := 0, len(s)
	if fromRight {
		for {
			j = len(strings.TrimRightFunc(s[:j], isSpace))
			if j == 0 {
				return reversed(cuts)
			}
			if len(cuts) == most {
				return reversed(append(cuts, [2]int{0, j}))
			}
			i = 1 + strings.LastIndexFunc(s[:j], isSpace)
			if i > 0 {
				i += runeLen(s[i-1:]) - 1 // LastIndexFunc gives the start of the space
			}
			cuts = append(cuts, [2]int{i, j})
			j = i
		}
	}
	for {
		i = j - len(strings.TrimLeftFunc(s[i:], isSpace))
		if i == j {
			return cuts
		}
		if len(cuts) == most {
			return append(cuts, [2]int{i, len(s)})
		}
		n := strings.IndexFunc(s[i:], isSpace)
		if n < 0 {
			n = j - i
		}
		cuts = append(cuts, [2]int{i, i + n})
		i += n
	}
}

func reversed(cuts [][2]int) [][2]int {
	for i, j := 0, len(cuts)-1; i < j; i, j = i+1, j-1 {
		cuts[i], cuts[j] = cuts[j], cuts[i]
	}
	return cuts
}
