package jobs

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// committer turns finished shards into parts.
type committer struct {
	store   *objstore.Store
	plan    *Plan
	index   *planIndex
	layout  layout
	runID   string
	write   writers.Config
	read    readers.Options // of the carrying pass
	samples int64
	events  *Events
	guard   func(context.Context) error
	inherit func(ctx context.Context, shard int, into *spool) error // of a retry: what its parent says
}

// scratch is a local file that is hashed while it is written.
type scratch struct {
	file *os.File
	buf  *bufio.Writer
	hash hash.Hash
	size int64
}

func newScratch() (*scratch, error) {
	f, err := tempFile("a part")
	if err != nil {
		return nil, err
	}
	return &scratch{file: f, buf: bufio.NewWriterSize(f, spoolBuffer), hash: sha256.New()}, nil
}

func (s *scratch) Write(p []byte) (int, error) {
	s.hash.Write(p)
	s.size += int64(len(p))
	n, err := s.buf.Write(p)
	if err != nil {
		err = Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write a part to its temporary file: %w", err)
	}
	return n, err
}

func (s *scratch) sha256() string { return hex.EncodeToString(s.hash.Sum(nil)) }

func (s *scratch) remove() { closeTemp(s.file) }

// commit makes the part of a shard whose units are all journalled, in these chunks: the seal, which fixes what it holds,
// then side objects, and the part last, since the part is the commit.
func (c *committer) commit(ctx context.Context, s *shardState, chunks []ChunkRef) (*Facts, error) {
	made, err := c.assemble(ctx, s.number, s.spool, c.runID)
	if err != nil {
		return nil, fmt.Errorf("assemble part %d: %w", s.number, err)
	}
	defer made.remove()
	if made.records != s.records {
		return nil, Errorf(BadInput, "leave the input alone while the job runs", "%d records were read for prompts, %d for carried columns: an input changed", s.records, made.records)
	}
	if err := c.guard(ctx); err != nil {
		return nil, err
	}
	seal := &Seal{Version: sealVersion, Shard: s.number, Facts: made.facts, Records: made.records, Chunks: chunks}
	c.events.reached(SealBefore)
	stored, err := putJSON(ctx, c.store, c.layout.seal(s.number), seal)
	if err != nil {
		return nil, err
	}
	c.events.reached(SealAfter)
	if !stored {
		first, err := readSeal(ctx, c.store, c.layout, c.plan, s.number)
		if err != nil {
			return nil, err
		}
		if first == nil {
			return nil, Errorf(BadInput, "only one job may use an output; run this one to another --output", "%s was removed while the job ran", c.layout.seal(s.number))
		}
		if first.ObjectSHA256 != seal.ObjectSHA256 {
			return c.fromSeal(ctx, first)
		}
		seal = first
	}
	return c.publish(ctx, seal, made)
}

// fromSeal makes the part that a seal speaks of, from the journal.
func (c *committer) fromSeal(ctx context.Context, seal *Seal) (*Facts, error) {
	n := seal.Shard
	if facts, err := c.theirs(ctx, seal); facts != nil || err != nil {
		return facts, err
	}
	results, err := newSpool()
	if err != nil {
		return nil, err
	}
	defer results.close()
	if err := c.inherit(ctx, n, results); err != nil {
		return nil, err
	}
	for _, ref := range seal.Chunks {
		got, err := loadChunk(ctx, c.store, c.layout.chunk(n, ref.Name), c.plan, c.index, n, results)
		var bad *badChunk
		switch {
		case errors.As(err, &bad) || err == nil && got != ref:
			return nil, Errorf(BadInput, c.layout.removal(n), "shard %d was sealed with %s, which is not what it was", n, c.layout.chunk(n, ref.Name))
		case errors.Is(err, errVanished): // chunks go when the part is there
			if facts, terr := c.theirs(ctx, seal); facts != nil || terr != nil {
				return facts, terr
			}
			return nil, Errorf(BadInput, c.layout.removal(n), "shard %d was sealed, but there is no part, and %w", n, err)
		case err != nil:
			return nil, err
		}
	}
	made, err := c.assemble(ctx, n, results, seal.RunID)
	if err != nil {
		return nil, fmt.Errorf("assemble part %d from its seal: %w", n, err)
	}
	defer made.remove()
	if made.facts.ObjectSHA256 != seal.ObjectSHA256 {
		why := "an input changed, or another version of this program sealed it"
		if made.facts.ResultDigest != seal.ResultDigest {
			why = "its results differ"
		}
		return nil, Errorf(BadInput, c.layout.removal(n), "shard %d does not come out as it was sealed: %s", n, why)
	}
	return c.publish(ctx, seal, made)
}

