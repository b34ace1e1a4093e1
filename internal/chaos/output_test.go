package chaos

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// output is what a finished job left.
type output struct {
	parts   []part
	rows    []map[string]any // result columns, in order
	units   []unit           // beside rows
	letters map[string][]string
}

// part is what the tests read of an entry in _SUCCESS.
type part struct {
	Part         string `json:"part"`
	Size         int64  `json:"size"`
	ObjectSHA256 string `json:"object_sha256"`
	ResultDigest string `json:"result_digest"`
	Rows         struct {
		Total int64 `json:"total"`
		OK    int64 `json:"ok"`
		Error int64 `json:"error"`
	} `json:"rows"`
}

// unit is a row's identity and state.
type unit struct {
	file   string
	row    int64
	sample int64
	failed bool
}

// measurements are the columns that may differ between runs; all others are result columns.
var measurements = []string{"cached_tokens", "queue_time_ms", "prefill_time_ms", "ttft_ms", "decode_time_ms", "tpot_ms", "e2e_latency_ms", "attempts", "dedup_of", "run_id", "error_message"}

// belongs matches what a finished job may leave, relative to its folder. What stands in _run is the protocol's own affair,
// but for the journal and temporary files.
var belongs = regexp.MustCompile(`^(part-\d+-of-\d+\.(jsonl|parquet)|_errors/part-\d+-of-\d+\.jsonl|_SUCCESS|_run/.*)$`)

// strays returns what a finished job must not leave.
func strays(p *place, folder string) ([]string, error) {
	keys, err := p.list(folder)
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(keys, func(k string) bool {
		return belongs.MatchString(k) && !strings.HasPrefix(k, "_run/journal/") && !strings.HasPrefix(k, "_run/tmp/") && !strings.Contains(path.Base(k), ".tmp")
	})
	uploads, err := p.uploads(folder)
	for _, u := range uploads {
		left = append(left, "unfinished upload of "+u)
	}
	return left, err
}

// folder is where a job's side objects lie.
func (w *work) folder(prefix string) string {
	if w.output == "/" {
		return prefix + "/"
	}
	return prefix + w.output + ".batchmill/"
}

// readOutput reads what a job left and holds _SUCCESS, parts and dead letters against each other.
func readOutput(p *place, w *work, prefix string) (*output, error) {
	folder := w.folder(prefix)
	data, err := p.read(folder + "_SUCCESS")
	if err != nil {
		return nil, err
	}
	var success struct{ Parts []part }
	if err := json.Unmarshal(data, &success); err != nil {
		return nil, fmt.Errorf("read _SUCCESS: %w", err)
	}
	out := &output{parts: success.Parts, letters: map[string][]string{}}
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	known := map[string]bool{}
	for _, part := range success.Parts {
		key := prefix + "/" + part.Part
		if w.output != "/" {
			key = prefix + w.output
		}
		known[path.Base(key)] = true
		data, err := p.read(key)
		if err != nil {
			complain("a part of _SUCCESS is missing: %w", err)
			continue
		}
		if sum := sha256.Sum256(data); int64(len(data)) != part.Size || hex.EncodeToString(sum[:]) != part.ObjectSHA256 {
			complain("%s has %d bytes and hash %x, _SUCCESS says %d and %s", part.Part, len(data), sum[:4], part.Size, part.ObjectSHA256[:8])
		}
		rows, err := parse(w.format, data)
		if err != nil {
			complain("read %s: %w", part.Part, err)
			continue
		}
		var failed int64
		for _, r := range rows {
			u, err := unitOf(r)
			if err != nil {
				complain("%s: %w", part.Part, err)
			}
			if u.failed {
				failed++
			}
			out.units = append(out.units, u)
			for _, name := range measurements {
				delete(r, name)
			}
			out.rows = append(out.rows, r)
		}
		if c := part.Rows; c.Total != int64(len(rows)) || c.Error != failed || c.OK+c.Error != c.Total {
			complain("%s has %d rows, %d of them failed; _SUCCESS says %+v", part.Part, len(rows), failed, c)
		}
		letters, err := p.read(folder + "_errors/" + strings.TrimSuffix(part.Part, path.Ext(part.Part)) + ".jsonl")
		if err != nil && failed > 0 {
			complain("%d rows of %s failed: %w", failed, part.Part, err)
		}
		for line := range bytes.Lines(letters) {
			out.letters[part.Part] = append(out.letters[part.Part], string(line))
		}
		if n := int64(len(out.letters[part.Part])); n != failed {
			complain("%s has %d failed rows and %d dead letters", part.Part, failed, n)
		}
	}
	keys, err := p.list(prefix + "/")
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if !strings.Contains(k, "/") && !strings.HasPrefix(k, "_") && !known[k] {
			complain("%s is data, but no part of _SUCCESS", k)
		}
	}
	return out, errors.Join(wrong...)
}

