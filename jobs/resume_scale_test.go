package jobs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/row"
)

const (
	// resumeParts and resumeRows are what an ordinary test run does; BATCHMILL_TEST_PARTS and BATCHMILL_TEST_PART_ROWS ask for
	// more: 1000 parts of 10000 rows are ten million.
	resumeParts, resumeRows = 100, 1000
	// maxResume is how long it may take until a resumed job computes something.
	maxResume = 10 * time.Second
)

// TestAResumeOfManyPartsStartsSoon: a job of which all parts but one are there.
func TestAResumeOfManyPartsStartsSoon(t *testing.T) {
	parts, rows := resumeParts, resumeRows
	for name, n := range map[string]*int{"BATCHMILL_TEST_PARTS": &parts, "BATCHMILL_TEST_PART_ROWS": &rows} {
		if v := os.Getenv(name); v != "" {
			var err error
			if *n, err = strconv.Atoi(v); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/in", 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for i := range rows {
		fmt.Fprintf(&b, `{"id": %d, "text": "row %d"}`+"\n", i, i)
	}
	for n := range parts {
		writeFile(t, fmt.Sprintf("%s/in/%05d.jsonl", dir, n), b.Bytes())
	}
	writeFile(t, dir+"/in/last.jsonl", rowsJSONL(5))
	s := testSpec(dir+"/in/", dir+"/out/")
	s.SplitBytes = int64(b.Len()) // a shard for each file
	store := objstore.New(objstore.Options{TmpDir: TmpDir(s.Output)})
	defer store.Close()
	j, err := Prepare(context.Background(), s, store, Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if len(j.plan.Shards) != parts+1 {
		t.Fatalf("%d shards, want %d", len(j.plan.Shards), parts+1)
	}
	ctx := context.Background()
	if _, err := putJSON(ctx, store, j.layout.plan(), j.plan); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"/out/_run/seal", "/out"} {
		if err := os.MkdirAll(dir+folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for n := range parts { // seals as they are, parts that nobody reads
		seal := &Seal{Version: sealVersion, Shard: n, Records: int64(rows), Facts: Facts{
			Part: j.layout.partName(n) + j.layout.ext, PlanDigest: j.plan.Digest, Size: 1, Errors: map[row.Code]int64{}, Rows: RowCounts{Total: int64(rows), OK: int64(rows)},
		}}
		for c := range rows / DefaultJournalUnits {
			seal.Chunks = append(seal.Chunks, ChunkRef{Name: chunkName(j.runID, c), Units: DefaultJournalUnits, SHA256: hashBytes(nil)})
		}
		data, err := encodeJSON(seal)
		if err != nil {
			t.Fatal(err)
		}
		for url, data := range map[string][]byte{j.layout.seal(n): data, j.layout.part(n): []byte("x")} {
			path, _ := objstore.LocalPath(url)
			writeFile(t, path, data)
		}
	}
	began, first := time.Now(), time.Duration(0)
	sum, err := runJob(t, ctx, s, Events{Step: func(Progress) {
		if first == 0 {
			first = time.Since(began)
		}
	}})
	if err != nil || sum.Rows.OK != int64(parts*rows+5) {
		t.Fatalf("%v, %+v", err, sum)
	}
	if sum.Memory.PeakRSS != nil {
		t.Logf("%d parts and %d rows are there: the first step after %v, peak resident memory %d MiB", parts, parts*rows, first, *sum.Memory.PeakRSS>>20)
	}
	if first == 0 || first > maxResume {
		t.Errorf("the first step came after %v, want %v", first, maxResume)
	}
}
