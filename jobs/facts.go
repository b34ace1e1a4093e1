package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

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

// maxSmallObject bounds plan, seals and markers when they are read back: far above what we write, far below what hurts.
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
