package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

const (
	// twoLayers is a model of two tiny layers, so that a million rows take minutes.
	twoLayers = "infer/model/testdata/llama_bias_linear"
	// scaleRows is what an ordinary test run does; `make million` sets BATCHMILL_TEST_ROWS.
	scaleRows = 20_000
	// maxResident is what a million rows may take in memory.
	maxResident = 1 << 30
)

// TestMemoryIsBounded: the memory of a run does not grow with its rows, but for about twelve bytes of each.
func TestMemoryIsBounded(t *testing.T) {
	rows := scaleRows
	if v := os.Getenv("BATCHMILL_TEST_ROWS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		rows = n
	}
	dir := t.TempDir()
	in := filepath.Join(dir, "rows.jsonl")
	f, err := os.Create(in)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(f)
	for i := range rows {
		fmt.Fprintf(w, `{"id": %d, "prompt": "row %d of many"}`+"\n", i, i)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	got := batchmill(t, nil, "run", "--model", filepath.Join(root, twoLayers), "--input", in, "--output", filepath.Join(dir, "out")+"/", "--max-tokens", "4", "--json", "--progress", "none")
	if got.code != 0 {
		t.Fatalf("exit %d\n%s", got.code, got.stderr)
	}
	var s struct {
		Rows   struct{ OK int }
		Memory struct {
			Peak int64 `json:"peak_rss_bytes"`
		}
		Time struct {
			Wall float64 `json:"wall_s"`
		}
	}
	if err := json.Unmarshal([]byte(got.stdout), &s); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d rows: peak resident memory %d MiB, %.0f s\n", s.Rows.OK, s.Memory.Peak>>20, s.Time.Wall)
	if s.Rows.OK != rows {
		t.Errorf("%d rows ok, want %d", s.Rows.OK, rows)
	}
	if s.Memory.Peak <= 0 || s.Memory.Peak > maxResident {
		t.Errorf("peak resident memory is %d bytes, want 1 to %d", s.Memory.Peak, maxResident)
	}
}
