package jinja

import (
	"strconv"
	"strings"
	"unicode"
)

// stringMethods are Python's str methods. Those on bytes and on translation tables are left out.
var stringMethods = map[string]*builtin{
	"upper":        spec("upper", textOp(upper)),
	"lower":        spec("lower", textOp(lower)),
	"casefold":     spec("casefold", textOp(casefold)),
	"swapcase":     spec("swapcase", textOp(swapcase)),
	"title":        spec("title", wholeOp(pyTitle)),
	"capitalize":   spec("capitalize", wholeOp(titleFirst)),
	"strip":        spec("strip chars=", strip(true, true)),
	"lstrip":       spec("lstrip chars=", strip(true, false)),
	"rstrip":       spec("rstrip chars=", strip(false, true)),
	"split":        spec("split sep= maxsplit=", split(false)),
	"rsplit":       spec("rsplit sep= maxsplit=", split(true)),
	"splitlines":   spec("splitlines keepends=", strSplitLines),
	"partition":    spec("partition sep", partition(strings.Index)),
	"rpartition":   spec("rpartition sep", partition(strings.LastIndex)),
	"startswith":   spec("startswith prefix start= end=", affix(strings.HasPrefix)),
	"endswith":     spec("endswith suffix start= end=", affix(strings.HasSuffix)),
	"replace":      spec("replace old new count=", strReplace),
	"join":         spec("join iterable", strJoin),
	"find":         spec("find sub start= end=", find(false, false)),
	"rfind":        spec("rfind sub start= end=", find(true, false)),
	"index":        spec("index sub start= end=", find(false, true)),
	"rindex":       spec("rindex sub start= end=", find(true, true)),
	"count":        spec("count sub start= end=", strCount),
	"removeprefix": spec("removeprefix prefix", removeAffix(true)),
	"removesuffix": spec("removesuffix suffix", removeAffix(false)),
	"center":       spec("center width fillchar=", pad(0)),
	"ljust":        spec("ljust width fillchar=", pad(-1)),
	"rjust":        spec("rjust width fillchar=", pad(1)),
	"zfill":        spec("zfill width", zfill),
	"expandtabs":   spec("expandtabs tabsize=", expandTabs),
	"format":       spec("format *", strFormat),
	"format_map":   spec("format_map mapping", strFormat),
	"isdigit":      spec("isdigit", predicate(isDigitRune)),
	"isdecimal":    spec("isdecimal", predicate(func(r rune) bool { return unicode.Is(unicode.Nd, r) })),
	"isnumeric":    spec("isnumeric", predicate(unicode.IsNumber)),
	"isalpha":      spec("isalpha", predicate(unicode.IsLetter)),
	"isalnum":      spec("isalnum", predicate(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) })),
	"isspace":      spec("isspace", predicate(isSpace)),
	"isupper":      spec("isupper", caseTest(unicode.IsUpper, unicode.IsLower)),
	"islower":      spec("islower", caseTest(unicode.IsLower, unicode.IsUpper)),
	"istitle": spec("istitle", func(e *exec, self any, _ call) any {
		s, _ := e.toText(self)
		e.build(3 * len(s))
		return s == pyTitle(s) && strings.IndexFunc(s, func(r rune) bool { return unicode.IsUpper(r) || unicode.IsTitle(r) }) >= 0
	}),
	"isascii": spec("isascii", func(e *exec, self any, _ call) any {
		s, _ := e.toText(self)
		e.scan(len(s))
		return ascii(s)
	}),
	"isidentifier": spec("isidentifier", func(e *exec, self any, _ call) any {
		s, _ := e.toText(self)
		e.scan(len(s))
		for i, r := range s {
			if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r) && !unicode.IsMark(r)) {
				return false
			}
		}
		return s != ""
	}),
}

func strSplitLines(e *exec, self any, c call) any {
	s, lit := e.toText(self)
	e.step(len(s) / charsPerStep)
	lines := splitLines(s)
	e.buildCells(3 * len(lines))
	out := make([]any, len(lines))
	for i, l := range lines {
		end := l[1]
		if c.flag(e, 0, false) {
			end = l[2]
		}
		out[i] = substring(s, lit, l[0], end)
	}
	return out
}

func partition(index func(s, sep string) int) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, lit := e.toText(self)
		e.scan(len(s))
		sep := e.wantString(c.p[0], "separator")
		if sep == "" {
			e.fail("empty separator")
		}
		i := index(s, sep)
		if i < 0 {
			if c.name == "rpartition" {
				return tuple{"", "", self}
			}
			return tuple{self, "", ""}
		}
		j := i + len(sep)
		return tuple{substring(s, lit, 0, i), substring(s, lit, i, j), substring(s, lit, j, len(s))}
	}
}

// window is the part of a string between the optional start and end of find, count and their like: its byte offsets,
// and the index of its first character. ok is false where start lies behind the end of the string.
func (e *exec) window(s string, start, end any) (i, j, first int, ok bool) {
	if start == missing && end == missing {
		return 0, len(s), 0, true
	}
	n := e.runes(s)
	from, to, _ := e.bounds(n, orNone(start), orNone(end), nil)
	if st := orNone(start); st != nil && e.wantInt(st, "start") > n {
		return 0, 0, 0, false
	}
	i = e.byteAt(s, from)
	return i, i + e.byteAt(s[i:], max(0, to-from)), from, from <= to
}