// parse reads the rows of a part.
func parse(format string, data []byte) ([]map[string]any, error) {
	var rows []map[string]any
	if format == "parquet" {
		r := parquet.NewGenericReader[any](bytes.NewReader(data))
		defer r.Close()
		all := make([]any, r.NumRows())
		if n, err := r.Read(all); int64(n) != r.NumRows() {
			return nil, fmt.Errorf("read %d of %d rows: %w", n, r.NumRows(), err)
		}
		for _, v := range all {
			m, ok := v.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("a row is a %T", v)
			}
			rows = append(rows, m)
		}
		return rows, nil
	}
	for line := range bytes.Lines(data) {
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		rows = append(rows, m)
	}
	return rows, nil
}

// unitOf reads a row's identity.
func unitOf(r map[string]any) (unit, error) {
	source, status := text(r["source_file"]), text(r["status"])
	u := unit{file: path.Base(source), failed: status == "error"}
	if status != "ok" && status != "error" {
		return u, fmt.Errorf("row %v of %s has the status %q", r["row_index"], source, status)
	}
	if _, err := fmt.Sscan(text(r["row_index"]), &u.row); err != nil {
		return u, fmt.Errorf("row_index %v: %w", r["row_index"], err)
	}
	if _, err := fmt.Sscan(text(r["sample_index"]), &u.sample); err != nil {
		return u, fmt.Errorf("sample_index %v: %w", r["sample_index"], err)
	}
	return u, nil
}

func text(v any) string {
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// wantUnits are the rows that a job's output must hold, in order: they follow from the inputs alone.
func (w *work) wantUnits() []unit {
	var want []unit
	for _, f := range w.files {
		for i, r := range f.rows {
			for s := range r.samples {
				want = append(want, unit{f.name, int64(i), int64(s), r.failed})
			}
		}
	}
	return want
}

// sameAs holds an output against the inputs and against that of an unbroken run.
func (got *output) sameAs(want *output, w *work) error {
	if units := w.wantUnits(); !slices.Equal(got.units, units) {
		for i := range max(len(units), len(got.units)) {
			switch {
			case i >= len(got.units):
				return fmt.Errorf("%d rows, want %d: the first missing one is %+v", len(got.units), len(units), units[i])
			case i >= len(units):
				return fmt.Errorf("%d rows, want %d: the first one too much is %+v", len(got.units), len(units), got.units[i])
			case got.units[i] != units[i]:
				return fmt.Errorf("row %d of the output is %+v, want %+v", i, got.units[i], units[i])
			}
		}
	}
	for i := range want.rows {
		if !reflect.DeepEqual(got.rows[i], want.rows[i]) {
			return fmt.Errorf("the result columns of row %d are\n%v, in the unbroken run\n%v", i, got.rows[i], want.rows[i])
		}
	}
	if len(got.parts) != len(want.parts) {
		return fmt.Errorf("%d parts, in the unbroken run %d", len(got.parts), len(want.parts))
	}
	for i, p := range want.parts {
		if g := got.parts[i]; g.Part != p.Part || g.ResultDigest != p.ResultDigest {
			return fmt.Errorf("part %d is %s with result digest %s, in the unbroken run %s with %s", i, g.Part, g.ResultDigest, p.Part, p.ResultDigest)
		}
	}
	if !reflect.DeepEqual(got.letters, want.letters) {
		return fmt.Errorf("dead letters are\n%v, in the unbroken run\n%v", got.letters, want.letters)
	}
	return nil
}
