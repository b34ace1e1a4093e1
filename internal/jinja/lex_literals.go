package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// digits reads digits of the base, with single underscores between them, and returns the position behind.
func (l *lexer) digits(j int, ok func(byte) bool) int {
	for j < len(l.src) {
		if ok(l.src[j]) {
			j++
		} else if l.src[j] == '_' && j+1 < len(l.src) && ok(l.src[j+1]) {
			j += 2
		} else {
			break
		}
	}
	return j
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c|32 >= 'a' && c|32 <= 'f' }

func (l *lexer) number() {
	at := l.i
	if base, ok := map[byte]int{'x': 16, 'o': 8, 'b': 2}[l.peek(at+1)|32]; ok && l.src[at] == '0' {
		end := l.digits(at+2, func(c byte) bool { return isHex(c) && (base == 16 || c < '0'+byte(base)) })
		if end > at+2 {
			l.integer(at, end, base, l.src[at+2:end])
			return
		}
	}
	end := l.digits(at, isDigit)
	float := false
	if at == 0 || l.src[at-1] != '.' { // a.0.1 are two items, not a fraction
		if l.peek(end) == '.' && isDigit(l.peek(end+1)) {
			end, float = l.digits(end+1, isDigit), true
		}
		if l.peek(end)|32 == 'e' {
			j := end + 1
			if c := l.peek(j); c == '+' || c == '-' {
				j++
			}
			if isDigit(l.peek(j)) {
				end, float = l.digits(j, isDigit), true
			}
		}
	}
	if !float {
		l.integer(at, end, 10, l.src[at:end])
		return
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(l.src[at:end], "_", ""), 64) // out of range: infinite, as in Python
	l.toks = append(l.toks, token{kind: tokNumber, at: pos(at), num: f})
	l.i = end
}

func (l *lexer) integer(at, end, base int, digits string) {
	digits = strings.ReplaceAll(digits, "_", "")
	if base == 10 && len(digits) > 1 && digits[0] == '0' && strings.Trim(digits, "0") != "" {
		l.fail(at, "number starts with 0: write it without, or as 0o for octal")
	}
	if len(digits) > maxIntDigits {
		l.fail(at, "number has more than "+strconv.Itoa(maxIntDigits)+" digits")
	}
	n, _ := new(big.Int).SetString(digits, base)
	l.toks = append(l.toks, token{kind: tokNumber, at: pos(at), num: normInt(n)})
	l.i = end
}

func (l *lexer) peek(j int) byte {
	if j < len(l.src) {
		return l.src[j]
	}
	return 0
}

// str reads a string literal with Python's escapes.
func (l *lexer) str(quote byte) {
	at := l.i
	j := at + 1
	for j < len(l.src) && l.src[j] != quote {
		if l.src[j] == '\\' {
			j++
		}
		j++
	}
	if j >= len(l.src) {
		l.fail(at, "string is never closed")
	}
	body := l.src[at+1 : j]
	if strings.IndexByte(body, '\\') >= 0 {
		var msg string
		if body, msg = unescape(body); msg != "" {
			l.fail(at, msg)
		}
	}
	l.emit(tokString, at, body)
	l.i = j + 1
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// unescape resolves Python's backslash escapes; an unknown one stays as it is. A surrogate pair becomes its character,
// a lone surrogate U+FFFD.
func unescape(s string) (string, string) {
	var b strings.Builder
	high := rune(0) // a high surrogate waiting for its partner
	put := func(r rune) {
		if high != 0 {
			if r >= 0xdc00 && r < 0xe000 {
				b.WriteRune((high-0xd800)<<10 + (r - 0xdc00) + 0x10000)
				high = 0
				return
			}
			b.WriteRune(utf8.RuneError)
			high = 0
		}
		if r >= 0xd800 && r < 0xdc00 {
			high = r
			return
		}
		b.WriteRune(r) // writes U+FFFD for a low surrogate
	}
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			r, size := utf8.DecodeRuneInString(s[i:])
			put(r)
			i += size
			continue
		}
		c := s[i+1]
		if rep, ok := simpleEscapes[c]; ok {
			for _, r := range rep {
				put(r)
			}
			i += 2
			continue
		}
		if n := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; n > 0 {
			if i+2+n > len(s) {
				return "", "string escape \\" + string(rune(c)) + " is cut short"
			}
			v, err := strconv.ParseUint(s[i+2:i+2+n], 16, 32)
			if err != nil || v > unicode.MaxRune {
				return "", "string escape " + s[i:i+2+n] + " is no character"
			}
			put(rune(v))
			i += 2 + n
			continue
		}
		if c >= '0' && c <= '7' {
			v, j := 0, i+1
			for ; j < len(s) && j < i+4 && s[j] >= '0' && s[j] <= '7'; j++ {
				v = v*8 + int(s[j]-'0')
			}
			put(rune(v))
			i = j
			continue
		}
		put('\\')
		i++
	}
	if high != 0 {
		b.WriteRune(utf8.RuneError)
	}
	return b.String(), ""
}
