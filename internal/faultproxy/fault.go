package faultproxy

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
)

// Kind is one way in which a request goes wrong.
type Kind string

// Faults before the server: nothing was done.
const (
	InternalError Kind = "500 before" // InternalError
	SlowDown      Kind = "503 before" // SlowDown
	Timeout       Kind = "400 RequestTimeout before"
	Reset         Kind = "reset before"
	Conflict      Kind = "409 before" // ConditionalRequestConflict, on conditional writes only
)

// Faults after the server did what it was asked: writes only.
const (
	ErrorAfter   Kind = "500 after"
	ResetAfter   Kind = "reset after"
	TimeoutAfter Kind = "no answer after" // the connection stays silent for a pause, then closes
)

// Others.
const (
	// Late answers with a reset and lets the write reach the server after a pause: it may land behind the client's next
	// try, or after the client's death. Puts and completions of uploads only: a delete that lands late could remove what
	// was written since, and no client could do anything about it.
	Late Kind = "landed late"
	// Truncate ends the body of a read half-way.
	Truncate Kind = "body cut"
	// Delay holds the request for a pause, and then serves it.
	Delay Kind = "delay"
)

// Kinds are all of them.
var Kinds = []Kind{InternalError, SlowDown, Timeout, Reset, Conflict, ErrorAfter, ResetAfter, TimeoutAfter, Late, Truncate, Delay}

// fits tells whether a kind makes sense for a request.
func (k Kind) fits(op Op, r *http.Request) bool {
	switch k {
	case Conflict:
		return conditional(r) && (op == Put || op == Complete)
	case ErrorAfter, ResetAfter, TimeoutAfter:
		return op.writes()
	case Late:
		return op == Put || op == Complete
	case Truncate:
		return op == Get
	}
	return true
}

// Rule makes a share of requests go wrong in one way.
type Rule struct {
	Kind Kind
	Ops  []Op    // nil: every operation that the kind makes sense for
	Rate float64 // 0 to 1
}

// Storm is a rule for every kind; about the given share of requests is hit, of conditional writes more.
func Storm(rate float64) []Rule {
	var rules []Rule
	for _, k := range Kinds {
		rules = append(rules, Rule{Kind: k, Rate: rate / 6}) // reads know six of the kinds, writes nine or ten
	}
	return rules
}

// draw chooses what happens to the n-th request (from 0) for an operation on a path; "" is nothing.
func draw(rules []Rule, seed uint64, op Op, r *http.Request, n int) Kind {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %s %d", seed, op, r.URL.Path, n))
	u := float64(binary.LittleEndian.Uint64(sum[:])>>11) / (1 << 53)
	for _, rule := range rules {
		if !rule.Kind.fits(op, r) || rule.Ops != nil && !slices.Contains(rule.Ops, op) {
			continue
		}
		if u < rule.Rate {
			return rule.Kind
		}
		u -= rule.Rate
	}
	return ""
}
