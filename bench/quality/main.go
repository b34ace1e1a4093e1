// Command quality prints what the arithmetic of activations costs: for each model file and each mode its perplexity over a
// text, and how far its predictions are from those of the reference, which is the same file in float32 mode.
//
//	go run ./bench/quality -text infer/model/testdata/smollm2/perplexity.json model.Q8_0.gguf model.Q4_1.gguf
//
// Where the text's own perplexity is given for a file (a golden from another implementation), it is printed beside ours.
// The table goes to standard error, one JSON line per file and mode to standard output.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/batchmill/batchmill/infer/cpu"
)

// sample is a text as token ids. Perplexity belongs to File, if that is one of those measured.
type sample struct {
	File       string  `json:"file"`
	IDs        []int32 `json:"ids"`
	Perplexity float64 `json:"perplexity"`
}

// result is one file in one mode against the same file in float32.
type result struct {
	File       string  `json:"file"`
	Mode       string  `json:"mode"`
	Tokens     int     `json:"tokens"` // that were predicted
	Perplexity float64 `json:"perplexity"`
	Change     float64 `json:"change"`             // of the perplexity, relative to the reference
	MeanKL     float64 `json:"kl_mean"`            // nats a token, of the mode's prediction from the reference's
	MaxKL      float64 `json:"kl_max"`             // of the worst token
	Agreement  float64 `json:"top1_agreement"`     // share of tokens with the same most likely continuation
	Golden     float64 `json:"golden,omitempty"`   // perplexity by another implementation in float32
	Windows    float64 `json:"windows_perplexity"` // over windows of 512 tokens, the later half of each, as llama-perplexity counts
}

func main() {
	text := flag.String("text", "infer/model/testdata/smollm2/perplexity.json", "JSON file with the ids of a text")
	modes := flag.String("modes", "f32,int16,int8", "modes to measure")
	threads := flag.Int("threads", 0, "threads; 0 = all")
	limit := flag.Int("limit", 0, "only the first tokens of the text; 0 = all")
	worst := flag.Float64("max-change", 0, "fail where a perplexity changes by more than this share; 0 = never")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *text, strings.Split(*modes, ","), *threads, *limit, *worst, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "quality:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, text string, modes []string, threads, limit int, worst float64, files []string) error {
	s, err := readSample(text)
	if err != nil {
		return err
	}
	if limit > 0 && limit < len(s.IDs) {
		s.IDs, s.File = s.IDs[:limit], "" // the golden is for the whole text
	}
	all := []cpu.Activations{cpu.ActivationsF32} // the reference comes first
	for _, m := range modes {
		if a := cpu.Activations(m); a != cpu.ActivationsF32 {
			all = append(all, a)
		}
	}
	header(os.Stderr)
	var failed []string
	for _, file := range files {
		results, err := measure(ctx, file, s, all, threads)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, r := range results {
			r.print(os.Stderr)
			if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
				return err
			}
			if worst > 0 && (r.Change > worst || r.Change < -worst) {
				failed = append(failed, fmt.Sprintf("%s with %s: perplexity changes by %.2f %%", r.File, r.Mode, 100*r.Change))
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("above the limit of %.2f %%: %s", 100*worst, strings.Join(failed, "; "))
	}
	return nil
}

func readSample(name string) (*sample, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := &sample{}
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(s.IDs) < 2 {
		return nil, fmt.Errorf("read %s: it has %d ids; at least 2 are needed", name, len(s.IDs))
	}
	return s, nil
}

func header(w io.Writer) {
	fmt.Fprintf(w, "%-42s %-6s %11s %9s %10s %10s %8s %12s %10s\n", "file", "mode", "perplexity", "change", "KL mean", "KL max", "top-1", "by windows", "golden")
}

func (r *result) print(w io.Writer) {
	golden := "-"
	if r.Golden > 0 {
		golden = fmt.Sprintf("%.5f", r.Golden)
	}
	fmt.Fprintf(w, "%-42s %-6s %11.5f %8.3f%% %10.2e %10.2e %7.2f%% %12.5f %10s\n", filepath.Base(r.File), r.Mode, r.Perplexity, 100*r.Change, r.MeanKL, r.MaxKL, 100*r.Agreement, r.Windows, golden)
}
