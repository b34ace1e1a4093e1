// Package kv keeps the books of the KV cache: which of its pages are free, who holds the others, which prompts' prefixes
// they contain, and how many fit a memory budget. It holds no keys or values; those live on the device, under the page
// numbers handed out here.
//
// A page is PageTokens consecutive tokens of one sequence, for all layers. A sequence owns a Table, its page table in
// token order. Pages are counted by reference, so that several tables can hold the same full page of a shared prefix.
// Prefixes is the tree of the prompts whose pages are in the pool: it finds the longest prefix that a new prompt has in
// common with an earlier one, and keeps pages that nobody holds any more until their place is needed. Nothing here is
// safe for concurrent use: the scheduler, which runs between the engine's steps, is the only caller.
//
//	pool := kv.NewPool(kv.PagesInBudget(1<<30, pageBytes))
//	var t kv.Table
//	ok := pool.Grow(&t, 100) // t.Pages() now covers 100 tokens, or nothing was taken
//	pool.Drop(&t)
package kv

import (
	"fmt"

	"github.com/batchmill/batchmill/infer/device"
)

// PageTokens is the number of tokens in a page. It is also the unit over which attention is reduced, so it is a
// constant of the arithmetic and no tuning knob.
const PageTokens = device.PageTokens

// MaxPages bounds a pool: page numbers are int32 on the device, and beyond this the books themselves (24 bytes a page,
// and some 250 more for one that is in the tree) would no longer be small. It is 2 Gi tokens.
const MaxPages = 1 << 26

// PagesFor is the number of pages that n tokens take.
func PagesFor(n int) int {
	if n <= 0 {
		return 0
	}
	return (n-1)/PageTokens + 1
}

// PagesInBudget is the number of whole pages of pageBytes (all layers, keys and values) that fit into budget bytes, at
// most MaxPages.
func PagesInBudget(budget, pageBytes int64) int {
	if budget <= 0 || pageBytes <= 0 {
		return 0
	}
	return int(min(budget/pageBytes, MaxPages))
}

// Pool is a fixed set of pages numbered from 0. A page is held by tables, or it is idle (no table holds it, but Prefixes
// knows what it contains and keeps it as long as nobody needs its place), or it is empty.
type Pool struct {
	refs  []int32 // tables that hold a page
	empty []int32 // stack of empty pages: the page emptied last, whose memory is warm, goes out first
	idle  idleList

	prefixes *Prefixes // nil: pages that no table holds are empty

	peak               int
	shared, sharedPeak int // pages held by two tables or more
}

// NewPool makes a pool of n empty pages, 0 <= n <= MaxPages.
func NewPool(n int) *Pool {
	if n < 0 || n > MaxPages {
		panic(fmt.Sprintf("kv: a pool of %d pages is outside 0..%d", n, MaxPages))
	}
	p := &Pool{refs: make([]int32, n), empty: make([]int32, n)}
	for i := range p.empty {
		p.empty[i] = int32(n - 1 - i)
	}
	return p
}

// Pages is the size of the pool.
func (p *Pool) Pages() int { return len(p.refs) }

// Free is the number of pages that no table holds: what tables can still get. Idle pages count, since they give way.
func (p *Pool) Free() int { return len(p.empty) + p.idle.n }

// Idle is the number of pages that no table holds and whose contents are kept.
func (p *Pool) Idle() int { return p.idle.n }

// Used is the number of pages held by tables, a shared page counted once.
func (p *Pool) Used() int { return len(p.refs) - p.Free() }

// Peak is the largest Used so far.
func (p *Pool) Peak() int { return p.peak }

// Holders is the number of tables that hold a page.
func (p *Pool) Holders(page int32) int { return int(p.refs[page]) }

// SharedPeak is the largest number of pages that had two holders or more at the same time.
func (p *Pool) SharedPeak() int { return p.sharedPeak }

// Table is one sequence's page table. The zero value is empty. It must not be copied while it holds pages.
type Table struct {
	pages []int32
}

// Pages lists the pages in token order. The slice is valid until the next call that changes the table.
func (t *Table) Pages() []int32 { return t.pages }

// Tokens is the number of tokens the table has room for.
func (t *Table) Tokens() int { return len(t.pages) * PageTokens }

// Grow makes room for tokens tokens in all. It takes all the pages that are missing, the idle ones unused for longest
// after the empty ones, or, where the pool has too few, none, and then reports false. A table that is large enough
// already stays as it is.
func (p *Pool) Grow(t *Table, tokens int) bool {
	need := PagesFor(tokens) - len(t.pages)
	if need <= 0 {
		return true
	}
	if need > p.Free() {
		return false
	}
	for range need {
		page := p.take()
		p.refs[page] = 1
		t.pages = append(t.pages, page)
	}
	p.peak = max(p.peak, p.Used())
	return true
}

// Trim lets go of the pages beyond those that tokens tokens take.
func (p *Pool) Trim(t *Table, tokens int) {
	keep := PagesFor(tokens)
	for i := len(t.pages) - 1; i >= keep; i-- {
		p.release(t.pages[i])
	}
	t.pages = t.pages[:min(keep, len(t.pages))]
}

// take hands out an empty page, making one where there is none. There must be a free one.
func (p *Pool) take() int32 {
	if len(p.empty) == 0 {
		p.prefixes.evict()
	}
	last := len(p.empty) - 1
	page := p.empty[last]
	p.empty = p.empty[:last]
	return page
}

// Drop lets go of all pages of t and leaves it empty, so a second Drop does nothing. Capacity stays for the next use.
func (p *Pool) Drop(t *Table) {
	// Backwards, so that a table that grows again at once gets the same pages in the same order, and so that of idle
	// pages the later ones of a prefix are the first to give way.
	for i := len(t.pages) - 1; i >= 0; i-- {
		p.release(t.pages[i])
	}
	t.pages = t.pages[:0]
}

// hold adds a holder to a page that is not empty.
func (p *Pool) hold(page int32) {
	if p.refs[page] == 0 {
		p.idle.remove(page)
	}
	p.refs[page]++
	if p.refs[page] == 2 {
		p.shared++
		p.sharedPeak = max(p.sharedPeak, p.shared)
	}
}

// release gives up one reference. A page without holders cannot be in a table unless the books are broken; going on
// would hand one page to two sequences, whose results would then be wrong in silence.
func (p *Pool) release(page int32) {
	if p.refs[page] <= 0 {
		panic(fmt.Sprintf("kv: page %d is freed twice", page))
	}
	p.refs[page]--
	switch {
	case p.refs[page] == 1:
		p.shared--
	case p.refs[page] > 1:
	case p.prefixes != nil && p.prefixes.nodes[page] != nil:
		p.idle.push(page)
	default:
		p.empty = append(p.empty, page)
	}
}
