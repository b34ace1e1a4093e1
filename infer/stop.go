package infer

import "strings"

// stopMatcher looks for stop strings in a text that arrives in pieces, across the borders of tokens. What may still
// become part of a stop string is held back; the released pieces together never hold any of the matched one. It starts
// from the zero value with stops set.
//
// After each piece the text that is not released is searched: the match that starts earliest in the text wins, among
// those the shortest (it would have been complete first had the text come byte by byte), whatever the list's order.
type stopMatcher struct {
	stops []string
	held  string
}

// push takes the next piece. released is text that is final; stop is the string that was found, after which the rest of
// the text is void.
func (m *stopMatcher) push(piece string) (released, stop string, found bool) {
	if len(m.stops) == 0 {
		return piece, "", false
	}
	if piece == "" {
		return "", "", false
	}
	text := m.held + piece
	at := -1
	for _, s := range m.stops {
		i := strings.Index(text, s)
		if i >= 0 && (at < 0 || i < at || (i == at && len(s) < len(stop))) {
			at, stop = i, s
		}
	}
	if at >= 0 {
		m.held = ""
		return text[:at], stop, true
	}
	keep := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, s[:n]) {
				keep = n
			}
		}
	}
	cut := len(text) - keep
	m.held = text[cut:]
	return text[:cut], "", false
}

// flush releases what was held back, at the end of a text without a match.
func (m *stopMatcher) flush() string {
	rest := m.held
	m.held = ""
	return rest
}
