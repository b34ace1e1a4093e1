package jobs

import (
	"context"
	"os"
	"testing"

	"github.com/batchmill/batchmill/internal/objstore"
)

func TestFinalizeMarksWhatIsComplete(t *testing.T) {
	ctx := context.Background()
	store := objstore.New(objstore.Options{})
	defer store.Close()
	dir := finished(t, "jsonl", nil)
	marker := dir + "/out/_SUCCESS"
	want, err := os.ReadFile(marker)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := Finalize(ctx, store, dir+"/out"); err != nil || f.Err() != nil || f.Written || f.Rows.OK != 34 {
		t.Fatalf("a complete job: %+v, %v", f, err)
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	if f, err := Finalize(ctx, store, dir+"/out"); err != nil || f.Err() != nil || !f.Written || f.Status != "complete" {
		t.Fatalf("without its marker: %+v, %v", f, err)
	}
	if got, err := os.ReadFile(marker); err != nil || string(got) != string(want) {
		t.Errorf("the marker is\n%s\n(%v), the run wrote\n%s", got, err, want)
	}
	if v := verify(t, dir+"/out"); v.Err() != nil {
		t.Errorf("%+v", v)
	}
	part := partOf(t, dir, 1)
	for _, name := range []string{marker, part} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Finalize(ctx, store, dir+"/out")
	if err != nil || KindOf(f.Err()) != Interrupted || f.ExitCode != 75 || len(f.Missing) != 1 || f.Written || exists(marker) || f.Rows.Total != 40 || f.Rows.NotStarted == 0 {
		t.Errorf("with a part missing: %+v, %v", f, err)
	}
	writeFile(t, part, []byte("{}\n"))
	if f, err := Finalize(ctx, store, dir+"/out"); KindOf(err) != BadInput || exists(marker) {
		t.Errorf("with a strange part: %+v, %v", f, err)
	}
}
