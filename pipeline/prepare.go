package pipeline

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/chat"
	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/jinja"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
)

// Tokenizer is what the preparer needs of a tokenizer.
type Tokenizer interface {
	Encode(text string, o tokenizer.EncodeOptions) ([]int32, error)
	VocabSize() int
	// MaxTokenBytes bounds the bytes of text that one token stands for; 0: there is no bound.
	MaxTokenBytes() int
}

// Prompting says how a record becomes a prompt.
type Prompting struct {
	Prompt *jinja.Template // user template over the row's columns; nil: PromptColumn or MessagesColumn is used
	System *jinja.Template // system message, a template too; nil: none

	PromptColumn   string // text of the prompt
	MessagesColumn string // chat messages; wins over PromptColumn where the row has it; "" = none
	TokenIDsColumn string // a list of ids, used as it is; "" = none; wins over all
	IDColumn       string // the user's id; "" = none
	TenantColumn   string // rows with different values share neither pages nor results; "" = all are of one tenant

	Batch  bool           // rows may have the shape of OpenAI's batch requests
	Raw    bool           // no chat template
	Chat   *chat.Template // nil: the model has none, prompts are used as they are
	Kwargs map[string]any // further variables of the chat template
	Now    time.Time      // the clock of user templates

	MaxLen  int          // tokens of the longest sequence; 0 = unknown
	Params  infer.Params // MaxTokens 0 = default
	Seed    int64        // the job's seed
	Samples int32        // completions per row, at least 1

	// Warn is told of what a person should know about the data and what fails no row; nil = nobody is.
	Warn func(message string)
}

// Preparer turns records into engine requests. It is safe for concurrent use.
type Preparer struct {
	Prompting
	tok   Tokenizer
	vocab int
	check func(promptTokens int, p *infer.Params) *row.Error

	strange sync.Once // the warning of a tenant that cannot be compared
}

// Unit is one request on its way, with what its result needs besides.
type Unit struct {
	Key      row.UnitKey
	CustomID *string
	Request  infer.Request
	Shard    int // that its record belongs to

	entry *entry // by which equal units find it, while it is on its way
}

// NewPreparer binds a prompting to a tokenizer and to the engine's limits (check may be nil, for planning: then only
// rendering and tokenising are checked). vocab is the model's vocabulary size, which bounds ids given by users.
func NewPreparer(p Prompting, tok Tokenizer, vocab int, check func(int, *infer.Params) *row.Error) *Preparer {
	if p.Samples < 1 {
		p.Samples = 1
	}
	return &Preparer{Prompting: p, tok: tok, vocab: vocab, check: check}
}

// Columns are the columns that a reader must decode for this prompting.
func (p *Prompting) Columns() []string {
	var cols []string
	add := func(name string) {
		if name != "" && !slices.Contains(cols, name) {
			cols = append(cols, name)
		}
	}
	for _, t := range []*jinja.Template{p.Prompt, p.System} {
		if t != nil {
			for _, n := range t.Names() {
				add(n)
			}
		}
	}
	if p.TokenIDsColumn != "" {
		add(p.TokenIDsColumn)
	} else if p.Prompt == nil {
		add(p.PromptColumn)
		add(p.MessagesColumn)
		if p.Batch {
			for _, name := range readers.OpenAIColumns {
				add(name)
			}
		}
	}
	add(p.IDColumn)
	add(p.TenantColumn)
	add(seedField)
	return cols
}

// seedField is the seed that a dead letter carries, so that running it again gives what the first run would have given.
const seedField = "_seed"