// publish stores what was sealed, and removes the journal then.
func (c *committer) publish(ctx context.Context, seal *Seal, made *assembled) (*Facts, error) {
	n := seal.Shard
	if err := c.guard(ctx); err != nil {
		return nil, err
	}
	c.events.reached(SidesBefore)
	if made.dead.size > 0 {
		if err := c.put(ctx, made.dead, c.layout.errors(n), objstore.CreateOptions{Metadata: map[string]string{metaPlan: seal.PlanDigest}}); err != nil {
			return nil, err
		}
	}
	c.events.reached(SidesAfter)
	c.events.reached(PartBefore)
	err := c.put(ctx, made.part, c.layout.part(n), objstore.CreateOptions{IfAbsent: true, Metadata: seal.metadata()})
	if errors.Is(err, objstore.ErrExists) { // somebody else was faster, or an earlier try of ours after all
		facts, terr := c.theirs(ctx, seal)
		if facts == nil && terr == nil {
			terr = Errorf(BadInput, "only one job may use an output; run this one to another --output", "%s was removed while the job ran", c.layout.part(n))
		}
		return facts, terr
	}
	if err != nil {
		return nil, err
	}
	c.events.reached(PartAfter)
	return &seal.Facts, c.clean(ctx, n)
}

// theirs looks for the part of a sealed shard: nil if there is none, an error if it holds something else.
func (c *committer) theirs(ctx context.Context, seal *Seal) (*Facts, error) {
	info, err := c.store.Stat(ctx, c.layout.part(seal.Shard))
	if errors.Is(err, objstore.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	same := info.Size == seal.Size
	if same {
		if same, err = c.holds(ctx, info, seal.ObjectSHA256); err != nil {
			return nil, classify(err)
		}
	}
	if !same {
		return nil, Errorf(BadInput, c.layout.removal(seal.Shard), "%s is not what was sealed: another job wrote it, or it was changed", info.URL)
	}
	c.events.reached(PartAfter)
	return &seal.Facts, c.clean(ctx, seal.Shard)
}

// clean removes what a committed shard needs no more, the chunks last: as long as there are any, sweepJournal does the rest.
func (c *committer) clean(ctx context.Context, n int) error {
	abortUploads(ctx, c.store, c.layout, n, c.events)
	c.events.reached(CleanBefore)
	if err := cleanJournal(ctx, c.store, c.layout, n); err != nil {
		return err
	}
	c.events.reached(CleanAfter)
	return nil
}

// assembled is a part with its dead letters, in local files.
type assembled struct {
	part, dead *scratch
	facts      Facts
	records    int64
}

func (a *assembled) remove() {
	a.part.remove()
	a.dead.remove()
}

// assemble writes the shard's rows, in input order, beside their results. What it writes depends on the plan, the results
// and the run id alone.
func (c *committer) assemble(ctx context.Context, n int, results *spool, runID string) (made *assembled, err error) {
	part, err := newScratch()
	if err != nil {
		return nil, err
	}
	dead, err := newScratch()
	if err != nil {
		part.remove()
		return nil, err
	}
	made = &assembled{part: part, dead: dead}
	defer func() {
		if err != nil {
			made.remove()
			made = nil
		}
	}()
	cfg := c.write
	cfg.Provenance.RunID = runID
	out, err := writers.New(part, cfg)
	if err != nil {
		return made, err
	}
	letters, err := writers.NewDeadLetters(dead, cfg)
	if err != nil {
		return made, err
	}
	made.facts = Facts{Part: c.layout.partName(n) + c.layout.ext, PlanDigest: c.plan.Digest, RunID: runID, Errors: map[row.Code]int64{}}
	in := newSegmentReader(ctx, c.store, c.plan, n, c.read)
	defer in.Close()
	for ; ; made.records++ {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return made, err
		}
		if err := c.writeRecord(rec, made.records*c.samples, results, out, letters, &made.facts); err != nil {
			return made, err
		}
	}
	stats, err := out.Close()
	if err != nil {
		return made, err
	}
	if _, err := letters.Close(); err != nil {
		return made, err
	}
	for _, f := range []*scratch{part, dead} {
		if err := f.buf.Flush(); err != nil {
			return made, Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write a part to its temporary file: %w", err)
		}
	}
	made.facts.Size, made.facts.ObjectSHA256, made.facts.ResultDigest = part.size, part.sha256(), stats.ResultDigest
	return made, nil
}

