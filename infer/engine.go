package infer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/batchmill/batchmill/infer/kv"
	"github.com/batchmill/batchmill/internal/row"
)

// PageTokens is the number of tokens in a KV page, for estimates.
const PageTokens = kv.PageTokens

// Defaults of Config.
const (
	// DefaultBatchTokens is the token budget of a step on a CPU: enough rows for the matrix tiles to be full, few enough
	// that a step stays well under a second.
	DefaultBatchTokens = 512
	// DefaultMaxSeqs bounds the rows in flight: more decode no faster and each holds a row of logits.
	DefaultMaxSeqs = 256
	// DefaultKVMemory is used where the caller names no figure.
	DefaultKVMemory = 1 << 30
)

// Config says what the engine runs and within which limits.
type Config struct {
	Model     Forwarder
	Tokenizer Tokenizer
	EOS       []int32 // end tokens: any of them ends a completion

	BatchTokens int   // most tokens in a step; 0: DefaultBatchTokens
	MaxSeqs     int   // most rows in flight; 0: DefaultMaxSeqs. Never more than BatchTokens or the KV pool's pages
	KVMemory    int64 // bytes for KV pages; 0: DefaultKVMemory. Less is taken where MaxSeqs full contexts need less
	MaxModelLen int   // most tokens of a row, prompt and completion; 0: what the model was made for
	Threads     int   // goroutines that sample; 0: GOMAXPROCS

	// RowTimeout ends a row that has been in work for longer with the error timeout; 0: none does.
	RowTimeout time.Duration

	// SpeculationRows is the number of tokens in a step up to which decoding rows get drafts of what they may generate
	// next: a step of so many must cost little more than one of a single token. 0: DefaultSpeculationRows.
	SpeculationRows int
	Events          Events

	// NoPrefixSharing has every row compute its whole prompt, for measurements: completions are the same either way.
	NoPrefixSharing bool
	// NoSpeculation has decoding rows compute one token in each step, likewise.
	NoSpeculation bool
}

// Events are called by Run's goroutine between steps; nil ones are skipped. They must return quickly.
type Events struct {
	OnStep    func(StepStats)            // after each step
	OnPreempt func(id int64, tokens int) // a row gave its pages back; tokens have to be computed again
	OnFailure func(err error, rows int)  // a step failed as a whole; its rows are repeated one by one
}

// withDefaults fills in what was left out and checks the rest.
func (c Config) withDefaults() (Config, error) {
	if c.Model == nil || c.Tokenizer == nil {
		return c, errors.New("start engine: a model and a tokenizer are needed")
	}
	l := c.Model.Limits()
	if l.VocabSize <= 0 || l.MaxPositions <= 0 || l.KVBytesPerPage <= 0 {
		return c, fmt.Errorf("start engine: the model's limits %+v are not all positive", l)
	}
	for _, n := range []struct {
		name string
		v    int64
	}{{"batch-tokens", int64(c.BatchTokens)}, {"max-seqs", int64(c.MaxSeqs)}, {"kv-memory", c.KVMemory},
		{"max-model-len", int64(c.MaxModelLen)}, {"threads", int64(c.Threads)}, {"speculation-rows", int64(c.SpeculationRows)}} {
		if n.v < 0 {
			return c, fmt.Errorf("start engine: %s is %d; it cannot be negative", n.name, n.v)
		}
	}
	if c.MaxModelLen > l.MaxPositions {
		return c, fmt.Errorf("start engine: max-model-len %d is beyond the %d positions the model was made for; lower it", c.MaxModelLen, l.MaxPositions)
	}
	c.BatchTokens = orDefault(c.BatchTokens, DefaultBatchTokens)
	c.MaxSeqs = orDefault(c.MaxSeqs, DefaultMaxSeqs)
	c.KVMemory = orDefault(c.KVMemory, DefaultKVMemory)
	c.MaxModelLen = orDefault(c.MaxModelLen, l.MaxPositions)
	c.Threads = orDefault(c.Threads, runtime.GOMAXPROCS(0))
	c.SpeculationRows = orDefault(c.SpeculationRows, DefaultSpeculationRows)
	c.MaxSeqs = min(c.MaxSeqs, c.BatchTokens) // so that every row in flight can decode in every step
	return c, nil
}

