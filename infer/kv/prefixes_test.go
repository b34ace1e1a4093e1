package kv

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// books is a pool with its tree, the tables on them, and a device that only remembers what was written where: the KV of
// a token depends on its tenant and all tokens up to it, so that is what a slot holds.
type books struct {
	pool  *Pool
	tree  *Prefixes
	slots [][PageTokens]string
	rows  []*bookRow
}

type bookRow struct {
	table    Table
	tenant   string
	tokens   []int32 // prompt, then completion
	prompt   int
	computed int
}

func newBooks(pages int) *books {
	b := &books{pool: NewPool(pages), slots: make([][PageTokens]string, pages)}
	b.tree = NewPrefixes(b.pool)
	return b
}

func content(tenant string, tokens []int32) string { return fmt.Sprint(tenant, tokens) }

// start begins a row the way the engine does.
func (b *books) start(tenant string, prompt []int32) (r *bookRow, cached int, ok bool) {
	var m Match
	b.tree.Find(tenant, prompt[:len(prompt)-1], &m)
	return b.startOn(&m, tenant, prompt)
}

func (b *books) startOn(m *Match, tenant string, prompt []int32) (r *bookRow, cached int, ok bool) {
	r = &bookRow{tenant: tenant, tokens: slices.Clone(prompt), prompt: len(prompt)}
	cached, c, ok := b.tree.Start(&r.table, tenant, prompt, m, len(prompt))
	if !ok {
		return nil, 0, false
	}
	if c.Tokens > 0 {
		from := b.slots[c.Src]
		b.slots[c.Dst] = [PageTokens]string{}
		copy(b.slots[c.Dst][:c.Tokens], from[:c.Tokens])
	}
	r.computed = cached
	b.rows = append(b.rows, r)
	return r, cached, true
}

// compute writes the next n tokens of a row.
func (b *books) compute(r *bookRow, n int) {
	for pos := r.computed; pos < r.computed+n; pos++ {
		b.slots[r.table.pages[pos/PageTokens]][pos%PageTokens] = content(r.tenant, r.tokens[:pos+1])
	}
	b.tree.Computed(&r.table, r.computed, r.computed+n)
	r.computed += n
}

func (b *books) drop(r *bookRow, spoilt bool) {
	b.tree.Drop(&r.table, r.computed, spoilt)
	b.rows = slices.DeleteFunc(b.rows, func(o *bookRow) bool { return o == r })
}

// path is all tokens up to the end of a node's page.
func (n *node) path() (tenant string, tokens []int32) {
	if n.parent == nil {
		return n.tenant, nil
	}
	tenant, tokens = n.parent.path()
	return tenant, append(tokens, n.tokens...)
}

func (b *books) queue() (pages []int32) {
	for page := b.pool.idle.front; page != noPage; page = b.pool.idle.links[page].next {
		pages = append(pages, page)
	}
	return pages
}