// Prepare turns a record into its units, one a sample, or into a row error. id is the user's id where the record has
// one, also beside an error.
func (p *Preparer) Prepare(rec *row.Record) (units []*Unit, id *string, rerr *row.Error) {
	defer func() { // a fault on one row is that row's error, never the run's end
		if r := recover(); r != nil {
			units, rerr = nil, p.at(rec, row.Internal, "preparing the prompt failed: %v; please report this", r)
		}
	}()
	if rec.Err != nil {
		return nil, nil, rec.Err
	}
	if p.IDColumn != "" {
		if id, rerr = p.id(rec); rerr != nil {
			return nil, nil, rerr
		}
	}
	ask := &request{params: p.Params, samples: p.Samples}
	batch := p.batch(rec)
	if batch {
		if custom, ok := rec.Fields["custom_id"].(string); ok && id == nil { // also beside an error
			id = &custom
		}
		if ask, rerr = p.openAI(rec); rerr != nil {
			return nil, id, rerr
		}
	}
	ids, rerr := p.tokens(rec, ask, batch)
	if rerr != nil {
		return nil, id, rerr
	}
	if len(ids) == 0 {
		return nil, id, p.at(rec, row.EmptyPrompt, "the prompt has no tokens at all; fill it or leave the row out")
	}
	if p.check != nil {
		if e := p.check(len(ids), &ask.params); e != nil {
			return nil, id, p.at(rec, e.Code, "%s", e.Message)
		}
	}
	tenant, seed := p.tenant(rec), p.seed(rec, id)
	for s := range ask.samples {
		units = append(units, &Unit{
			Key:      row.UnitKey{Source: rec.Source, Row: rec.Row, Sample: s},
			CustomID: id,
			Request:  infer.Request{Tokens: ids, Params: ask.params, Seed: SampleSeed(seed, s), Tenant: tenant},
		})
	}
	return units, id, nil
}

// batch tells whether a record is taken for one of OpenAI's batch requests.
func (p *Preparer) batch(rec *row.Record) bool {
	return p.Batch && p.Prompt == nil && p.TokenIDsColumn == "" && isRequest(rec)
}

// seed is the seed of a row, whether or not the row can be run: the one that a dead letter carries, else the one that a
// batch request asks for, else one derived from the job's.
func (p *Preparer) seed(rec *row.Record, id *string) int64 {
	if own, ok := rec.Fields[seedField].(int64); ok {
		return own
	}
	if body, ok := rec.Fields["body"].(*ordered.Map); ok && p.batch(rec) {
		v, _ := body.Get("seed")
		if asked, ok := v.(int64); ok {
			return asked
		}
	}
	return RowSeed(p.Seed, id, rec.Row)
}

// isRequest tells whether a record means to be a batch request: it has at least one of its parts.
func isRequest(rec *row.Record) bool {
	for _, name := range readers.OpenAIColumns {
		if _, ok := rec.Fields[name]; ok && name != "custom_id" {
			return true
		}
	}
	return false
}

func (p *Preparer) id(rec *row.Record) (*string, *row.Error) {
	v, ok := rec.Fields[p.IDColumn]
	if !ok {
		return nil, p.at(rec, row.MissingColumn, "the row has no %q, which --id-column names", p.IDColumn)
	}
	var s string
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		s = v
	case int64:
		s = strconv.FormatInt(v, 10)
	case *big.Int:
		s = v.String()
	default:
		return nil, p.at(rec, row.InvalidParams, "%q must be text or an integer to serve as id, not %T", p.IDColumn, v)
	}
	return &s, nil
}

