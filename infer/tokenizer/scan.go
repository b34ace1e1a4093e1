package tokenizer

import "strings"

// The scanners below take the place of regular expressions with look-ahead. Each next(s, i) returns the end, above i, of
// the piece that starts at s[i] (i < len(s)): a match, or for patterns that do not match everywhere the stretch up to
// the next match. Like the expressions they try alternatives in order and never look beyond s. Time is linear in len(s).

// splitter cuts a string into consecutive pieces.
type splitter interface {
	next(s string, i int) int
}

// gpt2Scan is 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
type gpt2Scan struct{ t *classTable }

func (g gpt2Scan) next(s string, i int) int {
	t := g.t
	if s[i] == '\'' {
		if n := contraction(s[i:], false); n > 0 {
			return i + n
		}
	}
	c, n := t.at(s, i)
	j := i
	if s[i] == ' ' {
		if c2, n2 := t.at(s, i+1); n2 > 0 && c2&classSpace == 0 {
			c, n, j = c2, n2, i+1
		}
	}
	switch {
	case c&classLetter != 0:
		return t.run(s, j+n, classLetter)
	case c&classNumber != 0:
		return t.run(s, j+n, classNumber)
	case c&classSpace == 0:
		return t.others(s, j+n)
	}
	return t.spaces(s, i)
}

// others returns the end of [^\s\p{L}\p{N}]* from s[i].
func (t *classTable) others(s string, i int) int {
	for i < len(s) {
		c, n := t.at(s, i)
		if c&(classSpace|classLetter|classNumber) != 0 {
			break
		}
		i += n
	}
	return i
}

// spaces matches \s+(?!\S)|\s+ at s[i], a space: all of the run at the end of s, else all but its last character, unless
// that is the only one.
func (t *classTable) spaces(s string, i int) int {
	last, end := i, i
	for end < len(s) {
		c, n := t.at(s, end)
		if c&classSpace == 0 {
			if last > i {
				return last
			}
			return end
		}
		last, end = end, end+n
	}
	return end
}

// newlines matches \s*[\r\n]+ at s[i], a space: up to the last line end of the run of spaces; 0 if it has none.
func (t *classTable) newlines(s string, i int) int {
	end := 0
	for i < len(s) {
		c, n := t.at(s, i)
		if c&classSpace == 0 {
			break
		}
		if s[i] == '\n' || s[i] == '\r' {
			end = i + 1
		}
		i += n
	}
	return end
}

// contraction returns the length of 's|'t|'re|'ve|'m|'ll|'d at the start of s, 0 for none. Under fold it is
// case-insensitive, by Unicode's folding, in which ſ (U+017F) is an s.
func contraction(s string, fold bool) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	lower := func(c byte) byte {
		if fold && 'A' <= c && c <= 'Z' {
			return c + 'a' - 'A'
		}
		return c
	}
	switch a := lower(s[1]); a {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v', 'l':
		if len(s) > 2 {
			if b := lower(s[2]); a == 'l' && b == 'l' || a != 'l' && b == 'e' {
				return 3
			}
		}
	case 0xC5: // the first byte of ſ
		if fold && strings.HasPrefix(s[1:], "ſ") {
			return 3
		}
	}
	return 0
}

// wordScan is the family of Llama 3 and Qwen 2:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// with \p{N}{1,digits}. Under marks, words are [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and the others exclude \p{M} too.
type wordScan struct {
	t      *classTable
	digits int
	marks  bool
}

func (w wordScan) next(s string, i int) int {
	t := w.t
	if s[i] == '\'' {
		if n := contraction(s[i:], true); n > 0 {
			return i + n
		}
	}
	word, notOther := classLetter, classSpace|classLetter|classNumber
	if w.marks {
		word |= classMark
		notOther |= classMark
	}
	c, n := t.at(s, i)
	if c&(classLetter|classNumber) == 0 && s[i] != '\r' && s[i] != '\n' {
		if c2, n2 := t.at(s, i+n); c2&word != 0 {
			return t.run(s, i+n+n2, word)
		}
	}
	switch {
	case c&word != 0:
		return t.run(s, i+n, word)
	case c&classNumber != 0:
		return t.numbers(s, i, w.digits)
	}
	if end := t.symbols(s, i, notOther, "\r\n"); end > 0 {
		return end
	}
	if end := t.newlines(s, i); end > 0 {
		return end
	}
	return t.spaces(s, i)
}

// numbers matches \p{N}{1,most} at s[i], a number.
func (t *classTable) numbers(s string, i, most int) int {
	for k := 0; k < most && i < len(s); k++ {
		c, n := t.at(s, i)
		if c&classNumber == 0 {
			break
		}
		i += n
	}
	return i
}

// symbols matches " ?[^not]+[tail]*" at s[i]; 0 if it does not match.
func (t *classTable) symbols(s string, i int, not class, tail string) int {
	if s[i] == ' ' {
		i++
	}
	start := i
	for i < len(s) {
		c, n := t.at(s, i)
		if c&not != 0 {
			break
		}
		i += n
	}
	if i == start {
		return 0
	}
	for i < len(s) && strings.IndexByte(tail, s[i]) >= 0 {
		i++
	}
	return i
}
