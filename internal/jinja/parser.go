package jinja

import (
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"
)

// Options choose the dialect.
type Options struct {
	TrimBlocks   bool // drop the newline after a block
	LstripBlocks bool // drop blanks between a line's start and a block
	// Strict makes an undefined value an error wherever it is printed or used; "is defined" and default() remain. A null
	// is an error where it would be written as text, by itself or as part of a string; inside a printed list or dict it
	// is None as in Python.
	Strict bool
	Limits Limits
}

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	name  string
	src   string
	opts  Options
	body  block
	ids   []string // variable names by id
	free  []string
	words map[string]bool
}

// Names lists the variables that the template reads and does not set itself, sorted. Left out are built-in functions
// and names that the template itself expects to be missing: those it tests with "is defined" or gives a default.
func (t *Template) Names() []string { return t.free }

// Mentions tells whether a word appears in the template as an attribute, a keyword or a whole string literal.
func (t *Template) Mentions(word string) bool { return t.words[word] }

// Parse reads a template; name is used in errors. The error is an *Error.
func Parse(name, src string, o Options) (t *Template, err error) {
	o.Limits = o.Limits.withDefaults()
	if len(src) > o.Limits.Source {
		return nil, &Error{Name: name, Line: 1, Column: 1, Err: ErrLimit,
			Msg: fmt.Sprintf("the template has %d bytes, more than the %d allowed", len(src), o.Limits.Source)}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Name: name, Line: 1, Column: 1, Msg: "the template is not valid UTF-8"}
	}
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, recovered(r, name)
		}
	}()
	src = normalize(src)
	l := lexer{name: name, src: src, opts: o}
	p := parser{name: name, src: src, opts: o, toks: l.run(), index: map[string]int32{}, uses: map[int32]int{},
		guarded: map[int32]bool{}, words: map[string]bool{}, scopes: []map[int32]bool{{}}}
	for i, n := range reservedNames {
		p.index[n] = int32(i)
	}
	p.names = slices.Clone(reservedNames)
	body := p.block()
	if p.cur().kind != tokEOF {
		p.fail("unexpected " + p.describe())
	}
	return &Template{name: name, src: src, opts: o, body: body, ids: p.names, free: p.freeNames(), words: p.words}, nil
}

// Names with a meaning of their own get fixed ids.
const (
	idLoop int32 = iota
	idCaller
	idVarargs
	idKwargs
)

var reservedNames = []string{"loop", "caller", "varargs", "kwargs"}

type parser struct {
	name string
	src  string
	opts Options
	toks []token
	i    int

	depth  int // nesting of statements and parentheses
	height int // of the expression parsed last

	names   []string
	index   map[string]int32
	scopes  []map[int32]bool // names bound so far, innermost last
	uses    map[int32]int    // reads of names that were not bound
	guarded map[int32]bool
	words   map[string]bool
	loops   int // loops around, within the macro
	macros  []*macroDef
}

func (p *parser) failAt(at pos, msg string) { panic(newError(p.name, p.src, at, msg, nil)) }

func (p *parser) fail(msg string) { p.failAt(p.cur().at, msg) }

func (p *parser) tooDeep(at pos) {
	panic(newError(p.name, p.src, at, fmt.Sprintf("the template is nested deeper than %d", p.opts.Limits.Depth), ErrLimit))
}

func (p *parser) enter() {
	p.depth++
	if p.depth > p.opts.Limits.Depth {
		p.tooDeep(p.cur().at)
	}
}

func (p *parser) leave() { p.depth-- }

// grow sets the height of an expression around others.
func (p *parser) grow(heights ...int) {
	p.height = slices.Max(heights) + 1
	if p.height > p.opts.Limits.Depth {
		p.tooDeep(p.cur().at)
	}
}

func (p *parser) cur() *token { return &p.toks[p.i] }

func (p *parser) ahead() *token { return &p.toks[min(p.i+1, len(p.toks)-1)] }

func (p *parser) next() *token {
	t := &p.toks[p.i]
	if p.i < len(p.toks)-1 {
		p.i++
	}
	return t
}

func (p *parser) isOp(op string) bool   { t := p.cur(); return t.kind == tokOp && t.val == op }
func (p *parser) isName(n string) bool  { t := p.cur(); return t.kind == tokName && t.val == n }
func (p *parser) skipOp(op string) bool { return p.skip(p.isOp(op)) }
func (p *parser) skipName(n string) bool {
	return p.skip(p.isName(n))
}

func (p *parser) skip(is bool) bool {
	if is {
		p.next()
	}
	return is
}

