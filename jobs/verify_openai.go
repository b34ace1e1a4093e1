package jobs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/writers"
)

// batchLine is what a line of OpenAI's batch results is checked by.
type batchLine struct {
	ID       string `json:"id"`
	Response *struct {
		Status int `json:"status_code"`
		Body   struct {
			Choices []struct {
				Index int64 `json:"index"`
			} `json:"choices"`
			Model       string `json:"model"`
			Fingerprint string `json:"system_fingerprint"`
		} `json:"body"`
	} `json:"response"`
	Error *letterError `json:"error"`
}

// maxSearches bounds how often the whole shard is searched for a line that is not where it should be: each costs a hash
// for every row.
const (
	maxSearches = 100
	nearRows    = 1000 // rows that are looked at behind the present one when that bound is reached
)

// openAI reads a part of batch results: its lines are the rows of which something was ok, its dead letters the units that
// failed. Both name rows by the hash that writers.RequestID gives.
func (c *partCheck) openAI(ctx context.Context, obj *objstore.Object) error {
	body := obj.NewReader(ctx, 0, -1)
	defer body.Close()
	dec := jsontext.NewDecoder(bufio.NewReaderSize(body, spoolBuffer))
	walk := newShardWalk(c.v.plan, c.n)
	for {
		var x batchLine
		if err := json.UnmarshalDecode(dec, &x); err != nil {
			if errors.Is(err, io.EOF) {
				break
			}
			var syntax *jsontext.SyntacticError
			var semantic *json.SemanticError
			if !errors.As(err, &syntax) && !errors.As(err, &semantic) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return classify(err)
			}
			c.broken = true
			c.at(UnreadablePart, c.line+1, nil, "it cannot be read any further: %v", err)
			break
		}
		c.line++
		id, at, ok := walk.find(x.ID)
		if !ok {
			c.at(ForeignRow, c.line, nil, "the line %s is of no row of this part", x.ID)
			continue
		}
		if x.Response == nil || len(x.Response.Body.Choices) == 0 {
			c.at(WrongRow, c.line, &id, "the line has no choices")
			continue
		}
		if want := c.v.plan.Decides.ModelDigest; x.Response.Body.Fingerprint != want {
			c.at(WrongRow, c.line, &id, "it was made by the model %.12s, the plan's is %.12s", x.Response.Body.Fingerprint, want)
		}
		for _, choice := range x.Response.Body.Choices {
			id.SampleIndex = choice.Index
			c.unit(c.url, c.line, id, at, false)
		}
	}
	return c.openAILetters()
}

// unit notes one unit of a batch result.
func (c *partCheck) unit(file string, line int64, id RowID, at int64, failed bool) {
	if id.SampleIndex < 0 || id.SampleIndex >= c.ledger.samples {
		c.proof.add(Finding{Kind: DoubledRow, File: file, Line: line, Row: &id, Message: "the row has more results than samples"})
		return
	}
	before := c.ledger.last
	m := c.ledger.mark(at, id.SampleIndex, failed)
	if failed {
		c.ledger.last = before // the two files have an order each
	}
	switch {
	case m == metTwice:
		c.proof.add(Finding{Kind: DoubledRow, File: file, Line: line, Row: &id, Message: "the row is there a second time"})
		return
	case m == metLate && !failed:
		c.proof.add(Finding{Kind: RowOrder, File: file, Line: line, Row: &id, Message: "the row stands behind one that follows it in the input"})
	}
	f := &c.proof.facts
	f.Rows.Total++
	if failed {
		f.Rows.Error++
	} else {
		f.Rows.OK++
	}
}

// openAILetters takes the failed units from the dead letters.
func (c *partCheck) openAILetters() error {
	walk := newShardWalk(c.v.plan, c.n)
	for x := c.letters.peek(0); x != nil; x = c.letters.peek(0) {
		c.letters.take()
		id, at, ok := walk.find(x.id)
		if !ok {
			c.letters.report(c.letters.line, nil, "the line "+x.id+" is of no row of this part")
			continue
		}
		if !x.failed {
			c.letters.report(c.letters.line, &id, "the line has no error")
			continue
		}
		c.proof.facts.Errors[row.Code(x.code)]++
		if id.SampleIndex = c.ledger.free(at); id.SampleIndex < 0 {
			id.SampleIndex = c.ledger.samples
		}
		c.unit(c.letters.url, c.letters.line, id, at, true)
	}
	return c.letters.failure
}

// shardWalk finds the rows of a shard by their hashes, which come in order: it goes on from the row found last, and
// searches the whole shard only for what is out of order.
type shardWalk struct {
	plan     *Plan
	shard    int
	next     walkPlace
	searches int
}

// walkPlace is a position in a shard: a segment, a row of it, and the records before.
type walkPlace struct {
	seg      int
	row, rec int64
}

func newShardWalk(p *Plan, shard int) *shardWalk { return &shardWalk{plan: p, shard: shard} }

func (w *shardWalk) find(id string) (RowID, int64, bool) {
	ahead := int64(math.MaxInt64)
	if w.searches >= maxSearches {
		ahead = nearRows
	}
	if r, at, ok := w.from(w.next, ahead, id); ok || w.searches >= maxSearches {
		return r, at, ok
	}
	w.searches++
	return w.from(walkPlace{}, math.MaxInt64, id)
}

// from looks at so many rows from a place on.
func (w *shardWalk) from(p walkPlace, rows int64, id string) (RowID, int64, bool) {
	segs := w.plan.Shards[w.shard]
	for ; p.seg < len(segs); p.seg, p.row = p.seg+1, 0 {
		s := segs[p.seg]
		source := sourceName(w.plan.Inputs[s.Input].URL)
		for ; p.row < s.rows(); p.row, p.rec, rows = p.row+1, p.rec+1, rows-1 {
			if rows == 0 {
				return RowID{}, 0, false
			}
			if writers.RequestID(source, s.Cut.FirstRow+p.row) != id {
				continue
			}
			w.next = p // the same row again is a doubled line
			return RowID{SourceFile: source, RowIndex: s.Cut.FirstRow + p.row}, p.rec, true
		}
	}
	return RowID{}, 0, false
}
