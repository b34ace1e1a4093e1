package objstore

import (
	"fmt"
	"regexp"
	"strings"
)

// Patterns: "*" any characters but "/", "?" one such character, "[a-z]" or "[!a-z]" one of (not of) a set, "{a,b}"
// alternatives (nesting allowed), "**" as a whole path element any number of elements, "\" takes the next character
// literally.

// maxAlternatives bounds what "{...}" may unfold to: {a,b} twenty times over would be a million patterns.
const maxAlternatives = 1000

// hasMeta tells whether a key could be a pattern.
func hasMeta(s string) bool { return strings.ContainsAny(s, `*?[{\`) }

// unfold expands the braces of a pattern.
func unfold(pattern string) ([]string, error) {
	open, depth := -1, 0
	var commas []int
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '[':
			if end := classEnd(pattern, i); end > 0 {
				i = end
			}
		case '{':
			if depth == 0 {
				open = i
			}
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth > 0 {
				continue
			}
			var out []string
			from := open + 1
			for _, to := range append(commas, i) {
				more, err := unfold(pattern[:open] + pattern[from:to] + pattern[i+1:])
				if err != nil {
					return nil, err
				}
				if out = append(out, more...); len(out) > maxAlternatives {
					return nil, fmt.Errorf("pattern %q has more than %d alternatives", pattern, maxAlternatives)
				}
				from = to + 1
			}
			return out, nil
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("pattern %q: { without }", pattern)
	}
	return []string{pattern}, nil
}

// classEnd is the index of the "]" that closes the class at i, or -1. A "]" that comes first belongs to the class.
func classEnd(p string, i int) int {
	j := i + 1
	if j < len(p) && (p[j] == '!' || p[j] == '^') {
		j++
	}
	if j < len(p) && p[j] == ']' {
		j++
	}
	for ; j < len(p); j++ {
		switch p[j] {
		case ']':
			return j
		case '/':
			return -1
		case '\\':
			j++
		}
	}
	return -1
}

// element is one path element of an unfolded pattern.
type element struct {
	literal string         // the name itself, where re is nil
	re      *regexp.Regexp // matches a whole name
	start   string         // literal text with which every match starts
	any     bool           // "**"
}

// matches tells whether a name fits. Names that start with "_" or "." are not data: a wildcard does not match them
// unless the pattern itself starts with that character.
func (e *element) matches(name string) bool {
	if isHidden(name) && e.start == "" {
		return false
	}
	return e.re.MatchString(name)
}

func isHidden(name string) bool { return name != "" && (name[0] == '_' || name[0] == '.') }

func parseElement(s string) (element, error) {
	if s == "**" {
		return element{any: true}, nil
	}
	var re, lit strings.Builder
	re.WriteString(`(?s)\A`)
	start, meta := "", false
	wild := func(expr string) {
		if !meta {
			start = lit.String()
		}
		meta = true
		re.WriteString(expr)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '*':
			wild(`[^/]*`)
		case c == '?':
			wild(`[^/]`)
		case c == '[':
			end := classEnd(s, i)
			if end < 0 {
				return element{}, fmt.Errorf("pattern element %q: [ without ]", s)
			}
			wild(classRegexp(s[i+1 : end]))
			i = end
		case c == '\\' && i+1 < len(s):
			i++
			fallthrough
		default:
			re.WriteString(quoteByte(s[i]))
			lit.WriteByte(s[i])
		}
	}
	if !meta {
		return element{literal: lit.String()}, nil
	}
	re.WriteString(`\z`)
	compiled, err := regexp.Compile(re.String())
	if err != nil {
		return element{}, fmt.Errorf("pattern element %q: %w", s, err)
	}
	return element{re: compiled, start: start}, nil
}

// quoteByte quotes ASCII and passes bytes of UTF-8 sequences through.
func quoteByte(c byte) string {
	if c >= 0x80 {
		return string([]byte{c})
	}
	return regexp.QuoteMeta(string(rune(c)))
}

func classRegexp(body string) string {
	var re strings.Builder
	re.WriteByte('[')
	if body != "" && (body[0] == '!' || body[0] == '^') {
		re.WriteString(`^/`)
		body = body[1:]
	}
	for i := 0; i < len(body); i++ {
		c := body[i]
		switch {
		case c == '-' && i > 0 && i < len(body)-1:
			re.WriteByte('-')
		case c == '\\' && i+1 < len(body):
			i++
			re.WriteString(`\` + string(rune(body[i])))
		case c >= 0x80:
			re.WriteByte(c)
		default:
			if strings.IndexByte(`\]^[-&~`, c) >= 0 {
				re.WriteByte('\\')
			}
			re.WriteByte(c)
		}
	}
	re.WriteByte(']')
	return re.String()
}

// parsePattern splits an unfolded key pattern into elements.
func parsePattern(key string) ([]element, error) {
	var out []element
	for s := range strings.SplitSeq(key, "/") {
		e, err := parseElement(s)
		if err != nil {
			return nil, err
		}
		if strings.Contains(s, "**") && !e.any {
			return nil, fmt.Errorf("pattern element %q: ** must stand alone between slashes", s)
		}
		out = append(out, e)
	}
	return out, nil
}