func (p *Preparer) tokens(rec *row.Record, ask *request, batch bool) ([]int32, *row.Error) {
	if p.TokenIDsColumn != "" {
		return p.givenIDs(rec)
	}
	var text jinja.Text
	var chatted bool
	var rerr *row.Error
	if batch {
		text, chatted, rerr = p.openAIText(rec, ask)
	} else {
		text, chatted, rerr = p.render(rec)
	}
	if rerr != nil {
		return nil, rerr
	}
	// A text that cannot fit is refused before it is tokenised: that takes a hundred times its memory.
	if most := p.tok.MaxTokenBytes(); most > 0 && p.MaxLen > 0 && len(text.S)/most > p.MaxLen {
		return nil, p.at(rec, row.ContextExceeded, "the prompt has %d bytes, which is more than %d tokens, and the context holds %d; shorten the prompt",
			len(text.S), len(text.S)/most, p.MaxLen)
	}
	// A rendered chat prompt brings its own special tokens; only a bare prompt gets those that the tokenizer adds.
	literal := make([]tokenizer.Span, 0, len(text.Literal)) // never nil: special tokens in data are data
	for _, s := range text.Literal {
		literal = append(literal, tokenizer.Span(s))
	}
	ids, err := p.tok.Encode(text.S, tokenizer.EncodeOptions{AddSpecial: !chatted, Literal: literal})
	if err != nil {
		return nil, p.at(rec, row.InvalidUTF8, "the prompt cannot be tokenised: %v", err)
	}
	return ids, nil
}

// render makes the prompt's text. chatted tells whether it went through the chat template.
func (p *Preparer) render(rec *row.Record) (text jinja.Text, chatted bool, rerr *row.Error) {
	var messages []any
	switch {
	case p.Prompt != nil:
		t, rerr := p.userTemplate(p.Prompt, rec)
		if rerr != nil {
			return text, false, rerr
		}
		text = t
	default:
		v, ok := rec.Fields[p.MessagesColumn]
		if ok && v != nil && p.MessagesColumn != "" {
			m, e := chat.NormalizeMessages(v)
			if e != nil {
				return text, false, p.at(rec, e.Code, "column %q: %s", p.MessagesColumn, e.Message)
			}
			if p.Chat == nil || p.Raw {
				return text, false, p.at(rec, row.InvalidMessages, "column %q holds chat messages, but %s; give --chat-template FILE", p.MessagesColumn, p.whyNoChat())
			}
			messages = m
			break
		}
		s, rerr := p.promptText(rec)
		if rerr != nil {
			return text, false, rerr
		}
		text = jinja.Text{S: s}
	}
	if p.Raw || p.Chat == nil {
		return text, false, nil
	}
	if messages == nil {
		messages = []any{ordered.MapOf("role", "user", "content", text)}
	}
	if p.System != nil && !startsWithSystem(messages) { // a row's own system message is the more specific one
		t, rerr := p.userTemplate(p.System, rec)
		if rerr != nil {
			return text, false, rerr
		}
		messages = append([]any{ordered.MapOf("role", "system", "content", t)}, messages...)
	}
	return p.chat(rec, messages)
}

// chat renders messages with the chat template, ready for the model's turn.
func (p *Preparer) chat(rec *row.Record, messages []any) (jinja.Text, bool, *row.Error) {
	out, err := p.Chat.Render(messages, nil, true, p.Kwargs)
	if err != nil {
		var re *row.Error
		if errors.As(err, &re) {
			return out, true, p.at(rec, re.Code, "%s", re.Message)
		}
		return out, true, p.at(rec, row.TemplateError, "chat template: %v", err)
	}
	return out, true, nil
}

func startsWithSystem(messages []any) bool {
	if len(messages) == 0 {
		return false
	}
	m, ok := messages[0].(*ordered.Map)
	if !ok {
		return false
	}
	role, _ := m.Get("role")
	if t, known := role.(*jinja.Text); known {
		return t.S == "system"
	}
	return role == "system"
}

func (p *Preparer) whyNoChat() string {
	if p.Raw {
		return "--raw switches the chat template off"
	}
	return "the model has no chat template"
}