// check compares the books with what can be seen from outside: tables, tokens and slots.
func (b *books) check() error {
	holders := make([]int32, b.pool.Pages())
	shared := 0
	for _, r := range b.rows {
		for i, page := range r.table.pages {
			if n := b.tree.nodes[page]; n != nil && n.owner == &r.table && n.filled != max(0, min(r.computed-i*PageTokens, len(n.tokens))) {
				return fmt.Errorf("page %d of a row with %d tokens has %d", i, r.computed, n.filled)
			}
			if holders[page]++; holders[page] == 2 {
				shared++
			}
		}
		for pos := range r.computed {
			if got, want := b.slots[r.table.pages[pos/PageTokens]][pos%PageTokens], content(r.tenant, r.tokens[:pos+1]); got != want {
				return fmt.Errorf("token %d of %v is %q in its page, want %q", pos, r.tokens, got, want)
			}
		}
	}
	if !slices.Equal(holders, b.pool.refs) || shared != b.pool.shared {
		return fmt.Errorf("holders %v (%d shared), the books say %v (%d)", holders, shared, b.pool.refs, b.pool.shared)
	}
	state := make([]string, b.pool.Pages())
	for page, n := range holders {
		if n > 0 {
			state[page] = "held"
		}
	}
	for _, page := range b.pool.empty {
		if b.tree.nodes[page] != nil {
			return fmt.Errorf("page %d is empty and in the tree", page)
		}
		state[page] += "empty"
	}
	place := map[int32]int{}
	for i, page := range b.queue() {
		place[page] = i
		state[page] += "idle"
	}
	for page, s := range state {
		if s != "held" && s != "empty" && s != "idle" {
			return fmt.Errorf("page %d is %q", page, s)
		}
	}
	if len(place) != b.pool.Idle() || b.pool.Free() != len(place)+len(b.pool.empty) || b.pool.Used()+b.pool.Free() != b.pool.Pages() {
		return fmt.Errorf("%d idle, %d free, %d used of %d; %d in the queue", b.pool.Idle(), b.pool.Free(), b.pool.Used(), b.pool.Pages(), len(place))
	}
	tenants := map[string]bool{}
	for page, n := range b.tree.nodes {
		if n == nil {
			if state[page] == "idle" {
				return fmt.Errorf("page %d is idle, but not in the tree", page)
			}
			continue
		}
		tenant, tokens := n.path()
		tenants[tenant] = true
		before := len(tokens) - len(n.tokens)
		if n.page != int32(page) || before%PageTokens != 0 || len(n.children) > 0 && len(n.tokens) < PageTokens {
			return fmt.Errorf("node of page %d: %+v", page, n)
		}
		for i := range n.filled {
			if want := content(tenant, tokens[:before+i+1]); b.slots[page][i] != want {
				return fmt.Errorf("page %d holds %q at %d, the tree says %q", page, b.slots[page][i], i, want)
			}
		}
		if state[page] == "idle" && (n.filled < len(n.tokens) || n.owner != nil) {
			return fmt.Errorf("an idle page is not finished, or keeps its owner: %+v", n)
		}
		if up := n.parent; up.parent != nil && state[page] == "held" && state[up.page] != "held" {
			return fmt.Errorf("page %d is held, but not page %d before it", page, up.page)
		} else if up.parent != nil && state[page] == "idle" && state[up.page] == "idle" && place[up.page] < place[int32(page)] {
			return fmt.Errorf("page %d would give way before page %d, which follows it", up.page, page)
		}
		if !slices.IsSortedFunc(n.parent.children, func(a, b *node) int { return slices.Compare(a.tokens, b.tokens) }) {
			return fmt.Errorf("the siblings of page %d are not in order", page)
		}
	}
	if len(tenants) != len(b.tree.roots) {
		return fmt.Errorf("%d tenants have pages, the tree has %d", len(tenants), len(b.tree.roots))
	}
	return nil
}

// longest is the longest prefix that any page of the tenant's has in common with tokens, the plain way. ready counts
// only what is computed.
func (b *books) longest(tenant string, tokens []int32) (all, ready int) {
	for _, n := range b.tree.nodes {
		if n == nil {
			continue
		}
		of, path := n.path()
		if of != tenant {
			continue
		}
		all = max(all, common(path, tokens))
		if before := len(path) - len(n.tokens); n.parent.parent == nil || n.parent.filled == PageTokens {
			ready = max(ready, common(path[:before+n.filled], tokens))
		}
	}
	return all, ready
}

