// Package kv keeps the books of the KV cache: which of its pages are free, who holds the others, and how many fit a
// memory budget. It holds no keys or values; those live on the device, under the page numbers handed out here.
//
// A page is PageTokens consecutive tokens of one sequence, for all layers. A sequence owns a Table, its page table in
// token order. Pages are counted by reference, so that several tables can hold the same full page of a shared prefix;
// a page is free again once its last holder let it go. Nothing here is safe for concurrent use: the scheduler, which
// runs between the engine's steps, is the only caller.
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

// MaxPages bounds a pool: page numbers are int32 on the device, and beyond this the books themselves (12 bytes a page)
// would no longer be small. It is 2 Gi tokens.
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

// Pool is a fixed set of pages numbered from 0.
type Pool struct {
	refs []int32 // holders per page; 0 is free
	free []int32 // stack of free pages: the page freed last, whose memory is warm, goes out first
	peak int
}

// NewPool makes a pool of n free pages, 0 <= n <= MaxPages.
func NewPool(n int) *Pool {
	if n < 0 || n > MaxPages {
		panic(fmt.Sprintf("kv: a pool of %d pages is outside 0..%d", n, MaxPages))
	}
	p := &Pool{refs: make([]int32, n), free: make([]int32, n)}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	return p
}

// Pages is the size of the pool.
func (p *Pool) Pages() int { return len(p.refs) }

// Free is the number of pages that nobody holds.
func (p *Pool) Free() int { return len(p.free) }

// Used is the number of pages held, a shared page counted once.
func (p *Pool) Used() int { return len(p.refs) - len(p.free) }

// Peak is the largest Used so far.
func (p *Pool) Peak() int { return p.peak }

// Table is one sequence's page table. The zero value is empty. It must not be copied while it holds pages.
type Table struct {
	pages []int32
}

// Pages lists the pages in token order. The slice is valid until the next call that changes the table.
func (t *Table) Pages() []int32 { return t.pages }

// Tokens is the number of tokens the table has room for.
func (t *Table) Tokens() int { return len(t.pages) * PageTokens }

// Grow makes room for tokens tokens in all. It takes all the pages that are missing, or, where the pool has too few,
// none, and then reports false. A table that is large enough already stays as it is.
func (p *Pool) Grow(t *Table, tokens int) bool {
	need := PagesFor(tokens) - len(t.pages)
	if need <= 0 {
		return true
	}
	if need > len(p.free) {
		return false
	}
	cut := len(p.free) - need
	for i := len(p.free) - 1; i >= cut; i-- {
		page := p.free[i]
		p.refs[page] = 1
		t.pages = append(t.pages, page)
	}
	p.free = p.free[:cut]
	p.peak = max(p.peak, p.Used())
	return true
}

// Share lets the empty table t begin with the first pages of src, which from then on have one holder more. Only pages
// that are full and will not be written again may be shared; the caller knows which those are.
func (p *Pool) Share(t, src *Table, pages int) {
	if len(t.pages) != 0 {
		panic("kv: a shared prefix must come first in a table")
	}
	if pages > len(src.pages) {
		panic(fmt.Sprintf("kv: cannot share %d pages of a table of %d", pages, len(src.pages)))
	}
	for _, page := range src.pages[:pages] {
		p.refs[page]++
	}
	t.pages = append(t.pages, src.pages[:pages]...)
}

// Drop lets go of all pages of t and leaves it empty, so a second Drop does nothing. Capacity stays for the next use.
func (p *Pool) Drop(t *Table) {
	// Backwards, so that a table that grows again at once gets the same pages in the same order.
	for i := len(t.pages) - 1; i >= 0; i-- {
		p.release(t.pages[i])
	}
	t.pages = t.pages[:0]
}

// release gives up one reference. A page without holders cannot be in a table unless the books are broken; going on
// would hand one page to two sequences, whose results would then be wrong in silence.
func (p *Pool) release(page int32) {
	if p.refs[page] <= 0 {
		panic(fmt.Sprintf("kv: page %d is freed twice", page))
	}
	p.refs[page]--
	if p.refs[page] == 0 {
		p.free = append(p.free, page)
	}
}
