package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokEOF tokenKind = iota
	tokData
	tokBlockBegin
	tokBlockEnd
	tokVarBegin
	tokVarEnd
	tokName
	tokString
	tokNumber
	tokOp
)

type token struct {
	kind tokenKind
	at   pos
	val  string // text, name, operator, or a string literal's value
	num  any    // int64, *big.Int or float64 of a number
}

// maxIntDigits is Python's limit for integers in decimal notation; it keeps conversions from growing quadratic.
const maxIntDigits = 4300

// lexer cuts a template into tokens, following the whitespace rules of Jinja2: "-" strips, "+" keeps, TrimBlocks drops
// the newline after a block, LstripBlocks the blanks before one.
type lexer struct {
	name string
	src  string
	opts Options
	toks []token
	i    int
	// lineStart: what was read last ended a line, so that blanks before a block stand at the start of one.
	lineStart bool
}

// normalize makes all line ends \n and drops one at the end, as Jinja2 does.
func normalize(src string) string {
	if strings.Contains(src, "\r") {
		src = strings.ReplaceAll(src, "\r\n", "\n")
		src = strings.ReplaceAll(src, "\r", "\n")
	}
	return strings.TrimSuffix(src, "\n")
}

func (l *lexer) fail(at int, msg string) { panic(newError(l.name, l.src, pos(at), msg, nil)) }

func (l *lexer) emit(k tokenKind, at int, val string) {
	l.toks = append(l.toks, token{kind: k, at: pos(at), val: val})
}

// run lexes everything.
func (l *lexer) run() []token {
	l.lineStart = true
	for l.i < len(l.src) {
		open := l.nextOpen()
		if open < 0 {
			l.emit(tokData, l.i, l.src[l.i:])
			l.i = len(l.src)
			break
		}
		kind := l.src[open+1]
		sign := byte(0)
		at := open + 2
		if at < len(l.src) && (l.src[at] == '-' || l.src[at] == '+') {
			sign = l.src[at]
			at++
		}
		l.text(l.src[l.i:open], sign, kind != '{')
		switch kind {
		case '#':
			l.comment(open, at)
		case '{':
			l.emit(tokVarBegin, open, "")
			l.i = at
			l.code(open, false)
		case '%':
			if end, ok := l.rawBegin(at); ok {
				l.i = end
				l.raw(open)
				break
			}
			l.emit(tokBlockBegin, open, "")
			l.i = at
			l.code(open, true)
		}
	}
	l.emit(tokEOF, len(l.src), "")
	return l.toks
}

func (l *lexer) nextOpen() int {
	for j := l.i; ; j++ {
		k := strings.IndexByte(l.src[j:], '{')
		if k < 0 || j+k+1 >= len(l.src) {
			return -1
		}
		j += k
		if c := l.src[j+1]; c == '{' || c == '%' || c == '#' {
			return j
		}
	}
}

// text emits template text before a tag, stripped as the tag's sign asks.
func (l *lexer) text(s string, sign byte, block bool) {
	if sign == '-' {
		s = strings.TrimRightFunc(s, isSpace)
	} else if sign != '+' && block && l.opts.LstripBlocks {
		if nl := strings.LastIndexByte(s, '\n') + 1; nl > 0 || l.lineStart {
			if strings.TrimLeftFunc(s[nl:], isSpace) == "" {
				s = s[:nl]
			}
		}
	}
	if s != "" {
		l.emit(tokData, l.i, s)
	}
}

// closeTag reads what may stand around a closing delimiter at j ("-" or "+" before it, whitespace or one newline
// after it) and returns the position behind, or -1.
func (l *lexer) closeTag(j int, delim string, trim bool) int {
	rest := l.src[j:]
	switch {
	case strings.HasPrefix(rest, "-"+delim):
		j += 1 + len(delim)
		return j + len(l.src[j:]) - len(strings.TrimLeftFunc(l.src[j:], isSpace))
	case delim != "}}" && strings.HasPrefix(rest, "+"+delim):
		return j + 1 + len(delim)
	case strings.HasPrefix(rest, delim):
		j += len(delim)
		if trim && l.opts.TrimBlocks && j < len(l.src) && l.src[j] == '\n' {
			j++
		}
		return j
	}
	return -1
}

