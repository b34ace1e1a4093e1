package kv

// Match is the longest prefix of a prompt that pages of the pool contain or will contain. The zero value is no prefix.
type Match struct {
	Tokens int // length

	full       []*node // pages shared by reference
	part       *node   // page of which the first partTokens tokens are copied; nil: none
	partTokens int
}

// Find looks for the longest prefix of tokens in the tenant's prompts and puts it into m. A caller that needs the logits
// of the last token leaves that out of tokens, since it has to be computed.
//
// Where a running sequence has yet to compute part of that prefix, m is not ready.
func (x *Prefixes) Find(tenant string, tokens []int32, m *Match) {
	*m = Match{full: m.full[:0]}
	n := x.roots[tenant]
	for n != nil && m.Tokens < len(tokens) {
		child, length := n.closest(tokens[m.Tokens:min(m.Tokens+PageTokens, len(tokens))])
		if length == 0 {
			break
		}
		m.Tokens += length
		if length < PageTokens {
			m.part, m.partTokens = child, length
			break
		}
		m.full = append(m.full, child)
		n = child
	}
}

// closest is the child that has most first tokens in common with tokens, and their number. Among equals it is one that
// is computed so far, if there is one.
func (n *node) closest(tokens []int32) (*node, int) {
	// In lexical order the longest common prefix is with a neighbour, and those that have it stand together.
	at, _ := n.search(tokens)
	best := 0
	for _, i := range [...]int{at - 1, at} {
		if i >= 0 && i < len(n.children) {
			best = max(best, common(n.children[i].tokens, tokens))
		}
	}
	if best == 0 {
		return nil, 0
	}
	var found *node
	look := func(i, step int) bool {
		for ; i >= 0 && i < len(n.children) && common(n.children[i].tokens, tokens) == best; i += step {
			found = n.children[i]
			if found.filled >= best {
				return true
			}
		}
		return false
	}
	if !look(at, 1) {
		look(at-1, -1)
	}
	return found, best
}

// common is the length of the longest common prefix.
func common(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// last is the node in which the match ends, and how many of its tokens belong to the match.
func (m *Match) last() (n *node, tokens int) {
	switch {
	case m.part != nil:
		return m.part, m.partTokens
	case len(m.full) > 0:
		return m.full[len(m.full)-1], PageTokens
	}
	return nil, 0
}

// Ready tells whether all of the match is computed. A sequence computes its pages in order, and a page has children of
// other sequences only when it is full, so the last one speaks for all.
func (m *Match) Ready() bool {
	n, tokens := m.last()
	return n == nil || n.page != noPage && n.filled >= tokens
}

// Pending tells whether to go on waiting for a match that was not ready. False: it is ready, or whoever computed it was
// stopped; either way Find has to look again. Pages may come and go between the calls.
func (m *Match) Pending() bool {
	n, tokens := m.last()
	return n != nil && n.page != noPage && n.filled < tokens
}

// trim cuts the match to what is computed.
func (m *Match) trim() {
	for i, n := range m.full {
		if n.filled < PageTokens {
			m.part, m.partTokens = n, n.filled
			m.full = m.full[:i]
			break
		}
	}
	if m.part != nil {
		m.partTokens = min(m.partTokens, m.part.filled)
		if m.partTokens == 0 {
			m.part = nil
		}
	}
	m.Tokens = len(m.full)*PageTokens + m.partTokens
}

// Pages is the number of pages shared by reference, Page the number of one of them.
func (m *Match) Pages() int       { return len(m.full) }
func (m *Match) Page(i int) int32 { return m.full[i].page }

// Fits tells whether the pool has the pages to Start a sequence of so many tokens on the match.
func (x *Prefixes) Fits(m *Match, tokens int) bool {
	free := x.pool.Free()
	for _, n := range m.full {
		if x.pool.refs[n.page] == 0 {
			free-- // it will be held, and gives way to nobody
		}
	}
	return PagesFor(tokens)-len(m.full) <= free
}
