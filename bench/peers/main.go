// Command peers measures batchmill and llama.cpp side by side on this machine and prints the ratios. llama.cpp is built for
// the machine from the llama-cpp-python source package (build.sh) and runs the same weights as F16; it gets its best of
// flash attention on and off and of several micro-batch sizes. Rounds of both are interleaved, and each figure is the best
// of all rounds, so that a noisy neighbour hurts neither side more.
//
//	go run ./bench/peers -batchmill bin/batchmill -model model.gguf
//
// The table goes to standard error, one JSON line to standard output. See docs/BENCHMARKS.md for what is measured.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

type config struct {
	batchmill, model, build    string
	threads, rounds            int
	prompt, seqs, past, decode int
	minPrefill, minDecode      float64
	microBatches               string
}

// report is the JSON line.
type report struct {
	CPU       string  `json:"cpu"`
	Threads   int     `json:"threads"`
	Rounds    int     `json:"rounds"`
	Prompt    int     `json:"prompt_tokens"`
	Seqs      int     `json:"seqs"`
	Past      int     `json:"decode_past"`
	Decode    int     `json:"decode_tokens"`
	Peer      string  `json:"peer"`
	Ours      figures `json:"batchmill"`
	Theirs    figures `json:"llama_cpp"`
	Ratios    ratios  `json:"ratios"`
	Satisfied bool    `json:"satisfied"`
}

// figures are tokens per second with the setting that gave them.
type figures struct {
	Prefill        float64 `json:"prefill_tokens_per_s"`
	PrefillSetting string  `json:"prefill_setting,omitempty"`
	Decode         float64 `json:"decode_tokens_per_s"`
	DecodeSetting  string  `json:"decode_setting,omitempty"`
}

type ratios struct {
	Prefill float64 `json:"prefill"`
	Decode  float64 `json:"decode"`
}

// better keeps the higher of two figures together with its setting.
func better(best *float64, setting *string, v float64, s string) {
	if v > *best {
		*best, *setting = v, s
	}
}

func main() {
	var c config
	flag.StringVar(&c.batchmill, "batchmill", "bin/batchmill", "the program to measure")
	flag.StringVar(&c.model, "model", "", "a GGUF file that both can read (required)")
	flag.StringVar(&c.build, "build", "bench/peers/build.sh", "the script that builds the peer")
	flag.IntVar(&c.threads, "threads", 2, "threads of both")
	flag.IntVar(&c.rounds, "rounds", 3, "rounds; each figure is the best of them")
	flag.IntVar(&c.prompt, "prompt-tokens", 512, "tokens of a prompt")
	flag.IntVar(&c.seqs, "seqs", 16, "sequences decoded at once")
	flag.IntVar(&c.past, "decode-past", 128, "prompt tokens of each of them")
	flag.IntVar(&c.decode, "decode-tokens", 64, "tokens decoded per sequence")
	flag.Float64Var(&c.minPrefill, "min-prefill", 0, "fail below this ratio of prefill")
	flag.Float64Var(&c.minDecode, "min-decode", 0, "fail below this ratio of decode")
	flag.StringVar(&c.microBatches, "ubatch", "512,256,128", "micro-batch sizes to try with llama-bench")
	flag.Parse()
	if c.model == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(64)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r, err := measure(ctx, c)
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	r.print(os.Stderr)
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
	if !r.Satisfied {
		os.Exit(1)
	}
}
