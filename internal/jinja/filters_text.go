package jinja

import (
	"fmt"
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textFilters are the filters on strings; other values are taken as their text.
var textFilters = map[string]*builtin{
	"capitalize":     spec("capitalize", wholeOp(titleFirst)),
	"center":         spec("center width=", func(e *exec, v any, c call) any { return centerText(e, v, c.num(e, 0, 80)) }),
	"e":              spec("e", escape),
	"escape":         spec("escape", escape),
	"filesizeformat": spec("filesizeformat binary=", fileSize),
	"forceescape":    spec("forceescape", escape),
	"format":         spec("format *", formatFilter),
	"indent":         spec("indent width= first= blank=", indent),
	"lower":          spec("lower", textOp(lower)),
	"replace":        spec("replace old new count=", strReplace),
	"safe":           spec("safe", textOf),
	"string":         spec("string", textOf),
	"striptags":      spec("striptags", wholeOp(stripTags)),
	"title":          spec("title", wholeOp(titleWords)),
	"trim":           spec("trim chars=", strip(true, true)),
	"truncate":       spec("truncate length= killwords= end= leeway=", truncateText),
	"upper":          spec("upper", textOp(upper)),
	"urlencode":      spec("urlencode", urlEncode),
	"wordcount":      spec("wordcount", wordCount),
	"wordwrap":       spec("wordwrap width= break_long_words= wrapstring= break_on_hyphens=", wordWrap),
}

func textOf(e *exec, v any, _ call) any {
	s, lit := e.toText(v)
	return makeString(s, lit)
}

func centerText(e *exec, v any, width int) any {
	s, lit := e.toText(v)
	return pad(0)(e, makeString(s, lit), call{name: "center", p: []any{int64(width), missing}})
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

func escape(e *exec, v any, _ call) any {
	s, lit := e.toText(v)
	e.build(5 * len(s))
	return mapped(s, lit, escaper.Replace)
}

func formatFilter(e *exec, v any, c call) any {
	if len(c.rest) > 0 && len(c.kw) > 0 {
		e.fail("format takes positional or keyword arguments, not both")
	}
	s, lit := e.toText(v)
	return e.percent(s, lit, tuple(c.rest), c.kw)
}

// indent puts blanks before each line but the first, and not before empty lines.
func indent(e *exec, v any, c call) any {
	e.wantString(v, "value for "+c.name)
	s, lit := e.toText(v)
	by, byLit := "", []Span(nil)
	if c.has(0) && isString(c.p[0]) {
		by, byLit = e.toText(c.p[0])
	} else {
		n := max(0, c.num(e, 0, 4))
		if n > maxPad {
			e.build(-1)
		}
		by = strings.Repeat(" ", n)
	}
	first, blank := c.flag(e, 1, false), c.flag(e, 2, false)
	e.step(len(s) / charsPerStep)
	lines := splitLines(s)
	if s == "" || lines[len(lines)-1][1] < lines[len(lines)-1][2] { // a newline at the end opens one more line
		lines = append(lines, [3]int{len(s), len(s), len(s)})
	}
	if len(by) > maxSize/len(lines) {
		e.build(-1)
	}
	e.build(len(s) + len(by)*len(lines))
	var b builder
	for i, l := range lines {
		if i > 0 {
			if prev := lines[i-1]; s[prev[1]:prev[2]] == "\n" {
				b.sub(s, lit, prev[1], prev[2])
			} else {
				b.data("\n")
			}
		}
		if i == 0 && first || i > 0 && (blank || l[1] > l[0]) {
			b.add(by, byLit)
		}
		b.sub(s, lit, l[0], l[1])
	}
	return b.value()
}

// stripTags removes comments and tags, resolves entities and makes every run of whitespace one blank.
func stripTags(s string) string {
	drop := func(open, end string) {
		var b strings.Builder
		for {
			i := strings.Index(s, open)
			if i < 0 {
				break
			}
			j := strings.Index(s[i:], end)
			if j < 0 {
				break
			}
			b.WriteString(s[:i])
			s = s[i+j+len(end):]
		}
		s = b.String() + s
	}
	drop("<!--", "-->")
	drop("<", ">")
	return html.UnescapeString(strings.Join(strings.FieldsFunc(s, isSpace), " "))
}

// titleWords is Jinja2's title filter: words start behind blanks, dashes and opening brackets.
func titleWords(s string) string {
	var b strings.Builder
	flush := func(word string) {
		if word != "" {
			n := runeLen(word)
			b.WriteString(upper(word[:n]) + lower(word[n:]))
		}
	}
	from := 0
	for i, r := range s {
		if r == '-' || r == '(' || r == '{' || r == '[' || r == '<' || isSpace(r) {
			flush(s[from:i])
			from = i + runeLen(s[i:])
			b.WriteString(s[i:from])
		}
	}
	flush(s[from:])
	return b.String()
}

func truncateText(e *exec, v any, c call) any {
	if n, ok := e.length(v); ok && !isString(v) && n <= c.num(e, 0, 255)+c.num(e, 3, 5) {
		return v
	}
	e.wantString(v, "value for "+c.name)
	s, lit := e.toText(v)
	length, killwords, leeway := c.num(e, 0, 255), c.flag(e, 1, false), c.num(e, 3, 5)
	end, endLit := "...", []Span(nil)
	if c.has(2) {
		end, endLit = e.toText(c.p[2])
	}
	endLen := e.runes(end)
	if length < endLen {
		e.fail(fmt.Sprintf("truncate needs a length of at least %d, got %d", endLen, length))
	}
	if leeway < 0 {
		e.fail(fmt.Sprintf("truncate needs a leeway of at least 0, got %d", leeway))
	}
	if e.runes(s) <= length+leeway {
		return makeString(s, lit)
	}
	cut := e.byteAt(s, length-endLen)
	if !killwords {
		if i := strings.LastIndexByte(s[:cut], ' '); i >= 0 {
			cut = i
		}
	}
	return e.join([]any{substring(s, lit, 0, cut), makeString(end, endLit)})
}

func fileSize(e *exec, v any, c call) any {
	var n float64
	switch x := intOf(v).(type) {
	case string, *Text:
		s, _, _ := asString(x)
		f, ok := parseFloat(s)
		if !ok {
			e.fail("filesizeformat needs a number")
		}
		n = f
	default:
		if !isNumber(x) {
			e.fail("filesizeformat needs a number, not '" + typeName(v) + "'")
		}
		n = e.toFloat(x)
	}
	base, units := 1000.0, []string{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"}
	if c.flag(e, 0, false) {
		base, units = 1024, []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}
	}
	if n == 1 {
		return "1 Byte"
	}
	if n < base {
		return fmt.Sprintf("%d Bytes", int64(n))
	}
	unit := base
	for i, u := range units {
		unit *= base
		if n < unit || i == len(units)-1 {
			return fmt.Sprintf("%.1f %s", base*n/unit, u)
		}
	}
	return ""
}

func urlEncode(e *exec, v any, _ call) any {
	quote := func(v any, plus bool) string {
		s := e.toString(v)
		e.build(3 * len(s))
		var b strings.Builder
		for i := range len(s) {
			c := s[i]
			switch {
			case isDigit(c) || c|32 >= 'a' && c|32 <= 'z' || strings.IndexByte("_.-~", c) >= 0, c == '/' && !plus:
				b.WriteByte(c)
			case c == ' ' && plus:
				b.WriteByte('+')
			default:
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
		return b.String()
	}
	if isString(v) || !iterable(v) {
		return quote(v, false)
	}
	var pairs []any
	if isDict(v) {
		pairs = e.viewItems(&dictView{v, "items"})
	} else {
		pairs = e.items(v)
	}
	out := make([]string, len(pairs))
	n := 0
	for i, p := range pairs {
		kv := e.items(e.entry(p))
		if len(kv) != 2 {
			e.fail("urlencode needs pairs")
		}
		out[i] = quote(e.entry(kv[0]), true) + "=" + quote(e.entry(kv[1]), true)
		n += len(out[i]) + 1
	}
	e.build(n)
	return strings.Join(out, "&")
}

func isWord(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r)
}

func wordCount(e *exec, v any, _ call) any {
	s, _ := e.toText(v)
	e.step(len(s) / charsPerStep)
	return int64(len(strings.FieldsFunc(s, func(r rune) bool { return !isWord(r) })))
}

// wordWrap breaks lines at blanks and behind hyphens so that none is longer than the width.
func wordWrap(e *exec, v any, c call) any {
	e.wantString(v, "value for "+c.name)
	s, lit := e.toText(v)
	width, long, hyphens := c.num(e, 0, 79), c.flag(e, 1, true), c.flag(e, 3, true)
	nl, nlLit := "\n", []Span(nil)
	if c.has(2) && c.p[2] != nil {
		nl, nlLit = e.toText(c.p[2])
	}
	if width <= 0 {
		e.fail("wordwrap needs a width above 0")
	}
	e.step(len(s))
	e.build(len(s))
	var b builder
	for i, l := range splitLines(s) {
		if i > 0 {
			e.build(len(nl))
			b.add(nl, nlLit)
		}
		for k, cut := range wrapLine(s[l[0]:l[1]], width, long, hyphens) {
			if k > 0 {
				e.build(len(nl))
				b.add(nl, nlLit)
			}
			b.sub(s, lit, l[0]+cut[0], l[0]+cut[1])
		}
	}
	return b.value()
}

// wrapLine cuts one line into byte ranges. Blanks at a break are dropped.
func wrapLine(s string, width int, long, hyphens bool) (lines [][2]int) {
	chunks := wrapChunks(s, hyphens)
	start, end, used := -1, 0, 0 // of the line being filled
	flush := func() {
		if start >= 0 {
			if e := start + len(strings.TrimRightFunc(s[start:end], isSpace)); e > start {
				lines = append(lines, [2]int{start, e})
			}
		}
		start, used = -1, 0
	}
	for _, ch := range chunks {
		n := utf8.RuneCountInString(s[ch[0]:ch[1]])
		blank := strings.TrimLeftFunc(s[ch[0]:ch[1]], isSpace) == ""
		if used+n > width && !blank && n > width && long {
			for at := ch[0]; at < ch[1]; { // fill this line and further ones with its parts
				if used >= width {
					flush()
				}
				j := min(ch[1], at+byteAt(s[at:ch[1]], width-used))
				if start < 0 {
					start = at
				}
				used += utf8.RuneCountInString(s[at:j])
				at, end = j, j
			}
			continue
		}
		if used+n > width {
			flush()
		}
		if start < 0 && blank && (len(lines) > 0) {
			continue
		}
		if start < 0 {
			start = ch[0]
		}
		end = ch[1]
		used += n
	}
	flush()
	return lines
}

// wrapChunks cuts a line into blanks and words, and words behind a hyphen between letters.
func wrapChunks(s string, hyphens bool) (chunks [][2]int) {
	from := 0
	var before, last rune // the two characters read last
	for i, r := range s {
		cut := i > 0 && isSpace(r) != isSpace(last)
		cut = cut || hyphens && last == '-' && isWord(before) && unicode.IsLetter(r)
		if cut {
			chunks = append(chunks, [2]int{from, i})
			from, before = i, 0
		} else {
			before = last
		}
		last = r
	}
	if from < len(s) {
		chunks = append(chunks, [2]int{from, len(s)})
	}
	return chunks
}
