package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/batchmill/batchmill/internal/objstore"
)

// stateAt runs a job and returns a copy of its output as it is at a step, as a kill there leaves it.
func stateAt(t *testing.T, s Spec, step Step) string {
	t.Helper()
	state := filepath.Join(filepath.Dir(strings.TrimSuffix(s.Output, "/")), "at-"+string(step))
	taken := false
	if _, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
		if at == step && !taken {
			taken = true
			copyTree(t, s.Output, state)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if !taken {
		t.Fatalf("step %s was never reached", step)
	}
	return state
}

func readSealFile(t *testing.T, name string) (s Seal) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestASealedShardNeedsNoEngine: between seal and part a kill costs nothing but the making of the part, which comes out byte
// by byte as it was sealed, in both formats.
func TestASealedShardNeedsNoEngine(t *testing.T) {
	for _, format := range []string{"jsonl", "parquet"} {
		dir := t.TempDir()
		in := writeFile(t, dir+"/in.jsonl", append(rowsJSONL(20), []byte("{\"text\": null}\n")...))
		s := testSpec(in, dir+"/out/")
		s.Format = format
		state := stateAt(t, s, SealAfter)
		part := "/part-00000-of-00001." + format
		if exists(state + part) {
			t.Fatal("the part was there before its seal")
		}
		s.Output = state + "/"
		sum := mustRun(t, s)
		if sum.Batch.Steps != 0 || sum.Time.Load != 0 || sum.Rows.OK != 20 || sum.Rows.Error != 1 {
			t.Errorf("%s: %+v, model loaded in %v s, %d steps", format, sum.Rows, sum.Time.Load, sum.Batch.Steps)
		}
		for _, name := range []string{part, "/_errors/part-00000-of-00001.jsonl", "/_SUCCESS", "/_run/seal/00000.json"} {
			was, err := os.ReadFile(dir + "/out" + name)
			if err != nil {
				t.Fatal(err)
			}
			if now, err := os.ReadFile(state + name); err != nil || !bytes.Equal(was, now) {
				t.Errorf("%s differs after a kill between seal and part (%v)", name, err)
			}
		}
	}
}

func TestASealWithoutItsChunks(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(10))
	s := testSpec(in, dir+"/out/")
	s.JournalUnits = 4
	for _, part := range []bool{false, true} {
		step := SealAfter
		if part {
			step = CleanBefore
		}
		state := stateAt(t, s, step)
		for _, name := range chunksIn(t, state)[:1] {
			os.Remove(name)
		}
		again := s
		again.Output = state + "/"
		_, err := runJob(t, context.Background(), again, Events{})
		if part {
			if err != nil || len(chunksIn(t, state)) > 0 {
				t.Errorf("the part is there, so nobody needs the chunk: %v, left %v", err, chunksIn(t, state))
			}
		} else {
			if KindOf(err) != BadInput || !strings.Contains(err.Error(), "rm -f '"+state+"/part-00000-of-00001.jsonl' '"+state+"/_run/seal/00000.json'") {
				t.Fatalf("there is neither part nor chunk: %v", err)
			}
			os.Remove(state + "/_run/seal/00000.json") // what the message says
			mustRun(t, again)
			equalRows(t, results(t, state), results(t, dir+"/out"))
		}
		os.RemoveAll(dir + "/out")
	}
}

// TestTwoAttemptsSealOnce: two attempts that do the same shard, each on its own, end with one part, made from one of them.
func TestTwoAttemptsSealOnce(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(30))
	mustRun(t, testSpec(in, dir+"/whole/"))
	for _, hold := range []Step{ChunkBefore, SealBefore, SealAfter, SidesAfter, PartBefore, CleanBefore} {
		s := testSpec(in, dir+"/"+string(hold)+"/")
		s.JournalUnits = 7
		var slow, fast *Summary
		var once sync.Once
		slow, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
			if at == hold { // the other one does all meanwhile
				once.Do(func() { fast = mustRun(t, s) })
			}
		}})
		if err != nil {
			t.Errorf("held at %s: %v", hold, err)
			continue
		}
		if slow.Rows.OK != 30 || fast.Rows.OK != 30 {
			t.Errorf("held at %s: %+v and %+v", hold, slow.Rows, fast.Rows)
		}
		equalRows(t, results(t, strings.TrimSuffix(s.Output, "/")), results(t, dir+"/whole"))
		mustRun(t, s)
		if left := chunksIn(t, s.Output); len(left) > 0 {
			t.Errorf("held at %s: chunks are left: %v", hold, left)
		}
		seal := readSealFile(t, s.Output+"_run/seal/00000.json")
		part, err := os.ReadFile(s.Output + "part-00000-of-00001.jsonl")
		if err != nil || hashBytes(part) != seal.ObjectSHA256 || int64(len(part)) != seal.Size {
			t.Errorf("held at %s: the part is not what was sealed (%v)", hold, err)
		}
	}
}

