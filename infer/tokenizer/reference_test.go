package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// refPattern is a plain backtracking matcher for the syntax that pre-tokenizer patterns use: alternatives, groups, (?i:…),
// (?!\S), classes, \p{…}, \s, \r, \n, and the greedy ?, *, + and {m,n}. The scanners are held to it. It is slow and
// recursive, for short strings in tests only.
type refPattern struct {
	src  string
	pos  int
	fold bool
}

// refNode matches at i and calls k with the end of each way to match, best first, until k accepts one.
type refNode func(s string, i int, k func(int) bool) bool

func compileRef(src string) refNode {
	p := &refPattern{src: src}
	n := p.alternatives()
	if p.pos != len(src) {
		panic(fmt.Sprintf("unread %q", src[p.pos:]))
	}
	return n
}

func (p *refPattern) more(c byte) bool { return p.pos < len(p.src) && p.src[p.pos] == c }

func (p *refPattern) alternatives() refNode {
	list := []refNode{p.sequence()}
	for p.more('|') {
		p.pos++
		list = append(list, p.sequence())
	}
	return func(s string, i int, k func(int) bool) bool {
		for _, n := range list {
			if n(s, i, k) {
				return true
			}
		}
		return false
	}
}

func (p *refPattern) sequence() refNode {
	node := refNode(func(s string, i int, k func(int) bool) bool { return k(i) })
	for p.pos < len(p.src) && !p.more('|') && !p.more(')') {
		a, b := node, p.repeated()
		node = func(s string, i int, k func(int) bool) bool {
			return a(s, i, func(j int) bool { return b(s, j, k) })
		}
	}
	return node
}

func (p *refPattern) repeated() refNode {
	n := p.atom()
	lo, hi := 1, 1
	switch {
	case p.more('?'):
		lo, hi = 0, 1
	case p.more('*'):
		lo, hi = 0, 1<<30
	case p.more('+'):
		lo, hi = 1, 1<<30
	case p.more('{'):
		end := strings.IndexByte(p.src[p.pos:], '}')
		if _, err := fmt.Sscanf(p.src[p.pos:p.pos+end+1], "{%d,%d}", &lo, &hi); err != nil {
			panic(err)
		}
		p.pos += end
	default:
		return n
	}
	p.pos++
	var times func(count int, s string, i int, k func(int) bool) bool
	times = func(count int, s string, i int, k func(int) bool) bool {
		if count < hi && n(s, i, func(j int) bool { return j > i && times(count+1, s, j, k) }) {
			return true
		}
		return count >= lo && k(i)
	}
	return func(s string, i int, k func(int) bool) bool { return times(0, s, i, k) }
}

func (p *refPattern) atom() refNode {
	rest := p.src[p.pos:]
	switch {
	case strings.HasPrefix(rest, "(?i:"):
		p.pos += 4
		p.fold = true
		n := p.alternatives()
		p.fold = false
		p.pos++
		return n
	case strings.HasPrefix(rest, `(?!\S)`):
		p.pos += 6
		return func(s string, i int, k func(int) bool) bool {
			r, _ := utf8.DecodeRuneInString(s[i:])
			return (i == len(s) || unicode.IsSpace(r)) && k(i)
		}
	}
	in := p.class()
	return func(s string, i int, k func(int) bool) bool {
		if i == len(s) {
			return false
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		return in(r) && k(i+n)
	}
}

// class reads a character, an escape or a bracketed set.
func (p *refPattern) class() func(rune) bool {
	if !p.more('[') {
		f, _ := p.one()
		return f
	}
	p.pos++
	negated := p.more('^')
	if negated {
		p.pos++
	}
	var list []func(rune) bool
	for !p.more(']') {
		f, lo := p.one()
		if p.more('-') && p.src[p.pos+1] != ']' {
			p.pos++
			_, hi := p.one()
			f = func(r rune) bool { return r >= lo && r <= hi }
		}
		list = append(list, f)
	}
	p.pos++
	return func(r rune) bool {
		for _, f := range list {
			if f(r) {
				return !negated
			}
		}
		return negated
	}
}

// one reads a character or an escape.
func (p *refPattern) one() (in func(rune) bool, literal rune) {
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	if r == '\\' {
		c := p.src[p.pos]
		p.pos++
		switch c {
		case 's':
			return unicode.IsSpace, 0
		case 'r':
			r = '\r'
		case 'n':
			r = '\n'
		case 'p':
			end := strings.IndexByte(p.src[p.pos:], '}')
			name := p.src[p.pos+1 : p.pos+end]
			p.pos += end + 1
			return func(r rune) bool { return inCategory(r, name) }, 0
		default:
			r = rune(c)
		}
	}
	if p.fold {
		return func(c rune) bool {
			for f := unicode.SimpleFold(r); ; f = unicode.SimpleFold(f) {
				if f == c {
					return true
				}
				if f == r {
					return false
				}
			}
		}, r
	}
	return func(c rune) bool { return c == r }, r
}

// inCategory answers by Go's tables, which agree with ours on all that Unicode 15.0 assigns; others are asked of ours.
func inCategory(r rune, name string) bool {
	if !assigned15(r) {
		bit := map[byte]class{'L': classLetter, 'N': classNumber, 'M': classMark, 'P': classPunct, 'S': classSymbol}[name[0]]
		c := unicodeClasses().of(r)
		switch {
		case len(name) == 1 || c&bit == 0:
			return c&bit != 0
		case name == "Lu" || name == "Lt": // the letters of later versions that are upper case are all Lu
			return name == "Lu" && c&classUpperish != 0 && c&classLowerish == 0
		case name == "Ll":
			return c&classLowerish != 0 && c&classUpperish == 0
		}
		return name == "Lo" && c&classUpperish != 0 && c&classLowerish != 0
	}
	return unicode.Is(unicode.Categories[name], r)
}

func assigned15(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs)
}
