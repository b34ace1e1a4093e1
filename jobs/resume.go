package jobs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/batchmill/batchmill/internal/objstore"
)

// errVanished says that a chunk was there a moment ago: the shard has been committed meanwhile, or is being removed.
var errVanished = errors.New("a chunk of the journal is gone")

// loadJournal puts what earlier attempts journalled of a shard into its spool: of each unit the first good result, in the
// order of the chunks' names, or else the last error. Chunks that are torn, or not of this plan and shard, are named in a
// warning and left alone. It returns the chunks that count.
func loadJournal(ctx context.Context, store *objstore.Store, l layout, plan *Plan, where *planIndex, shard int, into *spool, warnf func(string, ...any)) ([]ChunkRef, error) {
	infos, err := store.List(ctx, l.journal(shard))
	if err != nil {
		return nil, classify(fmt.Errorf("look for journalled results: %w", err))
	}
	var refs []ChunkRef
	for _, info := range infos {
		if !isChunk(info.URL) {
			continue
		}
		ref, err := loadChunk(ctx, store, info.URL, plan, where, shard, into)
		var bad *badChunk
		switch {
		case errors.As(err, &bad):
			warnf("%s is left out, its rows are run again: %v", info.URL, bad.why)
		case err != nil:
			return nil, err
		default:
			refs = append(refs, ref)
		}
	}
	return refs, nil
}

// badChunk is a chunk that is not whole, or not of this plan.
type badChunk struct{ why error }

func (b *badChunk) Error() string { return b.why.Error() }

// loadChunk puts the results of one chunk into the spool, all or none.
func loadChunk(ctx context.Context, store *objstore.Store, url string, plan *Plan, where *planIndex, shard int, into *spool) (ChunkRef, error) {
	data, _, err := store.ReadAll(ctx, url, maxChunkObject)
	if errors.Is(err, objstore.ErrNotExist) {
		return ChunkRef{}, fmt.Errorf("%w: %s", errVanished, url)
	}
	if err != nil {
		return ChunkRef{}, classify(fmt.Errorf("read the journal: %w", err))
	}
	h, lines, err := decodeChunk(data)
	if err != nil {
		return ChunkRef{}, &badChunk{err}
	}
	if h.PlanDigest != plan.Digest || h.Shard != shard {
		return ChunkRef{}, &badChunk{fmt.Errorf("it belongs to shard %d of another plan", h.Shard)}
	}
	type unit struct {
		slot  int64
		flags uint32
		line  []byte
	}
	var units []unit
	for line := range bytes.Lines(lines) {
		var u unitHead
		if err := json.Unmarshal(line, &u); err != nil {
			return ChunkRef{}, &badChunk{fmt.Errorf("%w: %w", errTorn, err)}
		}
		n, at, ok := where.find(u.Source, u.Row)
		samples := int64(plan.Decides.Samples)
		if !ok || n != shard || u.Sample < 0 || int64(u.Sample) >= samples {
			return ChunkRef{}, &badChunk{fmt.Errorf("%s row %d is none of shard %d", u.Source, u.Row, shard)}
		}
		units = append(units, unit{at*samples + int64(u.Sample), flagsOf(u.Status, u.Code), bytes.TrimSuffix(line, []byte("\n"))})
	}
	for _, u := range units {
		if err := into.keep(u.slot, u.line, u.flags); err != nil {
			return ChunkRef{}, err
		}
	}
	return ChunkRef{Name: objstore.Base(url), Units: h.Units, SHA256: hashBytes(data)}, nil
}

func hashBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// cleanJournal removes the chunks of a shard whose part is there. They are of no use then, whoever wrote them.
func cleanJournal(ctx context.Context, store *objstore.Store, l layout, shard int) error {
	return removeChunks(ctx, store, l.journal(shard), func(string) bool { return true })
}

// sweepJournal removes what a kill left of shards that are done: chunks, and where there are such, unfinished uploads, which
// go before the chunks.
func sweepJournal(ctx context.Context, store *objstore.Store, l layout, done func(shard int) bool, ev *Events) error {
	clear := map[int]bool{} // of uploads
	return removeChunks(ctx, store, l.journals(), func(url string) bool {
		n, ok := l.shardOf(url)
		if !ok || !done(n) {
			return false
		}
		if !clear[n] {
			clear[n] = true
			abortUploads(ctx, store, l, n, ev)
		}
		return true
	})
}

// abortUploads drops what attempts that were killed had begun to upload of a shard that is done. It only costs money, so it
// ends no run.
func abortUploads(ctx context.Context, store *objstore.Store, l layout, n int, ev *Events) {
	for _, url := range []string{l.part(n), l.errors(n)} {
		if err := store.AbortUploads(ctx, url); err != nil {
			ev.warnf("unfinished uploads of %s could not be removed: %v", url, err)
		}
	}
}

func removeChunks(ctx context.Context, store *objstore.Store, folder string, which func(url string) bool) error {
	infos, err := store.List(ctx, folder)
	if err != nil {
		return classify(fmt.Errorf("look for journalled results: %w", err))
	}
	for _, info := range infos {
		if !isChunk(info.URL) || !which(info.URL) {
			continue
		}
		if err := store.Delete(ctx, info.URL); err != nil {
			return classify(fmt.Errorf("remove %s: %w", info.URL, err))
		}
	}
	return nil
}
