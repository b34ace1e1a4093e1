package s3test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

// TestServer checks what the project's tests rest on: objects written come back, a range is a range, and a second
// conditional put of one key is refused with 412.
func TestServer(t *testing.T) {
	srv := Start(t)
	srv.Setenv(t)
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	put := func(body string) error {
		_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: &srv.Bucket, Key: aws.String("a/b.txt"), Body: bytes.NewReader([]byte(body)),
			IfNoneMatch: aws.String("*"), Metadata: map[string]string{"digest": "abc"}})
		return err
	}
	if err := put("hello, rows"); err != nil {
		t.Fatal(err)
	}
	var refused smithy.APIError
	if err := put("again"); !errors.As(err, &refused) || refused.ErrorCode() != "PreconditionFailed" {
		t.Errorf("a second conditional put: %v, want PreconditionFailed", err)
	}
	got, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: &srv.Bucket, Key: aws.String("a/b.txt"), Range: aws.String("bytes=7-10")})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(got.Body)
	if err != nil || string(body) != "rows" {
		t.Errorf("range read %q, %v", body, err)
	}
	if got.Metadata["digest"] != "abc" {
		t.Errorf("metadata %v, want the digest back", got.Metadata)
	}
	onDisk, err := os.ReadFile(filepath.Join(srv.Root, srv.Bucket, "a", "b.txt"))
	if err != nil || string(onDisk) != "hello, rows" {
		t.Errorf("on disk %q, %v", onDisk, err)
	}
}

// TestServersAreApart: two servers in one test see nothing of each other, and refuse strangers.
func TestServersAreApart(t *testing.T) {
	a, b := Start(t), Start(t)
	if a.Endpoint == b.Endpoint || a.Root == b.Root {
		t.Fatalf("two servers share %s or %s", a.Endpoint, a.Root)
	}
	resp, err := http.Get(a.Endpoint + "/" + a.Bucket + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("an unsigned listing: %s, want 403", resp.Status)
	}
}
