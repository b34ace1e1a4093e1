package chaos

import (
	"context"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestStraysAreSeen: what a finished job must not leave is found, and nothing else.
func TestStraysAreSeen(t *testing.T) {
	p := s3Place(t)
	key := "out/x/_errors/part-00000-of-00001.jsonl"
	if _, err := p.client.CreateMultipartUpload(context.Background(), &s3.CreateMultipartUploadInput{Bucket: &p.srv.Bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"part-00000-of-00001.jsonl", "_errors/part-00000-of-00001.jsonl", "_SUCCESS", "_run/plan.json", "_run/seal/00000.json",
		"_run/journal/00000/a.jsonl.zst", "_run/tmp/.batchmill-a.tmp", ".batchmill-b.tmp", "other.jsonl"} {
		if err := p.put("out/x/"+name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := strays(p, "out/x/")
	want := []string{".batchmill-b.tmp", "_run/journal/00000/a.jsonl.zst", "_run/tmp/.batchmill-a.tmp", "other.jsonl", "unfinished upload of " + key}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %q, %v, want %q", got, err, want)
	}
}