func (p *Preparer) userTemplate(t *jinja.Template, rec *row.Record) (jinja.Text, *row.Error) {
	vars := make(map[string]any, len(rec.Fields))
	for _, name := range t.Names() {
		v, ok := rec.Fields[name]
		if !ok {
			return jinja.Text{}, p.at(rec, row.MissingColumn, "the row has no %q, which the template uses", name)
		}
		if b, isBytes := v.([]byte); isBytes {
			if !utf8.Valid(b) {
				return jinja.Text{}, p.at(rec, row.InvalidUTF8, "column %q is binary and not valid UTF-8", name)
			}
			v = string(b)
		}
		vars[name] = v
	}
	out, err := t.Render(vars, jinja.Env{Now: p.Now})
	if errors.Is(err, jinja.ErrNull) {
		return out, p.at(rec, row.NullPrompt, "%v", err)
	}
	if err != nil {
		return out, p.at(rec, row.TemplateError, "%v", err)
	}
	return out, nil
}

func (p *Preparer) promptText(rec *row.Record) (string, *row.Error) {
	v, ok := rec.Fields[p.PromptColumn]
	if m, there := rec.Fields[p.MessagesColumn]; !ok && there && m == nil {
		return "", p.at(rec, row.NullPrompt, "column %q is null, and there is no %q; fill one or leave the row out", p.MessagesColumn, p.PromptColumn)
	}
	if !ok {
		what := fmt.Sprintf("%q", p.PromptColumn)
		if p.MessagesColumn != "" {
			what += fmt.Sprintf(" and no %q", p.MessagesColumn)
		}
		return "", p.at(rec, row.MissingColumn, "the row has no %s; name the column with --prompt-column, or give a template with --prompt", what)
	}
	switch v := v.(type) {
	case string:
		return v, nil
	case []byte:
		if utf8.Valid(v) {
			return string(v), nil
		}
		return "", p.at(rec, row.InvalidUTF8, "column %q is binary and not valid UTF-8", p.PromptColumn)
	case nil:
		return "", p.at(rec, row.NullPrompt, "column %q is null; fill it or leave the row out", p.PromptColumn)
	default:
		return "", p.at(rec, row.InvalidRowType, "column %q holds %s where a prompt's text is expected; use --prompt '{{ %s }}' to print it", p.PromptColumn, kindOf(v), p.PromptColumn)
	}
}

func (p *Preparer) givenIDs(rec *row.Record) ([]int32, *row.Error) {
	v, ok := rec.Fields[p.TokenIDsColumn]
	if !ok {
		return nil, p.at(rec, row.MissingColumn, "the row has no %q, which --token-ids-column names", p.TokenIDsColumn)
	}
	if v == nil {
		return nil, p.at(rec, row.NullPrompt, "column %q is null", p.TokenIDsColumn)
	}
	list, ok := v.([]any)
	if !ok {
		return nil, p.at(rec, row.InvalidRowType, "column %q holds %s where a list of token ids is expected", p.TokenIDsColumn, kindOf(v))
	}
	ids := make([]int32, len(list))
	for i, x := range list {
		n, ok := x.(int64)
		if !ok || n < 0 || n >= int64(p.vocab) {
			return nil, p.at(rec, row.InvalidParams, "column %q, element %d: %v is not a token id (0 to %d)", p.TokenIDsColumn, i, x, p.vocab-1)
		}
		ids[i] = int32(n)
	}
	return ids, nil
}

// at makes a row error that names the place.
func (p *Preparer) at(rec *row.Record, code row.Code, format string, args ...any) *row.Error {
	return row.Errorf(code, "%s: %s", Place(rec), fmt.Sprintf(format, args...))
}

// Place names a record for a person: file, 1-based line or row index, byte offset where there is one.
func Place(rec *row.Record) string {
	if rec.Line > 0 && rec.Offset >= 0 {
		return fmt.Sprintf("%s, line %d (byte %d)", rec.Source, rec.Line, rec.Offset)
	}
	return fmt.Sprintf("%s, row %d", rec.Source, rec.Row)
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case int64, *big.Int, float64:
		return "a number"
	case string, jinja.Text:
		return "text"
	case []byte:
		return "binary data"
	case []any:
		return "a list"
	case *ordered.Map:
		return "an object"
	}
	return fmt.Sprintf("a %T", v)
}
