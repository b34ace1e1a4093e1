package jobs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/writers"
)

// letter is what a dead letter says of ours. A letter in OpenAI's shape has an id and no seed.
type letter struct {
	id            string
	failed        bool // it says why
	code, message string
	seed          int64
	seeded        bool
}

type letterError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// readLetter reads the next letter. The record's own members are skipped, whatever their names and types.
func readLetter(dec *jsontext.Decoder, openAI bool) (*letter, error) {
	var plain struct {
		Error *letterError `json:"_error"`
		Seed  *int64       `json:"_seed"`
	}
	var batch struct {
		ID    string       `json:"id"`
		Error *letterError `json:"error"`
	}
	x := &letter{}
	if openAI {
		if err := json.UnmarshalDecode(dec, &batch); err != nil {
			return nil, err
		}
		x.id, plain.Error = batch.ID, batch.Error
	} else if err := json.UnmarshalDecode(dec, &plain); err != nil {
		return nil, err
	}
	if e := plain.Error; e != nil {
		x.failed, x.code, x.message = true, e.Code, e.Message
	}
	if s := plain.Seed; s != nil {
		x.seeded, x.seed = true, *s
	}
	return x, nil
}

// letterCheck reads the dead letters of a part beside its error rows: there must be one for each, in order.
type letterCheck struct {
	url     string
	proof   *findings
	body    io.ReadCloser // nil where there is no file
	openAI  bool
	dec     *jsontext.Decoder
	queue   []*letter // read ahead
	before  *letter   // taken last
	line    int64     // lines read
	wanted  int64     // error rows so far
	off     bool      // the part cannot be compared: no column status
	failure error     // of the store
}

// openLetters prepares the comparison for part n.
func (v *verifier) openLetters(ctx context.Context, n int, proof *findings) (*letterCheck, error) {
	l := &letterCheck{url: v.layout.errors(n), proof: proof, openAI: v.plan.Decides.Format == writers.OpenAI, off: !v.owns("status")}
	info, err := v.store.Stat(ctx, l.url)
	if errors.Is(err, objstore.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	obj, err := v.store.Open(ctx, info)
	if err != nil {
		return nil, classify(err)
	}
	l.body = obj.NewReader(ctx, 0, -1)
	l.dec = jsontext.NewDecoder(bufio.NewReaderSize(l.body, spoolBuffer), jsontext.AllowDuplicateNames(true))
	return l, nil
}

func (l *letterCheck) close() {
	if l.body != nil {
		l.body.Close()
	}
}

// peek returns the i-th unread letter, nil where there is none.
func (l *letterCheck) peek(i int) *letter {
	for len(l.queue) <= i && l.dec != nil {
		x, err := readLetter(l.dec, l.openAI)
		if err != nil {
			var syntax *jsontext.SyntacticError
			var semantic *json.SemanticError
			switch {
			case errors.Is(err, io.EOF):
			case errors.As(err, &syntax), errors.As(err, &semantic), errors.Is(err, io.ErrUnexpectedEOF):
				l.proof.add(Finding{Kind: DeadLetters, File: l.url, Line: l.line + 1, Message: "it cannot be read: " + err.Error()})
			default:
				l.failure = classify(err)
			}
			l.dec = nil
			break
		}
		l.line++
		l.queue = append(l.queue, x)
	}
	if i < len(l.queue) {
		return l.queue[i]
	}
	return nil
}

// take drops the next letter.
func (l *letterCheck) take() *letter {
	x := l.queue[0]
	l.queue = l.queue[1:]
	l.before = x
	return x
}

// fits tells whether a letter is an error row's.
func (x *letter) fits(c *cells) bool {
	if !x.failed || c.code != "" && x.code != string(c.code) || x.seeded && c.seed != nil && x.seed != *c.seed {
		return false
	}
	const replacement = string(utf8.RuneError) // bytes that are no text are replaced in either, not alike
	return c.message == "" || x.message == c.message || strings.Contains(c.message, replacement)
}

// repeated tells whether the next letter is the one taken last.
func (l *letterCheck) repeated() bool {
	return l.before != nil && l.peek(0) != nil && *l.peek(0) == *l.before
}

// row takes the letter of an error row. Where the next one is not it, a doubled or strange letter in front is dropped, or
// else the row's is missing.
func (l *letterCheck) row(line int64, c *cells) {
	l.wanted++
	if l.body == nil {
		l.report(0, &c.id, "the row failed, but there is no file with its dead letter")
		return
	}
	for x := l.peek(0); x != nil && !x.fits(c); x = l.peek(0) {
		switch {
		case l.repeated():
			l.report(l.line-int64(len(l.queue))+1, nil, "the dead letter is there a second time")
		case l.peek(1) != nil && l.peek(1).fits(c):
			l.report(l.line-int64(len(l.queue))+1, nil, "the dead letter belongs to no error row of the part")
		default:
			l.report(0, &c.id, "the dead letter of the row is missing or was changed")
			return
		}
		l.take()
	}
	if l.peek(0) == nil {
		l.report(0, &c.id, "the dead letter of the row is missing")
		return
	}
	l.take()
}

func (l *letterCheck) report(line int64, id *RowID, message string) {
	if l.failure != nil {
		return
	}
	if id != nil && id.SourceFile == "" {
		id = nil
	}
	l.proof.add(Finding{Kind: DeadLetters, File: l.url, Line: line, Row: id, Message: message})
}

// end looks for letters that no error row asked for.
func (l *letterCheck) end() error {
	for !l.off && l.failure == nil && l.peek(0) != nil {
		message := "the dead letter belongs to no error row of the part"
		if l.repeated() {
			message = "the dead letter is there a second time"
		}
		l.report(l.line-int64(len(l.queue))+1, nil, message)
		l.take()
	}
	return l.failure
}