// TestPrefixesModel drives pool and tree with random operations, in pools so small that pages give way all the time.
func TestPrefixesModel(t *testing.T) {
	var hits, waits, evictions, refused int
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 3, 5, 6, 7, 8, 10, 20}).Draw(t, "pages")
		b := newBooks(size)
		// Prompts are pieces of a few texts, so that they often begin alike and part anywhere.
		texts := make([][]int32, 3)
		for i := range texts {
			for j := range 5 * PageTokens {
				texts[i] = append(texts[i], int32(j%7*i))
			}
		}
		prompt := func(t *rapid.T) []int32 {
			text := rapid.SampledFrom(texts).Draw(t, "text")
			p := slices.Clone(text[:rapid.SampledFrom([]int{0, 1, 20, 31, 32, 33, 50, 63, 64, 65, 90, 128}).Draw(t, "common")])
			p = append(p, rapid.SliceOfN(rapid.Int32Range(0, 2), 0, 3).Draw(t, "own")...)
			return append(p, text[:rapid.IntRange(1, 40).Draw(t, "tail")]...)
		}
		tenant := rapid.SampledFrom([]string{"", "a"})
		row := func(t *rapid.T) *bookRow {
			if len(b.rows) == 0 {
				t.Skip("there is no row")
			}
			return rapid.SampledFrom(b.rows).Draw(t, "row")
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				who, p := tenant.Draw(t, "tenant"), prompt(t)
				all, ready := b.longest(who, p[:len(p)-1])
				var m Match
				b.tree.Find(who, p[:len(p)-1], &m)
				if m.Tokens != all || m.Ready() != (ready == all) || m.Pending() == m.Ready() {
					t.Fatalf("found %d tokens, ready %v, pending %v; want %d, of which %d are ready", m.Tokens, m.Ready(), m.Pending(), all, ready)
				}
				if !m.Ready() {
					waits++
					if rapid.Bool().Draw(t, "wait") {
						return
					}
				}
				empty, queue := len(b.pool.empty), b.queue()
				held := map[int32]bool{}
				for i := range m.Pages() {
					if m.full[i].filled == PageTokens {
						held[m.Page(i)] = true
					}
				}
				var givable []int32 // oldest first
				for _, page := range queue {
					if !held[page] {
						givable = append(givable, page)
					}
				}
				fits := b.tree.Fits(&m, len(p))
				need := PagesFor(len(p)) - len(held)
				part := m.part
				r, cached, ok := b.startOn(&m, who, p)
				if wantOK := need <= empty+len(givable); ok != wantOK || (ready == all && fits != ok) {
					t.Fatalf("started %v (fits %v) with %d pages to find, %d empty, %d that give way", ok, fits, need, empty, len(givable))
				}
				if !ok {
					refused++
					return
				}
				gave := max(0, need-empty)
				evictions += gave
				// The page copied from gives way only where the row would not fit otherwise.
				if part != nil && len(givable) > gave && slices.Contains(givable, part.page) {
					givable = slices.DeleteFunc(givable, func(page int32) bool { return page == part.page })
				}
				for i, page := range givable {
					if got := slices.Contains(r.table.pages[len(held):], page); got != (i < gave) {
						t.Fatalf("pages %v were taken; of %v the first %d should be", r.table.pages, givable, gave)
					}
				}
				if cached > ready || cached < len(held)*PageTokens || ready == all && cached < ready && gave < len(givable) {
					t.Fatalf("%d tokens need not be computed, %d were ready", cached, ready)
				}
				if cached > 0 {
					hits++
				}
			},
			"compute": func(t *rapid.T) {
				r := row(t)
				if left := len(r.tokens) - r.computed; left > 0 {
					b.compute(r, rapid.IntRange(1, left).Draw(t, "tokens"))
				}
			},
			"decode": func(t *rapid.T) {
				r := row(t)
				if r.computed < len(r.tokens) {
					t.Skip("the row is not so far")
				}
				n := rapid.IntRange(1, 40).Draw(t, "tokens")
				free := b.pool.Free()
				need := PagesFor(len(r.tokens)+n) - len(r.table.pages)
				if ok := b.pool.Grow(&r.table, len(r.tokens)+n); ok != (need <= free) {
					t.Fatalf("grown %v by %d pages with %d free", ok, need, free)
				} else if !ok {
					return
				}
				for range n {
					r.tokens = append(r.tokens, 1)
				}
				b.compute(r, n)
			},
			"end": func(t *rapid.T) { b.drop(row(t), false) },
			"fail": func(t *rapid.T) {
				r := row(t)
				for _, page := range r.table.pages[r.computed/PageTokens:] { // whole pages may be spoilt
					for i := range b.slots[page] {
						b.slots[page][i] = "garbage"
					}
				}
				b.drop(r, true)
			},
			"": func(t *rapid.T) {
				if err := b.check(); err != nil {
					t.Fatal(err)
				}
			},
		})
	})
	if !testing.Short() && (hits == 0 || waits == 0 || evictions == 0 || refused == 0) {
		t.Errorf("%d hits, %d waits, %d evictions, %d rows too large: the test covers too little", hits, waits, evictions, refused)
	}
}

