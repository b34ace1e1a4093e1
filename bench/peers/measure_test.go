package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// script writes an executable that prints text.
func script(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	body := "#!/bin/sh\ncat <<'END'\n" + text + "\nEND\n"
	if err := os.WriteFile(path, []byte(body), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMeasure runs the whole program over stand-ins that print what the real programs print.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	script(t, dir, "llama-bench", `{"n_ubatch": 512, "flash_attn": false, "avg_ts": 700.5}
{"n_ubatch": 128, "flash_attn": true, "avg_ts": 800.0}`)
	script(t, dir, "llama-batched-bench", `some talk
{"pp": 512, "speed_pp": 660.1, "speed_tg": 150.0}`)
	c := config{
		batchmill: script(t, dir, "batchmill", `{"prefill_tokens_per_s": 1200, "decode_tokens_per_s": 450, "other": "x"}`),
		build:     script(t, dir, "build.sh", "bin="+dir+"\nf16=/m.gguf\nversion=peer 1"),
		model:     "m.gguf", threads: 2, rounds: 2, prompt: 512, seqs: 16, past: 128, decode: 64, minPrefill: 1.3, minDecode: 2,
	}
	r, err := measure(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Ratios.Prefill != 1.5 || r.Ratios.Decode != 3 || !r.Satisfied || r.Theirs.PrefillSetting != "-fa true -ub 128" {
		t.Errorf("report %+v", r)
	}
	var table bytes.Buffer
	r.print(&table)
	if !strings.Contains(table.String(), "1.50x") || !strings.Contains(table.String(), "3.00x") {
		t.Errorf("table lacks the ratios:\n%s", table.String())
	}
	if b, err := json.Marshal(r); err != nil || !strings.Contains(string(b), `"ratios":{"prefill":1.5,"decode":3}`) {
		t.Errorf("json %s, %v", b, err)
	}
	c.minDecode = 3.1
	if r, err = measure(context.Background(), c); err != nil || r.Satisfied {
		t.Errorf("a ratio below the minimum: satisfied %v, %v", r.Satisfied, err)
	}
	c.batchmill = script(t, dir, "silent", "nothing to see")
	if _, err = measure(context.Background(), c); err == nil || !strings.Contains(err.Error(), "no JSON line") {
		t.Errorf("a silent program: %v", err)
	}
}