func (p *parser) wantOp(op string) *token {
	if !p.isOp(op) {
		p.fail("expected " + op + ", found " + p.describe())
	}
	return p.next()
}

func (p *parser) wantName() *token {
	if p.cur().kind != tokName {
		p.fail("expected a name, found " + p.describe())
	}
	return p.next()
}

func (p *parser) wantEnd() {
	if p.cur().kind != tokBlockEnd {
		p.fail("expected %}, found " + p.describe())
	}
	p.next()
}

func (p *parser) describe() string {
	switch t := p.cur(); t.kind {
	case tokEOF:
		return "the end of the template"
	case tokBlockEnd:
		return "%}"
	case tokVarEnd:
		return "}}"
	case tokName, tokOp:
		return t.val
	case tokString:
		return "a string"
	case tokNumber:
		return "a number"
	}
	return "text"
}

func (p *parser) id(name string) int32 {
	if id, ok := p.index[name]; ok {
		return id
	}
	id := int32(len(p.names))
	p.names = append(p.names, name)
	p.index[name] = id
	return id
}

func (p *parser) push() { p.scopes = append(p.scopes, map[int32]bool{}) }
func (p *parser) pop()  { p.scopes = p.scopes[:len(p.scopes)-1] }

func (p *parser) bind(id int32) { p.scopes[len(p.scopes)-1][id] = true }

func (p *parser) bindTarget(t target) {
	for _, part := range t.tuple {
		p.bindTarget(part)
	}
	if t.tuple == nil && t.attr == "" {
		p.bind(t.id)
	}
}

func (p *parser) bound(id int32) bool {
	for _, s := range p.scopes {
		if s[id] {
			return true
		}
	}
	return false
}

// read notes that a name is read and returns its id.
func (p *parser) read(name string) int32 {
	id := p.id(name)
	if !p.bound(id) {
		p.uses[id]++
	}
	for _, m := range p.macros { // a call block inside a macro sees the macro's names
		m.varargs = m.varargs || id == idVarargs
		m.kwargs = m.kwargs || id == idKwargs
		m.caller = m.caller || id == idCaller
	}
	return id
}

// unread takes back the read of a name that may be missing; forAll says that this holds for its other reads too.
func (p *parser) unread(x expr, forAll bool) {
	if n, ok := x.(*nameExpr); ok && !p.bound(n.id) {
		p.uses[n.id]--
		if forAll {
			p.guarded[n.id] = true
		}
	}
}

func (p *parser) freeNames() []string {
	free := []string{}
	for id, n := range p.uses {
		if n > 0 && !p.guarded[id] && builtins.globals[p.names[id]] == nil {
			free = append(free, p.names[id])
		}
	}
	sort.Strings(free)
	return free
}

// block parses statements up to a tag that it does not know (an end tag, which the caller takes) or the end.
func (p *parser) block() block {
	p.enter()
	defer p.leave()
	var b block
	for {
		t := p.cur()
		switch t.kind {
		case tokData:
			b = append(b, &textStmt{t.val})
			p.next()
		case tokVarBegin:
			p.next()
			x := p.tuple(false, true)
			if p.cur().kind != tokVarEnd {
				p.fail("expected }}, found " + p.describe())
			}
			p.next()
			b = append(b, &outStmt{t.at, x})
		case tokBlockBegin:
			if k := p.ahead(); k.kind != tokName || endTags[k.val] {
				if k.kind != tokName {
					p.failAt(k.at, "expected the name of a tag")
				}
				return b
			}
			p.next()
			b = append(b, p.statement())
		default:
			return b
		}
	}
}

// endTags close or divide a block.
var endTags = map[string]bool{
	"elif": true, "else": true, "endif": true, "endfor": true, "endset": true, "endmacro": true, "endcall": true,
	"endfilter": true, "endwith": true, "endgeneration": true,
}

// body parses a block and its end tag.
func (p *parser) body(open pos, end string) block {
	b := p.block()
	p.endTag(open, end)
	p.wantEnd()
	return b
}

// endTag moves behind the name of one of the tags, which must come next, and returns it.
func (p *parser) endTag(open pos, tags ...string) string {
	if p.cur().kind == tokEOF {
		p.failAt(open, "block is never closed: {% "+tags[len(tags)-1]+" %} is missing")
	}
	p.next()
	t := p.wantName()
	if !slices.Contains(tags, t.val) {
		p.failAt(t.at, "unexpected {% "+t.val+" %}, expected {% "+tags[len(tags)-1]+" %}")
	}
	return t.val
}
