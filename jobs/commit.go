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

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/readers"
	"github.com/batchmill/batchmill/writers"
)

// committer turns finished shards into parts.
type committer struct {
	store   *objstore.Store
	plan    *Plan
	layout  layout
	runID   string
	write   writers.Config
	read    readers.Options // of the carrying pass
	samples int64
	warn    func(string) // may be nil
	guard   func(context.Context) error
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

// commit assembles a shard's part in input order and puts it under its final name: side objects and facts first, the
// part last, since the part is the commit.
func (c *committer) commit(ctx context.Context, s *shardState) (*Facts, error) {
	part, err := newScratch()
	if err != nil {
		return nil, err
	}
	defer part.remove()
	dead, err := newScratch()
	if err != nil {
		return nil, err
	}
	defer dead.remove()
	facts, err := c.assemble(ctx, s, part, dead)
	if err != nil {
		return nil, fmt.Errorf("assemble part %d: %w", s.number, err)
	}
	if err := c.guard(ctx); err != nil {
		return nil, err
	}
	if dead.size > 0 {
		if err := c.put(ctx, dead, c.layout.errors(s.number), false); err != nil {
			return nil, err
		}
	}
	if _, err := putJSON(ctx, c.store, c.layout.facts(s.number, facts.ObjectSHA256), facts); err != nil {
		return nil, err
	}
	err = c.put(ctx, part, c.layout.part(s.number), true)
	if errors.Is(err, objstore.ErrExists) { // somebody else committed this shard: theirs stands, if it says the same
		return c.theirs(ctx, s.number, facts)
	}
	if err != nil {
		return nil, err
	}
	if err := c.store.AbortUploads(ctx, c.layout.part(s.number)); err != nil && c.warn != nil { // they only cost money
		c.warn(fmt.Sprintf("unfinished uploads of %s could not be removed: %v", c.layout.part(s.number), err))
	}
	return facts, nil
}

// theirs reads what another attempt committed and accepts it if its result columns are equal.
func (c *committer) theirs(ctx context.Context, n int, ours *Facts) (*Facts, error) {
	info, err := c.store.Stat(ctx, c.layout.part(n))
	if err != nil {
		return nil, classify(err)
	}
	listed, err := c.store.List(ctx, c.layout.factsPrefix())
	if err != nil {
		return nil, classify(err)
	}
	got, err := findFacts(ctx, c.store, c.layout, n, info, listed)
	if err != nil {
		return nil, err
	}
	if got.PlanDigest != ours.PlanDigest || got.ResultDigest != ours.ResultDigest {
		return nil, Errorf(BadInput, "write to another --output, or start anew with --overwrite", "%s was committed by another run with other results", info.URL)
	}
	return got, nil
}

// assemble writes the shard's rows, in input order, beside their results.
func (c *committer) assemble(ctx context.Context, s *shardState, part, dead *scratch) (*Facts, error) {
	out, err := writers.New(part, c.write)
	if err != nil {
		return nil, err
	}
	letters, err := writers.NewDeadLetters(dead, c.write)
	if err != nil {
		return nil, err
	}
	facts := &Facts{Part: c.layout.partName(s.number) + c.layout.ext, PlanDigest: c.plan.Digest, RunID: c.runID, Errors: map[row.Code]int64{}}
	in := newSegmentReader(ctx, c.store, c.plan, s.number, c.read)
	defer in.Close()
	var n int64
	for ; ; n++ {
		rec, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for sample := range c.samples {
			res, _, err := s.spool.get(n*c.samples + sample)
			if err != nil {
				return nil, err
			}
			if res == nil {
				if sample == 0 {
					return nil, fmt.Errorf("%s row %d has no result", rec.Source, rec.Row)
				}
				break // an unusable row has one result, whatever the number of samples
			}
			if res.Key.Source != rec.Source || res.Key.Row != rec.Row {
				return nil, fmt.Errorf("the result of %s row %d stands where %s row %d was read", res.Key.Source, res.Key.Row, rec.Source, rec.Row)
			}
			if err := out.Write(rec, res); err != nil {
				return nil, fmt.Errorf("write %s row %d: %w", rec.Source, rec.Row, err)
			}
			facts.add(res)
			if res.Status == row.Failed {
				if err := letters.Write(rec, res); err != nil {
					return nil, fmt.Errorf("write the dead letter of %s row %d: %w", rec.Source, rec.Row, err)
				}
			}
		}
	}
	if n != s.records {
		return nil, Errorf(BadInput, "leave the input alone while the job runs", "%d records were read for prompts, %d for carried columns: an input changed", s.records, n)
	}
	stats, err := out.Close()
	if err != nil {
		return nil, err
	}
	if _, err := letters.Close(); err != nil {
		return nil, err
	}
	for _, f := range []*scratch{part, dead} {
		if err := f.buf.Flush(); err != nil {
			return nil, Errorf(StorageIO, "free some space, or set TMPDIR to another folder", "write a part to its temporary file: %w", err)
		}
	}
	facts.Size, facts.ObjectSHA256, facts.ResultDigest = part.size, part.sha256(), stats.ResultDigest
	return facts, nil
}

// put stores a local file. With ifAbsent a refused put is ErrExists; an unknown outcome is settled by reading back.
func (c *committer) put(ctx context.Context, f *scratch, url string, ifAbsent bool) error {
	w, err := c.store.Create(ctx, url, objstore.CreateOptions{
		IfAbsent:    ifAbsent,
		ContentType: contentType(url),
		Metadata:    map[string]string{"batchmill-plan": c.plan.Digest, "batchmill-sha256": f.sha256()},
	})
	if err != nil {
		return classifyPut(err)
	}
	if _, err := io.Copy(w, io.NewSectionReader(f.file, 0, f.size)); err != nil {
		w.Abort()
		return classifyPut(fmt.Errorf("write %s: %w", url, err))
	}
	err = w.Commit()
	if err == nil || errors.Is(err, objstore.ErrExists) {
		return err
	}
	if errors.Is(err, objstore.ErrUnknown) {
		if info, serr := c.store.Stat(ctx, url); serr == nil {
			if sum, herr := hashObject(ctx, c.store, info); herr == nil {
				if sum == f.sha256() {
					return nil
				}
				return objstore.ErrExists
			}
		}
	}
	return classifyPut(fmt.Errorf("write %s: %w", url, err))
}

func contentType(url string) string {
	if formatOfName(url) == "parquet" {
		return "application/vnd.apache.parquet"
	}
	return "application/x-ndjson"
}
