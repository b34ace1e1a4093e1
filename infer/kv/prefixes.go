package kv

import (
	"fmt"
	"slices"
)

// Prefixes knows which prompts' tokens the pages of a pool contain, per tenant. It is a tree whose edges are pages: a
// node is a page with the (at most PageTokens) prompt tokens in it, and its children are the pages that follow. Two
// prompts that part inside a page have two pages for it, side by side under the same parent.
//
// A page is entered when it is handed out, before its tokens are computed, so that a second prompt with the same prefix
// can wait for the first one's pages instead of computing its own. Computed says how far a sequence is.
//
// Nothing is found by hash: a match is a comparison of tokens.
//
// The tree keeps no page from anybody. A page that no table holds stays, idle, while the pool has empty ones; after that
// the page goes that was idle for longest. There are never more nodes than pages.
//
// # Why the oldest idle page is always a leaf
//
// A table with a page of the tree also holds the pages of all ancestors: Start takes them by reference, and enter adds
// children only to nodes whose page is in the same table. Tables let go of their pages from the last to the first, so
// that a page becomes idle after all its descendants did, and stands behind them in the queue.
type Prefixes struct {
	pool  *Pool
	roots map[string]*node // by tenant; each has children
	nodes []*node          // by page; nil: the page is not in the tree
}

// node is a page in the tree.
type node struct {
	page     int32 // noPage: a root, or no longer in the tree
	filled   int   // tokens that are computed, from the first
	tokens   []int32
	owner    *Table // the table for which it was entered; nil once that let go of it
	parent   *node
	children []*node // in lexical order of their tokens
	tenant   string  // of a root
}

// NewPrefixes makes an empty tree over the pages of a pool, none of which may be held yet. A pool has one.
func NewPrefixes(p *Pool) *Prefixes {
	if p.prefixes != nil || p.Used() != 0 {
		panic("kv: a pool takes one tree of prefixes, before it is used")
	}
	x := &Prefixes{pool: p, roots: map[string]*node{}, nodes: make([]*node, p.Pages())}
	p.idle = newIdleList(p.Pages())
	p.prefixes = x
	return x
}

// Start gives the empty table t the pages of m, as far as it is ready, and pages of its own behind them, for tokens
// tokens in all, and enters those that prompt fills. m comes from Find with the same tenant and a part of the same
// prompt, with nothing in between that changes the pool. cached is the number of tokens that need not be computed.
// Where the last of them lie in a page that is shared in part, the caller has to copy them, before the next step.
// False: the pool has too few pages; nothing was taken.
func (x *Prefixes) Start(t *Table, tenant string, prompt []int32, m *Match, tokens int) (cached int, c PageCopy, ok bool) {
	if len(t.pages) != 0 {
		panic("kv: a shared prefix must come first in a table")
	}
	m.trim()
	for _, n := range m.full {
		x.pool.hold(n.page)
		t.pages = append(t.pages, n.page)
	}
	cached = len(m.full) * PageTokens
	if m.part != nil {
		if ok = x.growBeside(t, tokens, m.part.page); ok {
			c = PageCopy{Dst: t.pages[len(m.full)], Src: m.part.page, Tokens: m.partTokens}
			cached += m.partTokens
		}
	}
	if !ok && !x.pool.Grow(t, tokens) {
		x.pool.Drop(t)
		return 0, PageCopy{}, false
	}
	x.enter(t, tenant, prompt, cached)
	return cached, c, true
}

// growBeside is Grow with a page that does not give way. Where that leaves too few, the tokens in it are computed again:
// sharing must not stand in the way of a row that fits.
func (x *Prefixes) growBeside(t *Table, tokens int, page int32) bool {
	if x.pool.refs[page] > 0 {
		return x.pool.Grow(t, tokens)
	}
	x.pool.idle.remove(page)
	ok := x.pool.Grow(t, tokens)
	x.pool.idle.push(page) // as the one used last
	return ok
}

// PageCopy is an order to copy the first Tokens tokens of page Src to page Dst; none where Tokens is 0.
type PageCopy struct {
	Dst, Src int32
	Tokens   int
}

// enter adds the pages of t that prompt fills, of which the first computed tokens are there already.
func (x *Prefixes) enter(t *Table, tenant string, prompt []int32, computed int) {
	n := x.roots[tenant]
	if n == nil {
		n = &node{page: noPage, tenant: tenant}
		x.roots[tenant] = n
	}
	for i, page := range t.pages {
		start := i * PageTokens
		if start >= len(prompt) {
			break
		}
		tokens := prompt[start:min(start+PageTokens, len(prompt))]
		at, known := n.search(tokens)
		if known && n.children[at].page != page {
			break // another page holds the same: this one is not needed, and nothing can hang on that one
		}
		if !known {
			child := &node{page: page, tokens: slices.Clone(tokens), owner: t, parent: n}
			child.fill(computed - start)
			n.children = slices.Insert(n.children, at, child)
			x.nodes[page] = child
		}
		n = n.children[at]
	}
}

// Computed tells that the first computed tokens of t's sequence are in its pages, where it were from before.
func (x *Prefixes) Computed(t *Table, from, computed int) {
	for i := from / PageTokens; i < len(t.pages) && i*PageTokens < computed; i++ {
		n := x.nodes[t.pages[i]]
		if n == nil {
			return // past the prompt
		}
		if n.owner == t {
			n.fill(computed - i*PageTokens)
		}
	}
}

func (n *node) fill(tokens int) { n.filled = min(max(tokens, n.filled), len(n.tokens)) }

// Drop lets go of the pages of t, whose sequence has computed so many tokens. What it leaves unfinished is taken out of
// the tree, and with spoilt also the page that token number computed lies in, since a step that failed may have written
// to it.
func (x *Prefixes) Drop(t *Table, computed int, spoilt bool) {
	for i := len(t.pages) - 1; i >= 0; i-- {
		n := x.nodes[t.pages[i]]
		if n == nil || n.owner != t {
			continue
		}
		if n.filled < len(n.tokens) || spoilt && (i+1)*PageTokens > computed {
			x.remove(n)
		}
		n.owner = nil
	}
	x.pool.Drop(t)
}

// evict empties the page that was idle for longest.
func (x *Prefixes) evict() { x.remove(x.nodes[x.pool.idle.front]) }

// remove takes a leaf out of the tree. Its page is empty where no table holds it.
func (x *Prefixes) remove(n *node) {
	if len(n.children) > 0 {
		panic(fmt.Sprintf("kv: page %d leaves the tree of prefixes before the %d that follow it", n.page, len(n.children)))
	}
	at, _ := n.parent.search(n.tokens)
	n.parent.children = slices.Delete(n.parent.children, at, at+1)
	if root := n.parent; root.parent == nil && len(root.children) == 0 {
		delete(x.roots, root.tenant)
	}
	x.nodes[n.page] = nil
	if x.pool.refs[n.page] == 0 {
		x.pool.idle.remove(n.page)
		x.pool.empty = append(x.pool.empty, n.page)
	}
	n.page, n.parent = noPage, nil
}

// search finds the child with exactly these tokens, or the place where it belongs.
func (n *node) search(tokens []int32) (at int, found bool) {
	return slices.BinarySearchFunc(n.children, tokens, func(c *node, t []int32) int { return slices.Compare(c.tokens, t) })
}
