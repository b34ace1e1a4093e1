package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

// Facts say what a part holds. They are stored before the part, under a name that holds the part's hash, so that facts
// exist for every committed part whatever was killed.
type Facts struct {
	Part         string             `json:"part"` // name within the output
	PlanDigest   string             `json:"plan_digest"`
	RunID        string             `json:"run_id"`
	Size         int64              `json:"size"`
	ObjectSHA256 string             `json:"object_sha256"`
	ResultDigest string             `json:"result_digest"`
	Rows         RowCounts          `json:"rows"`
	Errors       map[row.Code]int64 `json:"errors"`
	Tokens       TokenCounts        `json:"tokens"`
	Copied       CopyCounts         `json:"copied"`
}

// RowCounts count output rows by state. Total is their sum and what was not started.
type RowCounts struct {
	Total      int64 `json:"total"`
	OK         int64 `json:"ok"`
	Error      int64 `json:"error"`
	Skipped    int64 `json:"skipped"`
	NotStarted int64 `json:"not_started"`
}

// TokenCounts count the tokens of committed rows.
type TokenCounts struct {
	Prompt     int64 `json:"prompt"`
	Cached     int64 `json:"cached"`
	Completion int64 `json:"completion"`
}

// CopyCounts count rows that were not run, since an equal one was: they have their share in the other counts too.
type CopyCounts struct {
	Rows       int64 `json:"rows"`
	Prompt     int64 `json:"prompt"` // tokens
	Completion int64 `json:"completion"`
}

// computed is the number of tokens that were computed: none for copies, none for what came from shared pages.
func (f *Facts) computed() int64 {
	return f.Tokens.Prompt - f.Tokens.Cached - f.Copied.Prompt + f.Tokens.Completion - f.Copied.Completion
}

// add counts one result.
func (f *Facts) add(r *row.Result) {
	f.Rows.Total++
	switch r.Status {
	case row.OK:
		f.Rows.OK++
	case row.Skipped:
		f.Rows.Skipped++
	default:
		f.Rows.Error++
		f.Errors[r.Err.Code]++
	}
	f.Tokens.Prompt += int64(r.PromptTokens)
	f.Tokens.Cached += int64(r.CachedTokens)
	f.Tokens.Completion += int64(r.CompletionTokens)
	if r.DedupOf != nil {
		f.Copied.Rows++
		f.Copied.Prompt += int64(r.PromptTokens)
		f.Copied.Completion += int64(r.CompletionTokens)
	}
}

// merge adds the counts of another part.
func (f *Facts) merge(o *Facts) {
	f.Rows.Total += o.Rows.Total
	f.Rows.OK += o.Rows.OK
	f.Rows.Error += o.Rows.Error
	f.Rows.Skipped += o.Rows.Skipped
	for c, n := range o.Errors {
		f.Errors[c] += n
	}
	f.Tokens.Prompt += o.Tokens.Prompt
	f.Tokens.Cached += o.Tokens.Cached
	f.Tokens.Completion += o.Tokens.Completion
	f.Copied.Rows += o.Copied.Rows
	f.Copied.Prompt += o.Copied.Prompt
	f.Copied.Completion += o.Copied.Completion
}

// maxSmallObject bounds plan, facts and markers when they are read back: far above what we write, far below what hurts.
const maxSmallObject = 256 << 20

func encodeJSON(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return append(data, '\n'), nil
}

// jsonType is the content type of small objects.
const jsonType = "application/json"

// putJSON stores a small object, unless it is there already. It reports whether this call stored it.
func putJSON(ctx context.Context, store *objstore.Store, url string, v any) (stored bool, err error) {
	data, err := encodeJSON(v)
	if err != nil {
		return false, err
	}
	err = store.Put(ctx, url, data, objstore.CreateOptions{IfAbsent: true, ContentType: jsonType})
	if errors.Is(err, objstore.ErrExists) {
		return false, nil
	}
	if err != nil {
		return false, classifyPut(fmt.Errorf("write %s: %w", url, err))
	}
	return true, nil
}

func getJSON(ctx context.Context, store *objstore.Store, url string, v any) error {
	data, _, err := store.ReadAll(ctx, url, maxSmallObject)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return Errorf(BadInput, "", "%s is damaged: %w", url, err)
	}
	return nil
}

// findFacts returns the facts of a committed part. Several attempts may have left facts; the part's size, and its hash
// where that is not enough, tells whose won.
func findFacts(ctx context.Context, store *objstore.Store, l layout, n int, part objstore.Info, listed []objstore.Info) (*Facts, error) {
	var found []*Facts
	for _, info := range listed {
		name := info.URL[strings.LastIndexByte(info.URL, '/')+1:]
		if !strings.HasPrefix(name, l.partName(n)+"-") {
			continue
		}
		f := &Facts{}
		if err := getJSON(ctx, store, info.URL, f); err != nil {
			return nil, classify(err)
		}
		if f.Size == part.Size {
			found = append(found, f)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		sum, err := hashObject(ctx, store, part)
		if err != nil {
			return nil, classify(err)
		}
		for _, f := range found {
			if f.ObjectSHA256 == sum {
				return f, nil
			}
		}
	}
	return nil, Errorf(BadInput, fmt.Sprintf("if it is not needed, start anew with --overwrite; it removes %s", l.shown()),
		"%s was not written by this job, or was changed since", part.URL)
}

func hashObject(ctx context.Context, store *objstore.Store, info objstore.Info) (string, error) {
	obj, err := store.Open(ctx, info)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(obj, 0, obj.Size())); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