func affix(has func(s, part string) bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, _ := e.toText(self)
		i, j, _, ok := e.window(s, c.p[1], c.p[2])
		parts := tuple{c.p[0]}
		if t, isTuple := c.p[0].(tuple); isTuple {
			parts = t
		}
		for _, p := range parts {
			e.step(1)
			part := e.wantString(p, "argument of "+c.name)
			e.scan(min(len(part), len(s)))
			if ok && has(s[i:j], part) {
				return true
			}
		}
		return false
	}
}

func strReplace(e *exec, self any, c call) any {
	s, lit := e.toText(self)
	old, _ := e.toText(c.p[0])
	repl, replLit := e.toText(c.p[1])
	n := c.num(e, 2, -1)
	e.scan(len(s))
	if n == 0 {
		return self
	}
	k := strings.Count(s, old)
	if n > 0 {
		k = min(k, n)
	}
	if k == 0 {
		return makeString(s, lit)
	}
	if len(repl) > maxSize/k {
		e.build(-1)
	}
	e.build(len(s) + k*len(repl))
	if len(lit) > 0 || len(replLit) > 0 {
		e.buildCells(k)
	}
	return replaced(s, lit, old, repl, replLit, n)
}

// joinAll joins values as strings with a separator.
func (e *exec) joinAll(items []any, sep string, sepLit []Span) any {
	var b builder
	for i, v := range items {
		e.step(1)
		if i > 0 {
			e.build(len(sep))
			b.add(sep, sepLit)
		}
		if v = e.entry(v); v == nil && e.t.opts.Strict {
			e.failWith(ErrNull, "item "+strconv.Itoa(i)+" of what is joined is null; leave nulls out with | reject('none')")
		}
		s, lit := e.toText(v)
		e.build(len(s))
		b.add(s, lit)
	}
	return b.value()
}

func strJoin(e *exec, self any, c call) any {
	sep, lit := e.toText(self)
	items := e.items(c.p[0])
	for i, v := range items {
		if v = e.entry(v); !isString(v) && !(v == nil && e.t.opts.Strict) {
			e.fail("join: item " + e.print(int64(i), false) + " is not a string but '" + typeName(v) + "'")
		}
	}
	return e.joinAll(items, sep, lit)
}

func find(last, must bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, _ := e.toText(self)
		sub := e.wantString(c.p[0], "argument of "+c.name)
		e.scan(len(s))
		i, j, first, ok := e.window(s, c.p[1], c.p[2])
		at := -1
		if ok && last {
			at = strings.LastIndex(s[i:j], sub)
		} else if ok {
			at = strings.Index(s[i:j], sub)
		}
		if at < 0 {
			if must {
				e.fail("substring not found")
			}
			return int64(-1)
		}
		return int64(first + e.runes(s[i:i+at]))
	}
}

func strCount(e *exec, self any, c call) any {
	s, _ := e.toText(self)
	sub := e.wantString(c.p[0], "argument of count")
	e.scan(len(s))
	i, j, _, ok := e.window(s, c.p[1], c.p[2])
	if !ok {
		return int64(0)
	}
	return int64(strings.Count(s[i:j], sub))
}

func removeAffix(prefix bool) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, lit := e.toText(self)
		part := e.wantString(c.p[0], "argument of "+c.name)
		if prefix && strings.HasPrefix(s, part) {
			return substring(s, lit, len(part), len(s))
		}
		if !prefix && strings.HasSuffix(s, part) {
			return substring(s, lit, 0, len(s)-len(part))
		}
		return makeString(s, lit)
	}
}

// pad fills to a width: before the text where side > 0, behind it where side < 0, around it where side is 0.
func pad(side int) func(e *exec, self any, c call) any {
	return func(e *exec, self any, c call) any {
		s, lit := e.toText(self)
		fill, fillLit := " ", []Span(nil)
		if c.has(1) {
			fill, fillLit = e.toText(c.p[1])
			if e.runes(fill) != 1 {
				e.fail("the fill character must be exactly one character long")
			}
		}
		width := e.wantInt(c.p[0], "width")
		n := width - e.runes(s)
		if n <= 0 {
			return makeString(s, lit)
		}
		left := 0
		switch {
		case side > 0:
			left = n
		case side == 0:
			left = n/2 + n&width&1 // Python's choice where it does not come out even
		}
		return e.join([]any{e.repeat(fill, fillLit, left), makeString(s, lit), e.repeat(fill, fillLit, n-left)})
	}
}

func zfill(e *exec, self any, c call) any {
	s, lit := e.toText(self)
	n := e.wantInt(c.p[0], "width") - e.runes(s)
	if n <= 0 {
		return makeString(s, lit)
	}
	sign := 0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		sign = 1
	}
	return e.join([]any{substring(s, lit, 0, sign), e.repeat("0", nil, n), substring(s, lit, sign, len(s))})
}

func expandTabs(e *exec, self any, c call) any {
	s, lit := e.toText(self)
	size := c.num(e, 0, 8)
	if size > maxPad {
		e.build(-1)
	}
	var b builder
	col := 0
	for i, r := range s {
		e.step(1)
		switch r {
		case '\t':
			if size > 0 {
				n := size - col%size
				e.build(n)
				b.data(strings.Repeat(" ", n))
				col += n
			}
			continue
		case '\n', '\r':
			col = -1
		}
		col++
		e.build(1)
		b.sub(s, lit, i, i+runeLen(s[i:]))
	}
	return b.value()
}