func orDefault[T int | int64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Engine runs requests on one model. Check and Stats may be called at any time, from any goroutine; Run by one
// goroutine at a time.
type Engine struct {
	cfg      Config
	limits   ModelLimits
	pages    int
	cache    Cache
	busy     atomic.Bool
	born     time.Time
	stepping atomic.Int64     // when the present step began, in nanoseconds since born; 0: none is going on
	now      func() time.Time // the monotonic clock; replaced in tests

	firstShare float64 // where forecasts start; 0 in tests that want rows to be preempted

	mu      sync.Mutex
	stats   Stats
	decoded quantiles // durations of steps that only decode
}

// New makes an engine and allocates its KV pages. Close frees them.
func New(cfg Config) (*Engine, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, limits: cfg.Model.Limits(), now: time.Now, born: time.Now(), firstShare: 1}
	e.pages = kv.PagesInBudget(cfg.KVMemory, e.pageBytes())
	if e.pages == 0 {
		return nil, fmt.Errorf("start engine: kv-memory of %d bytes holds no page; one page of %d tokens takes %d bytes",
			cfg.KVMemory, kv.PageTokens, e.pageBytes())
	}
	// Checked before multiplying: a context of millions of tokens times MaxSeqs may leave int on 32 bits.
	if perRow := kv.PagesFor(cfg.MaxModelLen); perRow <= e.pages/cfg.MaxSeqs {
		e.pages = perRow * cfg.MaxSeqs
	}
	e.cfg.MaxSeqs = min(cfg.MaxSeqs, e.pages)
	e.cfg.EOS = slices.Clone(cfg.EOS)
	if e.cache, err = cfg.Model.NewCache(e.pages); err != nil {
		return nil, fmt.Errorf("allocate %d KV pages of %d bytes: %w", e.pages, e.pageBytes(), err)
	}
	e.stats = Stats{BatchTokens: e.cfg.BatchTokens, MaxSeqs: e.cfg.MaxSeqs, KVPages: e.pages, KVPageBytes: e.pageBytes()}
	return e, nil
}

// Close frees the KV pages. No Run may be going on.
func (e *Engine) Close() error { return e.cache.Close() }

func (e *Engine) pageBytes() int64 { return e.limits.KVBytesPerPage }

// LogitsBytes is the most memory that rows of logits can take, one per row in flight or drafted token.
func (e *Engine) LogitsBytes() int64 {
	rows := e.cfg.MaxSeqs
	if !e.cfg.NoSpeculation {
		rows = max(rows, min(e.cfg.SpeculationRows, e.cfg.BatchTokens))
	}
	return int64(rows) * int64(e.limits.VocabSize) * 4
}

// Check tells whether a request with so many prompt tokens can run at all, and fills in p.MaxTokens where it is 0:
// CheckContext, and the size of the KV pool. An explicit MaxTokens that does not fit is an error,
// never cut; the default one adapts to the context but not to the KV pool, whose size must not decide a result.
func (e *Engine) Check(promptTokens int, p *Params) *row.Error {
	if err := CheckContext(promptTokens, p, e.cfg.MaxModelLen); err != nil {
		return err
	}
	return CheckPool(promptTokens, p, e.pages, e.pageBytes())
}

// CheckPool checks a request that CheckContext has passed against a KV pool of so many pages. It needs no engine either.
func CheckPool(promptTokens int, p *Params, pages int, pageBytes int64) *row.Error {
	if need := PagesOf(promptTokens, p); need > pages {
		return row.Errorf(row.KVBudgetExceeded, "%d prompt tokens and max_tokens %d need %d KV pages (%d bytes), the pool has %d; raise kv-memory or lower max_tokens",
			promptTokens, p.MaxTokens, need, int64(need)*pageBytes, pages)
	}
	return nil
}

// PagesOf is the number of KV pages that a request takes in the end, if it runs to its MaxTokens. The last token is
// sampled, not computed: it needs no place in the cache.
func PagesOf(promptTokens int, p *Params) int { return kv.PagesFor(promptTokens + p.MaxTokens - 1) }

// PoolPages is how many pages of pageBytes a pool of so many bytes holds.
func PoolPages(memory, pageBytes int64) int { return kv.PagesInBudget(memory, pageBytes) }

// CheckContext checks parameters and a prompt's length against a context of maxModelLen tokens and fills in p.MaxTokens
// where it is 0. It needs no engine, so a plan can ask it of every row before the model is loaded.
func CheckContext(promptTokens int, p *Params, maxModelLen int) *row.Error {
	if err := p.check(); err != nil {
		return err
	}
	if promptTokens <= 0 {
		return row.Errorf(row.EmptyPrompt, "the prompt has no tokens; there is nothing to continue")
	}
	room := maxModelLen - promptTokens
	if room < 1 {
		return row.Errorf(row.ContextExceeded, "the prompt has %d tokens and the context holds %d, which leaves no room for a completion; shorten the prompt",
			promptTokens, maxModelLen)
	}
	if p.MaxTokens > room {
		return row.Errorf(row.ContextExceeded, "the prompt has %d tokens and max_tokens is %d, but the context holds %d; shorten the prompt or set max_tokens to at most %d",
			promptTokens, p.MaxTokens, maxModelLen, room)
	}
	if p.MaxTokens == 0 {
		p.MaxTokens = min(DefaultMaxTokens, room)
	}
	return nil
}

// checkRequest is Check and what needs the tokens themselves.
func (e *Engine) checkRequest(r *Request, p *Params) *row.Error {
	if err := e.Check(len(r.Tokens), p); err != nil {
		return err
	}
	for i, id := range r.Tokens {
		if id < 0 || int(id) >= e.limits.VocabSize {
			return row.Errorf(row.InvalidParams, "prompt token %d is id %d; the model's ids are 0 to %d", i, id, e.limits.VocabSize-1)
		}
	}
	return nil
}
