package jinja

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Env is what a template may learn from outside its variables.
type Env struct {
	Now time.Time // for strftime_now
}

// exec is the state of one Render.
type exec struct {
	t     *Template
	env   Env
	lib   *library
	vars  map[string]any
	frame *frame
	root  []rootVar // vars by name id, as far as looked up
	out   *builder
	depth int
	caps  int    // nested captures
	from  string // name of the null that a filter is given, for errors
	stack []any

	at             pos // of what is evaluated, for errors
	left, nextLook int
	built          int
	start          time.Time

	main builder
	base frame
	free *frame // frames for reuse
}

type rootVar struct {
	v     any
	known bool
}

var execs = sync.Pool{New: func() any { return new(exec) }}

// Render runs the template. The error is an *Error; it wraps *Raised, ErrLimit, ErrUndefined or ErrNull where one of
// them is the cause.
func (t *Template) Render(vars map[string]any, env Env) (out Text, err error) {
	e := execs.Get().(*exec)
	e.begin(t, vars, env)
	defer func() {
		if r := recover(); r != nil {
			err = e.recovered(r)
			return // a state that failed halfway is not used again
		}
		e.end()
		execs.Put(e)
	}()
	t.body.run(e)
	return e.main.text(), nil
}

func (e *exec) begin(t *Template, vars map[string]any, env Env) {
	e.t, e.vars, e.env, e.lib = t, vars, env, builtins
	e.left, e.nextLook = t.opts.Limits.Steps, t.opts.Limits.Steps-clockSteps
	e.nextLook = max(0, e.nextLook)
	e.built, e.depth, e.caps, e.from = 0, 0, 0, ""
	e.start = time.Now()
	if cap(e.root) < len(t.ids) {
		e.root = make([]rootVar, len(t.ids))
	}
	e.root = e.root[:len(t.ids)]
	e.main.reset()
	e.out = &e.main
	e.base.vars = e.base.vars[:0]
	e.frame = &e.base
}

// keepBytes bounds what a pooled state holds on to after a large row.
const keepBytes = 1 << 20

// end drops all references to the row.
func (e *exec) end() {
	clear(e.root)
	clear(e.base.vars[:cap(e.base.vars)])
	clear(e.stack[:cap(e.stack)])
	e.stack = e.stack[:0]
	e.t, e.vars, e.out, e.frame = nil, nil, nil, nil
	if cap(e.main.buf) > keepBytes {
		e.main.buf = nil
	}
	if e.base.captured {
		e.base = frame{}
	}
}

// fail ends the render with an error at the current position.
func (e *exec) fail(msg string) { e.failWith(nil, msg) }

func (e *exec) failWith(cause error, msg string) {
	panic(newError(e.t.name, e.t.src, e.at, msg, cause))
}

func (e *exec) recovered(r any) error {
	if err, ok := r.(*Error); ok {
		return err
	}
	return newError(e.t.name, e.t.src, e.at, internalFault(r), nil)
}

func recovered(r any, name string) error {
	if err, ok := r.(*Error); ok {
		return err
	}
	return &Error{Name: name, Line: 1, Column: 1, Msg: internalFault(r)}
}

// internalFault words a fault of this package itself, which must not take the process down.
func internalFault(r any) string {
	msg := fmt.Sprintf("internal fault of the template engine: %v", r)
	if _, ok := r.(runtime.Error); ok {
		buf := make([]byte, 4096)
		for _, line := range strings.Split(string(buf[:runtime.Stack(buf, false)]), "\n") {
			if strings.Contains(line, "internal/jinja/") && !strings.Contains(line, "exec.go") {
				return msg + " at " + strings.TrimSpace(line[strings.LastIndexByte(line, '/')+1:])
			}
		}
	}
	return msg
}

// frame is one scope.
type frame struct {
	parent   *frame
	vars     []binding
	captured bool // a macro refers to it: not to be reused
}

type binding struct {
	id int32
	v  any
}

// push opens a scope inside parent.
func (e *exec) push(parent *frame) *frame {
	f := e.free
	if f != nil {
		e.free = f.parent
	} else {
		f = &frame{}
	}
	f.parent = parent
	e.frame = f
	return f
}

// pop closes the scope and returns to another.
func (e *exec) pop(f, to *frame) {
	e.frame = to
	if f.captured {
		return
	}
	clear(f.vars)
	f.vars = f.vars[:0]
	f.parent = e.free
	e.free = f
}

func (f *frame) set(id int32, v any) {
	for i := range f.vars {
		if f.vars[i].id == id {
			f.vars[i].v = v
			return
		}
	}
	f.vars = append(f.vars, binding{id, v})
}

// capture keeps a macro's surroundings alive.
func (f *frame) capture() *frame {
	for g := f; g != nil && !g.captured; g = g.parent {
		g.captured = true
	}
	return f
}

func (e *exec) lookup(id int32) (any, bool) {
	for f := e.frame; f != nil; f = f.parent {
		for i := range f.vars {
			if f.vars[i].id == id {
				return f.vars[i].v, true
			}
		}
	}
	r := &e.root[id]
	if !r.known {
		name := e.t.ids[id]
		if v, ok := e.vars[name]; ok {
			*r = rootVar{e.entry(v), true}
		} else if g := e.lib.globals[name]; g != nil {
			*r = rootVar{g, true}
		} else {
			return nil, false
		}
	}
	return r.v, true
}

// capture runs a body in a scope and with an output of its own, and returns what it wrote.
func (e *exec) capture(body block) (any, signal) {
	back := e.frame
	f := e.push(back)
	v, sig := e.captureIn(body)
	e.pop(f, back)
	return v, sig
}

// captureIn is capture in the current scope.
func (e *exec) captureIn(body block) (any, signal) {
	outer := e.out
	b := &builder{}
	e.out = b
	e.caps++
	sig := body.run(e)
	e.caps--
	e.out = outer
	return b.value(), sig
}

// write sends text to the current output.
func (e *exec) write(s string, lit []Span) {
	e.room(len(s))
	e.out.add(s, lit)
}

func (e *exec) room(n int) {
	if e.caps > 0 {
		e.build(n)
		return
	}
	e.step(n / bytesPerStep)
	if n > e.t.opts.Limits.Output-len(e.out.buf) {
		e.failWith(ErrLimit, fmt.Sprintf("the template writes more than %d bytes", e.t.opts.Limits.Output))
	}
}
