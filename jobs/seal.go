package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// Seal fixes what a shard's part holds, once every unit is journalled and before the part is stored. It is stored if none is
// there, so of several attempts one wins; all of them then make the part from the winner's chunks, byte by byte the same.
type Seal struct {
	Version int `json:"version"`
	Shard   int `json:"shard"`
	Facts
	Records int64      `json:"records"` // of the input
	Chunks  []ChunkRef `json:"chunks"`  // in the order in which they count: of a unit the first good result, else the last error
}

const sealVersion = 1

// Facts say what a part holds.
type Facts struct {
	Part         string             `json:"part"` // name within the output
	PlanDigest   string             `json:"plan_digest"`
	RunID        string             `json:"run_id"` // of the attempt that sealed it
	Size         int64              `json:"size"`
	ObjectSHA256 string             `json:"object_sha256"`
	ResultDigest string             `json:"result_digest"`
	Rows         RowCounts          `json:"rows"`
	Errors       map[row.Code]int64 `json:"errors"`
	Tokens       TokenCounts        `json:"tokens"`
	Copied       CopyCounts         `json:"copied"`
}

// readSeal returns the seal of a shard, nil if there is none. One that is not of the plan is an error.
func readSeal(ctx context.Context, store *objstore.Store, l layout, plan *Plan, n int) (*Seal, error) {
	url := l.seal(n)
	s := &Seal{}
	err := getJSON(ctx, store, url, s)
	if errors.Is(err, objstore.ErrNotExist) {
		return nil, nil
	}
	if err != nil && KindOf(err) == BadInput {
		return nil, Errorf(BadInput, l.removal(n), "%w", err)
	}
	if err != nil {
		return nil, classify(err)
	}
	if s.Version != sealVersion || s.PlanDigest != plan.Digest || s.Shard != n || s.Part != l.partName(n)+l.ext {
		return nil, Errorf(BadInput, l.removal(n), "%s belongs to another plan, shard or version", url)
	}
	if s.Errors == nil {
		s.Errors = map[row.Code]int64{}
	}
	return s, nil
}

// errNotAsSealed says that a part is not what its seal says.
var errNotAsSealed = errors.New("a part was changed")

// fits compares what a listing says of a part with its seal, which is nil where there is none.
func (s *Seal) fits(l layout, n int, info objstore.Info) error {
	if s == nil {
		return Errorf(BadInput, l.removal(n), "%s has no seal: it was not written by this job", info.URL)
	}
	if info.Size != s.Size {
		return Errorf(BadInput, l.removal(n), "%w: %s has %d bytes, and %d were sealed", errNotAsSealed, info.URL, info.Size, s.Size)
	}
	return nil
}

// trust checks a part that is there against its seal: plan, size, and what the store or the footer says of its content.
// verify reads the rows too.
func trust(ctx context.Context, store *objstore.Store, l layout, plan *Plan, n int, info objstore.Info) (*Seal, error) {
	s, err := readSeal(ctx, store, l, plan, n)
	if err != nil {
		return nil, err
	}
	if err := s.fits(l, n, info); err != nil {
		return nil, err
	}
	meta, err := store.Metadata(ctx, info.URL)
	if err != nil {
		return nil, classify(err)
	}
	for key, want := range s.metadata() {
		if got, ok := meta[key]; ok && got != want {
			return nil, Errorf(BadInput, l.removal(n), "%s was changed: its %s is %s, and %s was sealed", info.URL, key, got, want)
		}
	}
	if formatOfName(info.URL) == "parquet" {
		if err := checkFooter(ctx, store, info, s); err != nil {
			var known *Error
			if errors.As(err, &known) && known.Kind == StorageIO {
				return nil, err
			}
			return nil, Errorf(BadInput, l.removal(n), "%s was changed: %w", info.URL, err)
		}
	}
	return s, nil
}

// The metadata of a part, where the store has such.
const (
	metaPlan    = "batchmill-plan"
	metaSHA256  = "batchmill-sha256"
	metaRows    = "batchmill-rows"
	metaResults = "batchmill-results"
)

func (s *Seal) metadata() map[string]string {
	return map[string]string{metaPlan: s.PlanDigest, metaSHA256: s.ObjectSHA256, metaRows: fmt.Sprint(s.Rows.Total), metaResults: s.ResultDigest}
}

// checkFooter compares what a Parquet part says about itself with its seal.
func checkFooter(ctx context.Context, store *objstore.Store, info objstore.Info, s *Seal) error {
	obj, err := store.Open(ctx, info)
	if err != nil {
		return classify(err)
	}
	schema, err := readers.Schema(ctx, obj, readers.Options{Format: readers.Parquet}, 0)
	if err != nil {
		return classify(err)
	}
	want := map[string]string{footerPlan: s.PlanDigest, writers.FooterRows: fmt.Sprint(s.Rows.Total), writers.FooterResultDigest: s.ResultDigest, writers.FooterRunID: s.RunID}
	for _, kv := range schema.Metadata {
		if w, ok := want[kv.Key]; ok && kv.Value == w {
			delete(want, kv.Key)
		}
	}
	for key, w := range want {
		return fmt.Errorf("its footer does not say that %s is %s, which was sealed", key, w)
	}
	return nil
}

// footerPlan is the key of the plan's digest in a Parquet footer.
const footerPlan = writers.FooterPrefix + "plan_digest"
