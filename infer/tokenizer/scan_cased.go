package tokenizer

import "strings"

// casedScan is the case-aware family of o200k and Tekken, with U = \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M} and
// D = \p{Ll}\p{Lm}\p{Lo}\p{M}, which share caseless letters and marks:
//
//	[^\r\n\p{L}\p{N}]?[U]*[D]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[U]+[D]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
//	\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// Tekken has neither the contractions nor more than one digit.
type casedScan struct {
	t            *classTable
	digits       int
	contractions bool
}

func (o casedScan) next(s string, i int) int {
	t := o.t
	c, n := t.at(s, i)
	if c&classNumber == 0 && s[i] != '\r' && s[i] != '\n' {
		if end := o.word(s, i, c, n); end > 0 {
			if o.contractions && end < len(s) && s[end] == '\'' {
				end += contraction(s[end:], true)
			}
			return end
		}
	}
	if c&classNumber != 0 {
		return t.numbers(s, i, o.digits)
	}
	if end := t.symbols(s, i, classSpace|classLetter|classNumber, "\r\n/"); end > 0 {
		return end
	}
	if end := t.newlines(s, i); end > 0 {
		return end
	}
	return t.spaces(s, i)
}

// word matches the first two alternatives at s[i], neither number nor line end, with classes c and length n; 0 for no match.
// The optional first character is tried taken before not taken, the first alternative before the second.
func (o casedScan) word(s string, i int, c class, n int) int {
	prefix := c&classLetter == 0
	if prefix {
		if end := o.lowered(s, i+n); end > 0 {
			return end
		}
	}
	if end := o.lowered(s, i); end > 0 {
		return end
	}
	if prefix {
		if end := o.capitals(s, i+n); end > 0 {
			return end
		}
	}
	return o.capitals(s, i)
}

// lowered matches [U]*[D]+ at s[i]; 0 for no match. Where the run of U is not followed by D, the expression backtracks
// to the last character of the run that is in both classes, and ends there, since what follows is in U only.
func (o casedScan) lowered(s string, i int) int {
	last := 0
	for i < len(s) {
		c, n := o.t.at(s, i)
		if c&classUpperish == 0 {
			if c&classLowerish != 0 {
				return o.t.run(s, i+n, classLowerish)
			}
			break
		}
		i += n
		if c&classLowerish != 0 {
			last = i
		}
	}
	return last
}

// capitals matches [U]+[D]* at s[i]; 0 for no match.
func (o casedScan) capitals(s string, i int) int {
	end := o.t.run(s, i, classUpperish)
	if end == i {
		return 0
	}
	return o.t.run(s, end, classLowerish)
}

// deepseekScan is the last stage of DeepSeek V3, which does not match everywhere (not, say, at a digit):
//
//	[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
//	\s*[\r\n]+|\s+(?!\S)|\s+
type deepseekScan struct{ t *classTable }

func (d deepseekScan) next(s string, i int) int {
	if end := d.match(s, i); end > 0 {
		return end
	}
	for i < len(s) {
		_, n := d.t.at(s, i)
		i += n
		if i < len(s) && d.match(s, i) > 0 {
			break
		}
	}
	return i
}

func (d deepseekScan) match(s string, i int) int {
	t := d.t
	c, n := t.at(s, i)
	if s[i] < 0x80 && c&(classPunct|classSymbol) != 0 { // the listed characters are all of ASCII's
		end := i + 1
		for end < len(s) && ('a' <= s[end]|0x20 && s[end]|0x20 <= 'z') {
			end++
		}
		if end > i+1 {
			return end
		}
	}
	const word = classLetter | classMark
	if c&(classLetter|classPunct|classSymbol) == 0 && s[i] != '\r' && s[i] != '\n' {
		if c2, n2 := t.at(s, i+n); c2&word != 0 {
			return t.run(s, i+n+n2, word)
		}
	}
	if c&word != 0 {
		return t.run(s, i+n, word)
	}
	j, c2 := i, c
	if s[i] == ' ' {
		j = i + 1
		c2, _ = t.at(s, j)
	}
	if c2&(classPunct|classSymbol) != 0 {
		end := t.run(s, j, classPunct|classSymbol)
		for end < len(s) && strings.IndexByte("\r\n", s[end]) >= 0 {
			end++
		}
		return end
	}
	if c&classSpace == 0 {
		return 0
	}
	if end := t.newlines(s, i); end > 0 {
		return end
	}
	return t.spaces(s, i)
}

// cjkScan isolates runs of [一-龥぀-ゟ゠-ヿ]+.
type cjkScan struct{}

func (cjkScan) next(s string, i int) int {
	return isolateRuns(s, i, func(r rune) bool { return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF })
}

// isolateRuns returns the end of the run of characters from s[i] on which in answers alike.
func isolateRuns(s string, i int, in func(rune) bool) int {
	first, set := false, false
	for k, r := range s[i:] {
		v := in(r)
		if !set {
			first, set = v, true
		} else if v != first {
			return i + k
		}
	}
	return len(s)
}

// numberScan isolates \p{N}{1,most}; most 0 means runs of any length.
type numberScan struct {
	t    *classTable
	most int
}

func (n numberScan) next(s string, i int) int {
	if c, _ := n.t.at(s, i); c&classNumber != 0 {
		if n.most == 0 {
			return n.t.run(s, i, classNumber)
		}
		return n.t.numbers(s, i, n.most)
	}
	for i < len(s) {
		c, size := n.t.at(s, i)
		if c&classNumber != 0 {
			break
		}
		i += size
	}
	return i
}
