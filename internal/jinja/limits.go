package jinja

import (
	"fmt"
	"time"
)

// Limits bound what a template may do. A zero field means the default.
type Limits struct {
	Steps  int           // nodes evaluated, items visited and blocks of bytes handled
	Depth  int           // nesting of the source, of macro calls and of values that are printed or compared
	Output int           // bytes of the rendered text
	Built  int           // bytes of all strings and lists made on the way
	Time   time.Duration // wall time of one Render
	Source int           // bytes of the template
}

const (
	// DefaultSteps is some hundred times what the longest known chat template needs for a long conversation, and
	// takes about a second.
	DefaultSteps = 10_000_000
	// DefaultDepth is far above what templates use (below 20) and keeps the worst stack, a macro of that depth
	// calling itself that often, at some ten megabytes.
	DefaultDepth = 150
	// DefaultOutput is the longest line that the readers take by default.
	DefaultOutput = 64 << 20
	// DefaultBuilt lets a template hold a few copies of a text of the longest line.
	DefaultBuilt = 512 << 20
	// DefaultTime is a backstop only: the steps end first on any machine of this decade, and a result that depends
	// on the clock would not be reproducible.
	DefaultTime = 30 * time.Second
	// DefaultSource holds the largest known chat templates twenty times, and leaves room for prompts with many
	// examples.
	DefaultSource = 1 << 20
)

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Steps, DefaultSteps)
	def(&l.Depth, DefaultDepth)
	def(&l.Output, DefaultOutput)
	def(&l.Built, DefaultBuilt)
	def(&l.Source, DefaultSource)
	if l.Time <= 0 {
		l.Time = DefaultTime
	}
	return l
}

const (
	// clockSteps is how many steps pass between two looks at the clock.
	clockSteps = 4096
	// bytesPerStep makes an operation on a long string cost as much as the nodes that could be evaluated meanwhile.
	bytesPerStep = 64
	// charsPerStep is the same for operations that look at every character by itself.
	charsPerStep = 4
	// cellBytes is what one list element is charged: an interface value.
	cellBytes = 16
)

// step charges n steps.
func (e *exec) step(n int) {
	e.left -= n
	if e.left < e.nextLook {
		e.look()
	}
}

// look ends the render when the steps or the time are used up.
func (e *exec) look() {
	if e.left < 0 {
		e.failWith(ErrLimit, fmt.Sprintf("the template takes more than %d steps", e.t.opts.Limits.Steps))
	}
	if time.Since(e.start) > e.t.opts.Limits.Time {
		e.failWith(ErrLimit, fmt.Sprintf("the template takes longer than %v", e.t.opts.Limits.Time))
	}
	e.nextLook = max(0, e.left-clockSteps)
}

// scan charges the reading of n bytes.
func (e *exec) scan(n int) { e.step(n / bytesPerStep) }

// build charges n bytes of a string or list that is about to be made. It is called before the memory is taken.
func (e *exec) build(n int) {
	if n < 0 || n > e.t.opts.Limits.Built-e.built {
		e.failWith(ErrLimit, fmt.Sprintf("the template builds more than %d bytes of strings and lists", e.t.opts.Limits.Built))
	}
	e.built += n
	e.step(n / bytesPerStep)
}

// buildCells charges a list of n elements.
func (e *exec) buildCells(n int) {
	if n > e.t.opts.Limits.Built/cellBytes {
		e.build(-1) // refused, without an overflow
	}
	e.build(cellBytes * n)
}

// enter counts one level of calls or of nested values.
func (e *exec) enter() {
	e.depth++
	if e.depth > e.t.opts.Limits.Depth {
		e.failWith(ErrLimit, fmt.Sprintf("the template nests calls or values deeper than %d", e.t.opts.Limits.Depth))
	}
}

func (e *exec) leave() { e.depth-- }
