package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/tokenizer"
)

// benchProfile is a kind of whole job. Prompts are spread evenly, by the logarithm of their length, from least to most
// tokens.
type benchProfile struct {
	name        string
	rows        int // at size 1
	least, most int
	completion  int
}

var benchProfiles = []benchProfile{
	{"chat", 128, 20, 400, 64},
	{"longdoc", 4, 4096, 7900, 200},
	{"code", 16, 20, 120, 1000},
}

// measureJobs runs the profiles one after another. The model is loaded anew for each, as a job does.
func (m *bench) measureJobs(ctx context.Context) error {
	most, peak := m.loaded.config.MaxPositions, m.peak()
	if err := m.unload(); err != nil {
		return err
	}
	for _, p := range benchProfiles {
		if len(m.o.Profiles) > 0 && !slices.Contains(m.o.Profiles, p.name) {
			continue
		}
		p.rows = max(1, int(math.Round(float64(p.rows)*m.o.Size)))
		p.completion = min(p.completion, most/4) // models of small context do smaller jobs of the same kind
		p.most = min(p.most, most-p.completion-most/50)
		p.least = min(p.least, p.most/2)
		m.progress("job " + p.name)
		var best *BenchJob
		err := m.repeat(func() error {
			j, err := m.job(ctx, p, peak)
			if err == nil && (best == nil || j.Seconds < best.Seconds) {
				best = j
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("profile %s: %w", p.name, err)
		}
		m.res.Jobs = append(m.res.Jobs, *best)
	}
	return nil
}

// job runs one whole job in a folder that it removes.
func (m *bench) job(ctx context.Context, p benchProfile, peak *float64) (res *BenchJob, err error) {
	dir, err := os.MkdirTemp("", "batchmill-bench-")
	if err != nil {
		return nil, Errorf(StorageIO, "", "make a folder for a job: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	input := filepath.Join(dir, "rows.jsonl")
	lengths, err := p.write(input, m.bundle.Tokenizer)
	if err != nil {
		return nil, err
	}
	spec := Spec{
		Model: m.o.Model, Inputs: []string{input}, Output: filepath.Join(dir, "out") + "/", Format: "parquet", Raw: true,
		Params: infer.DefaultParams(), Threads: m.o.Threads, BatchTokens: m.o.BatchTokens, Activations: m.o.Activations, ISA: m.o.ISA,
	}
	spec.Params.MaxTokens, spec.Params.IgnoreEOS = p.completion, true
	j, err := Prepare(ctx, spec, m.store, Events{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	sum, err := j.Run(ctx)
	if err != nil {
		return nil, err
	}
	if sum.Rows.OK != int64(p.rows) {
		return nil, Errorf(Internal, "please report it", "%d of %d synthetic rows failed: %v", int64(p.rows)-sum.Rows.OK, p.rows, sum.Errors)
	}
	work := 0.0
	for _, n := range lengths {
		work += m.work.row(n, p.completion)
	}
	took := sum.Time.Wall - sum.Time.Load
	res = &BenchJob{
		Profile: p.name, Rows: sum.Rows.OK, PromptTokens: sum.Tokens.Prompt, CompletionTokens: sum.Tokens.Completion,
		Seconds: took, EngineSeconds: sum.Time.Engine, RowsPerSecond: float64(sum.Rows.OK) / took,
		TokensPerSecond: float64(sum.Tokens.Prompt+sum.Tokens.Completion) / took, Fill: sum.Batch.Fill,
	}
	if sum.Time.Engine > 0 {
		res.Gops = work / sum.Time.Engine / 1e9
	}
	res.PeakShare = share(res.Gops, peak)
	return res, nil
}

// write makes the job's file and returns the lengths of its prompts in tokens.
func (p benchProfile) write(name string, tok *tokenizer.Tokenizer) (lengths []int, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, Errorf(StorageIO, "", "write the rows of a job: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for i := range p.rows {
		part := float64(i*7%p.rows) / float64(max(1, p.rows-1)) // lengths come in no order
		want := int(float64(p.least) * math.Pow(float64(p.most)/float64(p.least), part))
		text, n, err := words(uint64(i), want, tok)
		if err != nil {
			return nil, err
		}
		lengths = append(lengths, n)
		if err := enc.Encode(map[string]string{"prompt": text}); err != nil {
			return nil, err
		}
	}
	return lengths, w.Flush()
}

// vocabulary are the words of synthetic prompts.
var vocabulary = strings.Fields(`the a river of stone and light moves under old trees while people walk to market with bread cheese paper
letters from distant towns where rain falls on red roofs every morning someone opens small windows counts birds writes numbers
in books about weather prices music trains harbours ships engines metal glass water salt sugar wood fire winter summer`)

// words is a text of at most so many tokens, and of nearly as many, and its length in tokens.
func words(seed uint64, want int, tok *tokenizer.Tokenizer) (string, int, error) {
	var list []string
	for n := range want {
		list = append(list, vocabulary[mix(seed<<32|uint64(n))%uint64(len(vocabulary))])
	}
	for {
		text := strings.Join(list, " ")
		ids, err := tok.Encode(text, tokenizer.EncodeOptions{})
		if err != nil {
			return "", 0, fmt.Errorf("tokenise a synthetic prompt: %w", err)
		}
		if len(ids) <= want || len(list) == 1 {
			return text, len(ids), nil
		}
		list = list[:max(1, min(len(list)-1, len(list)*want/len(ids)))]
	}
}