// writeRecord writes one record with its results, the first of which lies in slot at.
func (c *committer) writeRecord(rec *row.Record, at int64, results *spool, out, letters writers.Writer, facts *Facts) error {
	for sample := range c.samples {
		res, _, err := results.get(at + sample)
		if err != nil {
			return err
		}
		if res == nil {
			if sample == 0 {
				return fmt.Errorf("%s row %d has no result", rec.Source, rec.Row)
			}
			return nil // an unusable row has one result, whatever the number of samples
		}
		if res.Key.Source != rec.Source || res.Key.Row != rec.Row {
			return fmt.Errorf("the result of %s row %d stands where %s row %d was read", res.Key.Source, res.Key.Row, rec.Source, rec.Row)
		}
		if err := out.Write(rec, res); err != nil {
			return fmt.Errorf("write %s row %d: %w", rec.Source, rec.Row, err)
		}
		facts.add(res)
		if res.Status == row.Failed {
			if err := letters.Write(rec, res); err != nil {
				return fmt.Errorf("write the dead letter of %s row %d: %w", rec.Source, rec.Row, err)
			}
		}
	}
	return nil
}

const (
	// putTries is how often a part is stored again when the store failed: with the pauses between, about a minute, in which
	// the store's own retries of each request come on top.
	putTries = 8
	putPause = 250 * time.Millisecond
	longPut  = 15 * time.Second
)

// put stores a local file. With IfAbsent a refused put is ErrExists. Where the outcome is unknown it reads back before it
// tries again.
func (c *committer) put(ctx context.Context, f *scratch, url string, o objstore.CreateOptions) error {
	o.ContentType = contentType(url)
	for try := 0; ; try++ {
		err := c.putOnce(ctx, f, url, o)
		if err == nil || errors.Is(err, objstore.ErrExists) {
			return err
		}
		passing := errors.Is(err, objstore.ErrTemporary) || errors.Is(err, objstore.ErrUnknown)
		if !passing || try == putTries-1 || ctx.Err() != nil {
			return classifyPut(fmt.Errorf("write %s: %w", url, err))
		}
		if o.IfAbsent {
			info, serr := c.store.Stat(ctx, url)
			if serr == nil {
				if same, herr := c.holds(ctx, info, f.sha256()); herr == nil && same {
					return nil
				} else if herr == nil {
					return objstore.ErrExists
				}
			}
		}
		select {
		case <-time.After(min(longPut, putPause<<try)):
		case <-ctx.Done():
			return classifyPut(fmt.Errorf("write %s: %w", url, err))
		}
	}
}

func (c *committer) putOnce(ctx context.Context, f *scratch, url string, o objstore.CreateOptions) error {
	w, err := c.store.Create(ctx, url, o)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := io.Copy(w, io.NewSectionReader(f.file, 0, f.size)); err != nil {
		return err
	}
	return w.Commit()
}

// holds tells whether an object has a content, by its metadata where the store keeps such, else by reading it.
func (c *committer) holds(ctx context.Context, info objstore.Info, sha string) (bool, error) {
	meta, err := c.store.Metadata(ctx, info.URL)
	if err != nil {
		return false, err
	}
	if got, ok := meta[metaSHA256]; ok {
		return got == sha, nil
	}
	got, err := hashObject(ctx, c.store, info)
	return got == sha, err
}

func contentType(url string) string {
	if formatOfName(url) == "parquet" {
		return "application/vnd.apache.parquet"
	}
	return "application/x-ndjson"
}