// closed moves behind a closing delimiter.
func (l *lexer) closed(end int) {
	l.lineStart = l.src[end-1] == '\n'
	l.i = end
}

func (l *lexer) comment(open, at int) {
	k := strings.Index(l.src[at:], "#}")
	if k < 0 {
		l.fail(open, "comment is never closed: #} is missing")
	}
	j := at + k
	if j > at && (l.src[j-1] == '-' || l.src[j-1] == '+') {
		j--
	}
	l.closed(l.closeTag(j, "#}", true))
}

// rawBegin matches the rest of "{% raw %}" from behind its sign.
func (l *lexer) rawBegin(at int) (end int, ok bool) {
	j := at + len(l.src[at:]) - len(strings.TrimLeftFunc(l.src[at:], isSpace))
	if !strings.HasPrefix(l.src[j:], "raw") {
		return 0, false
	}
	j += 3
	j += len(l.src[j:]) - len(strings.TrimLeftFunc(l.src[j:], isSpace))
	if strings.HasPrefix(l.src[j:], "+") {
		return 0, false
	}
	end = l.closeTag(j, "%}", false)
	return end, end >= 0
}

func (l *lexer) raw(open int) {
	l.lineStart = l.src[l.i-1] == '\n'
	for from := l.i; ; {
		k := strings.Index(l.src[from:], "{%")
		if k < 0 {
			l.fail(open, "raw block is never closed: {% endraw %} is missing")
		}
		tag := from + k
		j := tag + 2
		sign := byte(0)
		if j < len(l.src) && (l.src[j] == '-' || l.src[j] == '+') {
			sign = l.src[j]
			j++
		}
		j += len(l.src[j:]) - len(strings.TrimLeftFunc(l.src[j:], isSpace))
		if rest, ok := strings.CutPrefix(l.src[j:], "endraw"); ok {
			j = len(l.src) - len(strings.TrimLeftFunc(rest, isSpace))
			if end := l.closeTag(j, "%}", true); end >= 0 {
				l.text(l.src[l.i:tag], sign, true)
				l.closed(end)
				return
			}
		}
		from = tag + 2
	}
}

// operators in the order in which they are tried.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

// code lexes the inside of {{ }} or {% %}.
func (l *lexer) code(open int, block bool) {
	delim, endKind := "}}", tokVarEnd
	if block {
		delim, endKind = "%}", tokBlockEnd
	}
	var brackets []byte
	for l.i < len(l.src) {
		if len(brackets) == 0 {
			if end := l.closeTag(l.i, delim, block); end >= 0 {
				l.emit(endKind, l.i, "")
				l.closed(end)
				return
			}
		}
		c := l.src[l.i]
		r, size := utf8.DecodeRuneInString(l.src[l.i:])
		switch {
		case isSpace(r):
			l.i += size
		case c >= '0' && c <= '9':
			l.number()
		case c == '\'' || c == '"':
			l.str(c)
		case r == '_' || unicode.IsLetter(r):
			at := l.i
			for l.i < len(l.src) {
				r, size := utf8.DecodeRuneInString(l.src[l.i:])
				if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
					break
				}
				l.i += size
			}
			l.emit(tokName, at, l.src[at:l.i])
		default:
			brackets = l.operator(brackets)
		}
	}
	l.fail(open, "tag is never closed: "+delim+" is missing")
}

func (l *lexer) operator(brackets []byte) []byte {
	for _, op := range operators {
		if !strings.HasPrefix(l.src[l.i:], op) {
			continue
		}
		switch op {
		case "(":
			brackets = append(brackets, ')')
		case "[":
			brackets = append(brackets, ']')
		case "{":
			brackets = append(brackets, '}')
		case ")", "]", "}":
			if n := len(brackets); n == 0 {
				l.fail(l.i, "unexpected "+op)
			} else if want := brackets[n-1]; want != op[0] {
				l.fail(l.i, "unexpected "+op+", expected "+string(rune(want)))
			} else {
				brackets = brackets[:n-1]
			}
		}
		l.emit(tokOp, l.i, op)
		l.i += len(op)
		return brackets
	}
	r, _ := utf8.DecodeRuneInString(l.src[l.i:])
	l.fail(l.i, "unexpected character "+strconv.QuoteRune(r))
	return nil
}
