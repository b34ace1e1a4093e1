package pipeline

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"sync"

	"github.com/batchmill/batchmill/internal/row"
)

// Limits of the search for equal requests. Beyond them a request that was seen before is simply run once more: the result
// is the same, only the work is not saved.
const (
	// DedupBytes bounds the finished results that are kept for later copies: at the usual few hundred bytes a result, the
	// last hundred thousand different rows.
	DedupBytes = 64 << 20
	// maxCopies bounds the copies that wait for the row that runs for them: at unitOverhead each 8 MiB. A producer that
	// meets more waits, which is until that row is done.
	maxCopies = 1 << 14
	// keptOverhead is what a kept result costs besides its text, ids and log-probabilities: the entry with its key, the
	// result, pointers.
	keptOverhead = 512
	// logprobOverhead is what one entry of log-probabilities costs besides its bytes.
	logprobOverhead = 80
)

// Fingerprint identifies what a request asks for: requests of equal fingerprints have equal results.
type Fingerprint [sha256.Size]byte

// FingerprintOf is the SHA-256 of a unit's source, tenant, tokens and parameters, and of its seed where draws are made. It
// tells false where a unit cannot be compared, since it is bound to a mask.
//
// Parameters enter by their JSON, so that a parameter that is added later is never left out.
func FingerprintOf(u *Unit) (Fingerprint, bool) {
	if u.Request.Mask != nil {
		return Fingerprint{}, false
	}
	params, err := json.Marshal(&u.Request.Params)
	if err != nil { // no JSON for a parameter that is not a number
		return Fingerprint{}, false
	}
	h := sha256.New()
	var b [8]byte
	number := func(n int64) {
		binary.LittleEndian.PutUint64(b[:], uint64(n))
		h.Write(b[:])
	}
	for _, part := range [][]byte{[]byte(u.Key.Source), []byte(u.Request.Tenant), params} {
		number(int64(len(part)))
		h.Write(part)
	}
	if u.Request.Params.Temperature > 0 { // greedy rows draw nothing
		number(u.Request.Seed)
	}
	number(int64(len(u.Request.Tokens)))
	const chunk = 256 // ids hashed a call
	ids := make([]byte, 0, 4*chunk)
	for i, id := range u.Request.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
		if len(ids) == cap(ids) || i == len(u.Request.Tokens)-1 {
			h.Write(ids)
			ids = ids[:0]
		}
	}
	var f Fingerprint
	h.Sum(f[:0])
	return f, true
}

// verdict is what becomes of a unit that arrives.
type verdict int

const (
	runIt  verdict = iota // it goes into the window
	copyIt                // an equal one has a result already
	held                  // an equal one is on its way; settle hands this one out with it
	full                  // as held, but too many copies wait already
)

// dedup finds requests that are equal to one that is on its way or that ended a while ago. It covers one source at a
// time: records of a source arrive one after the other, so what the last source left behind is dropped when the next
// one begins. It is safe for concurrent use.
type dedup struct {
	limit int // bytes of kept results

	mu      sync.Mutex
	source  string
	entries map[Fingerprint]*entry
	kept    *list.List // finished entries, the one used last in front
	bytes   int        // of the kept results
	copies  int        // held, in all entries
	freed   chan struct{}
}

// entry is a request that was seen.
type entry struct {
	key    Fingerprint
	source string
	copies []*Unit       // that wait for it
	result *row.Result   // nil while it is on its way
	bytes  int           // of the result
	at     *list.Element // in kept
}

func newDedup(limit int) *dedup {
	return &dedup{limit: limit, entries: map[Fingerprint]*entry{}, kept: list.New(), freed: make(chan struct{})}
}

// admit decides about a unit. With copyIt it returns the result to copy; with full a channel that is closed as soon as
// copies were handed out.
func (d *dedup) admit(u *Unit) (verdict, *row.Result, <-chan struct{}) {
	key, ok := FingerprintOf(u)
	if !ok {
		return runIt, nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enter(u.Key.Source)
	e := d.entries[key]
	switch {
	case e == nil:
		u.entry = &entry{key: key, source: u.Key.Source}
		d.entries[key] = u.entry
		return runIt, nil, nil
	case e.result != nil:
		d.kept.MoveToFront(e.at)
		return copyIt, e.result, nil
	case d.copies >= maxCopies:
		return full, nil, d.freed
	}
	d.copies++
	e.copies = append(e.copies, u)
	u.Request.Tokens = nil // those of the unit that runs; given back by settle where this one has to run too
	return held, nil, nil
}

// enter drops the finished results of earlier sources.
func (d *dedup) enter(source string) {
	if source == d.source {
		return
	}
	d.source = source
	for e := d.kept.Front(); e != nil; e = d.kept.Front() {
		d.drop(e.Value.(*entry))
	}
}

func (d *dedup) drop(e *entry) {
	d.kept.Remove(e.at)
	d.bytes -= e.bytes
	delete(d.entries, e.key)
}

// settle takes the result of a unit that ran. It returns the units that waited for it, and whether they are copies of it:
// a retryable error is nobody else's, so then each has to run by itself.
func (d *dedup) settle(u *Unit, res *row.Result) (units []*Unit, copied bool) {
	if u.entry == nil {
		return nil, true
	}
	e := u.entry
	u.entry = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	units, e.copies = e.copies, nil
	if len(units) > 0 {
		d.copies -= len(units)
		close(d.freed)
		d.freed = make(chan struct{})
	}
	copied = res.Err == nil || !res.Err.Code.Retryable()
	if !copied {
		for _, c := range units {
			c.Request.Tokens = u.Request.Tokens
		}
	}
	e.bytes = resultBytes(res)
	if !copied || e.source != d.source || e.bytes > d.limit {
		delete(d.entries, e.key)
		return units, copied
	}
	e.result, e.at = res, d.kept.PushFront(e)
	d.bytes += e.bytes
	for d.bytes > d.limit {
		d.drop(d.kept.Back().Value.(*entry))
	}
	return units, copied
}

// resultBytes is about what a kept result takes in memory.
func resultBytes(r *row.Result) int {
	n := keptOverhead + 4*len(r.TokenIDs) + logprobBytes(r.Logprobs)
	if r.Completion != nil {
		n += len(*r.Completion)
	}
	if r.Err != nil {
		n += len(r.Err.Message)
	}
	return n
}

func logprobBytes(list []row.TokenLogprob) int {
	n := 0
	for i := range list {
		n += logprobOverhead + len(list[i].Token) + len(list[i].Bytes) + logprobBytes(list[i].Top)
	}
	return n
}

// copied is the result of a unit that is equal to one that ran: it differs in who it is, and in that nothing was done for
// it: no attempts, no times, no token from a shared page.
func copied(of *row.Result, u *Unit) *row.Result {
	c := *of
	c.Key, c.CustomID, c.Seed = u.Key, u.CustomID, u.Request.Seed
	c.Attempts, c.CachedTokens, c.Times = 0, 0, nil
	original := of.Key.Row
	c.DedupOf = &original
	return &c
}
