package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// bench runs `batchmill bench` once and returns what it printed, read and as it is.
func (s *session) bench(ctx context.Context, file string, repeat int, args ...string) (*benchResult, json.RawMessage, error) {
	all := append([]string{"bench", "--model", file, "--threads", strconv.Itoa(s.threads), "--activations", s.activations, "--isa", s.isa, "--repeat", strconv.Itoa(repeat), "--json"}, args...)
	out, err := output(ctx, s.batchmill, all...)
	if err != nil {
		return nil, nil, err
	}
	lines, err := jsonLines(out)
	if err != nil {
		return nil, nil, fmt.Errorf("batchmill bench: %w", err)
	}
	line := lines[len(lines)-1]
	r := &benchResult{}
	if err := json.Unmarshal(line, r); err != nil {
		return nil, nil, fmt.Errorf("read batchmill bench: %w", err)
	}
	return r, line, nil
}

// summary is what the parts need of the summary of `batchmill run`.
type summary struct {
	Status string `json:"status"`
	Rows   struct {
		OK int `json:"ok"`
	} `json:"rows"`
	Tokens struct {
		Prompt     int `json:"prompt"`
		Cached     int `json:"cached"`
		Completion int `json:"completion"`
	} `json:"tokens"`
	Time struct {
		Wall   float64 `json:"wall_s"`
		Load   float64 `json:"load_s"`
		Engine float64 `json:"engine_s"`
	} `json:"time"`
}

// seconds are those of the whole job without the loading of the model, which is not in the peers' time either.
func (m *summary) seconds() float64 { return m.Time.Wall - m.Time.Load }

// job runs `batchmill run` over a file of rows into Parquet.
func (s *session) job(ctx context.Context, file, input string, rows, tokens int, args ...string) (*summary, error) {
	dir, err := os.MkdirTemp("", "batchmill-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	all := append([]string{"run", "--model", file, "--threads", strconv.Itoa(s.threads), "--activations", s.activations, "--isa", s.isa, "--input", input, "--limit", strconv.Itoa(rows),
		"--output", filepath.Join(dir, "out") + "/", "--format", "parquet", "--max-tokens", strconv.Itoa(tokens), "--ignore-eos", "--progress", "none", "--json"}, args...)
	out, err := output(ctx, s.batchmill, all...)
	if err != nil {
		return nil, err
	}
	lines, err := jsonLines(out)
	if err != nil {
		return nil, fmt.Errorf("batchmill run: %w", err)
	}
	m := &summary{}
	if err := json.Unmarshal(lines[len(lines)-1], m); err != nil {
		return nil, fmt.Errorf("read the summary: %w", err)
	}
	if m.Status != "ok" || m.Rows.OK != rows || m.Tokens.Completion != rows*tokens {
		return nil, fmt.Errorf("batchmill run: status %s, %d of %d rows, %d of %d tokens", m.Status, m.Rows.OK, rows, m.Tokens.Completion, rows*tokens)
	}
	return m, nil
}

// benchResult is what the parts and tables need of `batchmill bench --json`; null shares are nil.
type benchResult struct {
	Model       string  `json:"model"`
	Device      string  `json:"device"`
	Activations string  `json:"activations"`
	WeightBytes float64 `json:"weight_bytes"`
	FileBytes   float64 `json:"file_bytes"`
	Ceilings    *struct {
		ReadOne     float64  `json:"read_one_thread_gb_s"`
		ReadAll     float64  `json:"read_all_threads_gb_s"`
		ReadWeights float64  `json:"read_weights_gb_s"`
		BeyondCache bool     `json:"beyond_cache"`
		F32         *float64 `json:"f32_gop_s"`
		Int8        *float64 `json:"int8_gop_s"`
	} `json:"ceilings"`
	Prefill *struct {
		Rate  float64  `json:"tokens_per_s"`
		Gops  float64  `json:"gop_s"`
		Share *float64 `json:"peak_share"`
	} `json:"prefill"`
	Decode []struct {
		Seqs           int      `json:"seqs"`
		Rate           float64  `json:"tokens_per_s"`
		Share          *float64 `json:"peak_share"`
		Bandwidth      float64  `json:"weights_gb_s"`
		BandwidthShare *float64 `json:"bandwidth_share"`
		P50            float64  `json:"step_p50_ms"`
		P99            float64  `json:"step_p99_ms"`
		Allocs         float64  `json:"allocs_per_step"`
		Bytes          float64  `json:"alloc_bytes_per_step"`
	} `json:"decode"`
	Prefix *prefixResult `json:"prefix"`
	Long   *struct {
		Tokens    int     `json:"prompt_tokens"`
		Rate      float64 `json:"tokens_per_s"`
		ShortRate float64 `json:"short_tokens_per_s"`
		Ratio     float64 `json:"ratio"`
	} `json:"long"`
	Jobs []struct {
		Profile    string  `json:"profile"`
		Rows       int     `json:"rows"`
		Prompt     int     `json:"prompt_tokens"`
		Completion int     `json:"completion_tokens"`
		Seconds    float64 `json:"seconds"`
		Rate       float64 `json:"tokens_per_s"`
	} `json:"jobs"`
}

type prefixResult struct {
	Rows       int     `json:"rows"`
	Prefix     int     `json:"prefix_tokens"`
	Own        int     `json:"own_tokens"`
	Shared     float64 `json:"shared_s"`
	Apart      float64 `json:"apart_s"`
	Gain       float64 `json:"gain"`
	Analytic   float64 `json:"analytic_gain"`
	OfAnalytic float64 `json:"of_analytic"`
	Equal      bool    `json:"equal_results"`
}