func run(n int, id int32) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = id
	}
	return s
}

// TestPrefixEndsAnywhere: two prompts share their common tokens wherever they part, but never the last one.
func TestPrefixEndsAnywhere(t *testing.T) {
	for _, c := range []struct{ first, common, second, cached int }{
		{100, 0, 50, 0}, {100, 1, 50, 1}, {100, 31, 50, 31}, {100, 32, 50, 32}, {100, 33, 50, 33}, {100, 80, 90, 80}, {100, 100, 130, 100},
		{64, 64, 64, 63}, {65, 65, 65, 64}, {100, 40, 40, 39}, {1, 1, 1, 0}, {33, 33, 33, 32}, {64, 64, 100, 64},
	} {
		b := newBooks(20)
		first := append(run(c.common, 1), run(c.first-c.common, 2)...)
		second := append(run(c.common, 1), run(c.second-c.common, 3)...)
		r, _, _ := b.start("t", first)
		b.compute(r, c.first)
		_, other, _ := b.start("u", second)
		_, cached, ok := b.start("t", second)
		if !ok || cached != c.cached || other != 0 {
			t.Errorf("%+v: %d cached, %d for another tenant", c, cached, other)
		}
		if err := b.check(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestWaitingEnds: a match with tokens to come is ready once they are there, and void once their row is gone.
func TestWaitingEnds(t *testing.T) {
	for _, stop := range []bool{false, true} {
		b := newBooks(20)
		r, _, _ := b.start("", run(100, 1))
		var m Match
		b.tree.Find("", run(80, 1), &m)
		if m.Tokens != 80 || m.Ready() || !m.Pending() {
			t.Fatalf("%+v", m)
		}
		b.compute(r, 79)
		if m.Ready() || !m.Pending() {
			t.Error("ready too early")
		}
		if stop {
			b.drop(r, false)
			if m.Ready() || m.Pending() {
				t.Error("still waiting for a row that is gone")
			}
			if b.tree.Find("", run(80, 1), &m); m.Tokens != 64 || !m.Ready() { // its full pages stay
				t.Errorf("%+v", m)
			}
			continue
		}
		b.compute(r, 1)
		if !m.Ready() || m.Pending() {
			t.Error("not ready")
		}
	}
}

// TestFitsCountsItsOwnPages: idle pages that a row takes by reference do not give way to it.
func TestFitsCountsItsOwnPages(t *testing.T) {
	b := newBooks(4)
	r, _, _ := b.start("", run(128, 1))
	b.compute(r, 128)
	b.drop(r, false)
	for _, c := range []struct {
		tokens int
		fits   bool
	}{{100, true}, {128, true}, {129, false}} {
		var m Match
		b.tree.Find("", run(c.tokens-1, 1), &m)
		if got := b.tree.Fits(&m, c.tokens); got != c.fits {
			t.Errorf("%d tokens fit: %v", c.tokens, got)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	k := newBooks(3000)
	prompt := func(i int) []int32 { return append(run(400, 1), run(100, int32(i+2))...) }
	for i := range 500 {
		r, cached, ok := k.start("", prompt(i))
		if !ok || (i > 0 && cached != 400) {
			b.Fatal(ok, cached)
		}
		k.compute(r, 500-cached)
	}
	var m Match
	p := prompt(1000)
	b.ReportAllocs()
	for b.Loop() {
		k.tree.Find("", p, &m)
	}
}