// TestPartsThatCannotBeTrusted: each damage ends a run with 65 and the command that helps, which does.
func TestPartsThatCannotBeTrusted(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", rowsJSONL(6))
	other := testSpec(in, dir+"/other/")
	other.Format, other.Seed, other.Params.Temperature = "parquet", 3, 1
	mustRun(t, other)
	const part = "part-00000-of-00001.parquet"
	for name, damage := range map[string]func(out string){
		"cut": func(out string) {
			data, _ := os.ReadFile(out + part)
			writeFile(t, out+part, data[:len(data)/2])
		},
		"another job's": func(out string) {
			data, _ := os.ReadFile(dir + "/other/" + part)
			writeFile(t, out+part, data)
			s := readSealFile(t, out+"_run/seal/00000.json") // even if its size fits
			s.Size = int64(len(data))
			text, _ := encodeJSON(s)
			writeFile(t, out+"_run/seal/00000.json", text)
		},
		"without a seal":     func(out string) { os.Remove(out + "_run/seal/00000.json") },
		"with a broken seal": func(out string) { writeFile(t, out+"_run/seal/00000.json", []byte("{")) },
		"with another job's seal": func(out string) {
			data, _ := os.ReadFile(dir + "/other/_run/seal/00000.json")
			writeFile(t, out+"_run/seal/00000.json", data)
		},
		"with a footer that says otherwise": func(out string) {
			s := readSealFile(t, out+"_run/seal/00000.json")
			s.ResultDigest = strings.Repeat("0", 64)
			text, _ := encodeJSON(s)
			writeFile(t, out+"_run/seal/00000.json", text)
		},
	} {
		s := testSpec(in, dir+"/"+strings.ReplaceAll(name, "'", "")+"/")
		s.Format = "parquet"
		mustRun(t, s)
		damage(s.Output)
		_, err := runJob(t, context.Background(), s, Events{})
		if KindOf(err) != BadInput || !strings.Contains(err.Error(), "rm -f ") {
			t.Errorf("a part %s: %v", name, err)
			continue
		}
		if _, after, _ := strings.Cut(err.Error(), "rm -f "); true {
			for _, quoted := range strings.Split(strings.Trim(after, "'"), "' '") {
				os.Remove(quoted)
			}
		}
		if sum := mustRun(t, s); sum.Rows.OK != 6 {
			t.Errorf("a part %s, after removing it: %+v", name, sum.Rows)
		}
	}
}

func TestRemoveCommands(t *testing.T) {
	for url, want := range map[string]string{
		"file:///a/it's here.jsonl":                        `rm -f '/a/it'\''s here.jsonl'`,
		"s3://bucket/k/part.parquet":                       "aws s3 rm 's3://bucket/k/part.parquet'",
		"s3://bucket/k?endpoint=http://host:9000&region=x": "aws --endpoint-url 'http://host:9000' s3 rm 's3://bucket/k'",
		"gs://bucket/k":                                    "gcloud storage rm 'gs://bucket/k'",
		"azblob://box/k/l":                                 "az storage blob delete --container-name 'box' --name 'k/l'",
	} {
		if got := removeCommand(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

// TestOverwritingCanBeKilledAtAnyStep: a kill while an old output is removed never leaves a mixture.
func TestOverwritingCanBeKilledAtAnyStep(t *testing.T) {
	dir := t.TempDir()
	in := writeFile(t, dir+"/in.jsonl", append(rowsJSONL(8), []byte("{\"text\": null}\n")...))
	old := testSpec(in, dir+"/out/")
	mustRun(t, old)
	interrupted(t, func() Spec { s := old; s.Output = dir + "/half/"; s.MaxSeqs = 1; return s }(), 2)
	copyTree(t, dir+"/half/_run/journal", dir+"/out/_run/journal")
	s := old
	s.Overwrite, s.Seed = true, 5
	var states []string
	if _, err := runJob(t, context.Background(), s, Events{Reached: func(at Step) {
		if strings.HasPrefix(string(at), "wipe") {
			states = append(states, dir+"/"+string(at))
			copyTree(t, dir+"/out", states[len(states)-1])
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if len(states) != 7 {
		t.Fatalf("steps %v", states)
	}
	want := results(t, dir+"/out")
	for i, state := range states {
		again := s
		again.Output, again.Overwrite = state+"/", false
		if _, err := runJob(t, context.Background(), again, Events{}); i < 6 && KindOf(err) != BadInput || i == 6 && err != nil {
			t.Errorf("%s without --overwrite: %v", state, err)
		}
		again.Overwrite = true
		mustRun(t, again)
		equalRows(t, results(t, state), want)
		if left := chunksIn(t, state); len(left) > 0 {
			t.Errorf("%s: chunks are left: %v", state, left)
		}
	}
}

func FuzzSeal(f *testing.F) {
	f.Add([]byte(`{"version":1,"shard":0,"chunks":[{"name":"a","units":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		store := objstore.New(objstore.Options{})
		defer store.Close()
		url := "mem://fuzz/_run/seal/00000.json"
		if err := store.Put(context.Background(), url, data, objstore.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		l := layout{base: "mem://fuzz/", ext: ".jsonl", parts: 1}
		s, err := readSeal(context.Background(), store, l, &Plan{Digest: "d"}, 0)
		if err == nil && (s == nil || s.PlanDigest != "d" || s.Errors == nil) {
			t.Errorf("%q passes for %+v", data, s)
		}
	})
}
