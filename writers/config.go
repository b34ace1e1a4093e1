package writers

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/parquet-go/parquet-go"
)

// The formats that New knows.
const (
	JSONL   = "jsonl"
	Parquet = "parquet"
	OpenAI  = "openai"
)

// Formats lists the formats that New knows.
func Formats() []string { return []string{JSONL, Parquet, OpenAI} }

// Config says what a part holds and how. The zero value of all but Format is usable.
type Config struct {
	Format string // JSONL, Parquet or OpenAI

	// Source describes the records whose cells are carried; nil carries nothing.
	Source *row.Schema
	// Carry names the source's top-level columns that are written; nil means all, an empty list none. The order in the
	// output is the source's.
	Carry []string
	// Own names the columns of ours that are written, without the prefix; nil means the default set. The order in the
	// output is that of Columns.
	Own []string
	// Logprobs and TokenIDs add those columns to the default set.
	Logprobs, TokenIDs bool
	// Prefix renames all columns of ours.
	Prefix string

	Provenance Provenance
	// Footer is written among a Parquet file's key-value metadata, after the source's and the provenance.
	Footer []row.KeyValue
}

// Provenance is what every row, and a Parquet footer, says about where it comes from.
type Provenance struct {
	Model       string
	ModelDigest string // hex SHA-256
	RunID       string
	Created     time.Time // start of the job, for the "created" of OpenAI bodies
}

// Writer writes one part. Write is called once for every unit, in the input's order, with the record that the unit came
// from (nil where there is none to carry) and its result. Close ends the part, adds the given pairs to the footer where
// the format has one, and does not close the io.Writer below.
type Writer interface {
	Write(rec *row.Record, res *row.Result) error
	Close(footer ...row.KeyValue) (Stats, error)
}

// Stats counts the units that were given to a writer.
type Stats struct {
	Rows, OK, Errors, Skipped int64
	ResultDigest              string // see the package comment
}

func (s *Stats) count(status row.Status) {
	s.Rows++
	switch status {
	case row.OK:
		s.OK++
	case row.Skipped:
		s.Skipped++
	default:
		s.Errors++
	}
}

// New starts a part. It fails where Check does.
func New(w io.Writer, cfg Config) (Writer, error) {
	if err := Check(cfg); err != nil {
		return nil, err
	}
	switch cfg.Format {
	case JSONL:
		return newJSONL(w, cfg)
	case Parquet:
		return newParquet(w, cfg)
	default:
		return newOpenAI(w, cfg)
	}
}

// Check refuses what can be refused before any row is read: unknown formats and names, and columns of ours that would
// hide one of the source's. Its messages name the flag that helps.
func Check(cfg Config) error {
	if !slices.Contains(Formats(), cfg.Format) {
		return fmt.Errorf("unknown output format %q: use one of %s", cfg.Format, strings.Join(Formats(), ", "))
	}
	if s := cfg.Source; s != nil && s.Parquet != nil { // the field is untyped so that package row needs no Parquet library
		if _, ok := s.Parquet.(*parquet.Schema); !ok {
			return fmt.Errorf("source schema is a %T, want *parquet.Schema", s.Parquet)
		}
	}
	own, err := ownColumns(cfg)
	if err != nil {
		return err
	}
	source := sourceNames(cfg.Source)
	if len(source) > 0 { // the sample of an empty JSONL source names nothing: no word against any name
		for _, name := range cfg.Carry {
			if !slices.Contains(source, name) {
				return unknownName("--columns", "column", name, source)
			}
		}
	}
	if cfg.Format == OpenAI {
		return nil // carries nothing and has no columns
	}
	names := make([]string, 0, len(own)+1)
	for _, c := range own {
		names = append(names, cfg.Prefix+c.Name)
	}
	if cfg.Format == Parquet && !cfg.parquetSource() {
		names = append(names, cfg.Prefix+extraName)
	}
	for _, name := range names {
		if slices.Contains(source, name) && cfg.carries(name) {
			return fmt.Errorf("the input has a column %q, and so has the output: rename ours with --output-prefix, or leave one out with --columns or --output-columns", name)
		}
	}
	return nil
}

func (c *Config) carries(name string) bool { return c.Carry == nil || slices.Contains(c.Carry, name) }

// parquetSource tells whether records carry parquet.Row cells.
func (c *Config) parquetSource() bool { return c.Source != nil && c.Source.Parquet != nil }

func sourceNames(s *row.Schema) []string {
	if s == nil {
		return nil
	}
	var names []string
	if schema, ok := s.Parquet.(*parquet.Schema); ok {
		for _, f := range schema.Fields() {
			names = append(names, f.Name())
		}
		return names
	}
	for _, c := range s.Columns {
		names = append(names, c.Name)
	}
	return names
}

// ownColumns is what of ours is written, in the table's order.
func ownColumns(cfg Config) ([]*Column, error) {
	var all, own []*Column
	var names []string
	for i := range columnTable {
		all = append(all, &columnTable[i])
		names = append(names, columnTable[i].Name)
	}
	for _, name := range cfg.Own {
		if !slices.Contains(names, name) {
			return nil, unknownName("--output-columns", "output column", name, names)
		}
	}
	for _, c := range all {
		switch {
		case cfg.Own != nil && !slices.Contains(cfg.Own, c.Name):
		case cfg.Own == nil && c.Name == "logprobs" && !cfg.Logprobs:
		case cfg.Own == nil && c.Name == "token_ids" && !cfg.TokenIDs:
		default:
			own = append(own, c)
		}
	}
	return own, nil
}

// maxListedNames bounds the names that an error message lists: a wide table has thousands.
const maxListedNames = 40

func unknownName(flag, what, name string, known []string) error {
	if best, ok := closest(name, known); ok {
		return fmt.Errorf("%s: there is no %s %q: did you mean %q?", flag, what, name, best)
	}
	more := ""
	if len(known) > maxListedNames {
		more = fmt.Sprintf(" and %d more", len(known)-maxListedNames)
		known = known[:maxListedNames]
	}
	return fmt.Errorf("%s: there is no %s %q: there are %s%s", flag, what, name, strings.Join(known, ", "), more)
}

// closest finds the nearest known name, at most a third of the name's length in edits away.
func closest(name string, known []string) (best string, ok bool) {
	limit := max(1, len(name)/3)
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), strings.ToLower(k)); d <= limit {
			best, limit, ok = k, d-1, true
		}
	}
	return best, ok
}

// editDistance is Levenshtein's, over bytes.
func editDistance(a, b string) int {
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		diagonal := prev[0]
		prev[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(prev[j]+1, prev[j+1]+1, diagonal+cost)
			diagonal, prev[j+1] = prev[j+1], next
		}
	}
	return prev[len(b)]
}
