package jinja

// loop is the variable of that name in a for block.
type loop struct {
	stmt   *forStmt
	items  []any       // what is looped over, or
	r      *rangeValue // a range, not spelt out
	n, i   int
	depth  int
	frame  *frame // around the loop
	caller *loop  // the loop that this one was called from
	last   []any  // arguments of the last changed()
}

func (l *loop) item(e *exec, i int) any {
	if l.r != nil {
		return l.r.at(i)
	}
	return e.entry(l.items[i])
}

func (l *loop) attr(e *exec, name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.i + 1), true
	case "index0":
		return int64(l.i), true
	case "revindex":
		return int64(l.n - l.i), true
	case "revindex0":
		return int64(l.n - l.i - 1), true
	case "first":
		return l.i == 0, true
	case "last":
		return l.i == l.n-1, true
	case "length":
		return int64(l.n), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.i == 0 {
			return &undefined{msg: "there is no previous item"}, true
		}
		return l.item(e, l.i-1), true
	case "nextitem":
		if l.i >= l.n-1 {
			return &undefined{msg: "there is no next item"}, true
		}
		return l.item(e, l.i+1), true
	}
	if fn := e.lib.loops[name]; fn != nil {
		return &method{l, fn}, true
	}
	return nil, false
}

// recurse is loop(items) in a recursive loop: the loop over other items, as a string.
func (l *loop) recurse(e *exec, a arguments) any {
	if !l.stmt.recursive {
		e.fail("the loop is not marked recursive")
	}
	if len(a.pos) != 1 || len(a.kw) > 0 {
		e.fail("loop() takes one argument")
	}
	at := e.at
	e.enter()
	outer := e.out
	b := &builder{}
	e.out = b
	e.caps++
	l.stmt.loop(e, a.pos[0], l)
	e.caps--
	e.out = outer
	e.leave()
	e.at = at
	return b.value()
}

var loopMethods = map[string]*builtin{
	"cycle": spec("cycle *", func(e *exec, self any, c call) any {
		if len(c.rest) == 0 {
			e.fail("no items for cycling given")
		}
		return c.rest[self.(*loop).i%len(c.rest)]
	}),
	"changed": spec("changed *", func(e *exec, self any, c call) any {
		l := self.(*loop)
		if l.last != nil && e.equalItems(l.last, c.rest) {
			return false
		}
		e.buildCells(len(c.rest))
		l.last = append([]any{}, c.rest...)
		return true
	}),
}

// cycler goes round its items with next().
type cycler struct {
	items []any
	i     int
}

func (c *cycler) next() any {
	v := c.items[c.i]
	c.i = (c.i + 1) % len(c.items)
	return v
}

// joiner is empty at the first call and its separator afterwards.
type joiner struct {
	sep  any
	used bool
}

func (j *joiner) next() any {
	if !j.used {
		j.used = true
		return ""
	}
	return j.sep
}
