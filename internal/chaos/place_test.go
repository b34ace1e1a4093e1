package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/batchmill/batchmill/internal/s3test"
)

// place is where jobs read and write: a local folder, or a bucket of an S3 server whose files lie in a local folder.
type place struct {
	name   string // file, s3
	dir    string // where keys are files
	base   string // what a URL begins with
	srv    *s3test.Server
	client *s3.Client
}

func localPlace(t *testing.T) *place {
	dir := t.TempDir()
	return &place{name: "file", dir: dir, base: "file://" + filepath.ToSlash(dir) + "/"}
}

func s3Place(t *testing.T) *place {
	srv := s3test.Start(t)
	client := s3.New(s3.Options{
		BaseEndpoint: &srv.Endpoint, Region: srv.Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(srv.AccessKey, srv.SecretKey, ""),
	})
	return &place{name: "s3", dir: filepath.Join(srv.Root, srv.Bucket), base: srv.URL(""), srv: srv, client: client}
}

// url names a key.
func (p *place) url(key string) string { return p.base + key }

// env lets the program find the place by an endpoint ("" is the server itself).
func (p *place) env(endpoint string) []string {
	if p.srv == nil {
		return nil
	}
	env := p.srv.Env()
	if endpoint != "" {
		env = append(env, "AWS_ENDPOINT_URL="+endpoint, "AWS_ENDPOINT_URL_S3="+endpoint)
	}
	return env
}

// put stores an input.
func (p *place) put(key string, data []byte) error {
	if p.srv != nil {
		_, err := p.client.PutObject(context.Background(), &s3.PutObjectInput{Bucket: &p.srv.Bucket, Key: &key, Body: bytes.NewReader(data)})
		return err
	}
	name := filepath.Join(p.dir, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// read returns the bytes of a key.
func (p *place) read(key string) ([]byte, error) {
	return os.ReadFile(filepath.Join(p.dir, filepath.FromSlash(key)))
}

// list returns the keys below a prefix that ends in a slash, relative to it and sorted.
func (p *place) list(prefix string) ([]string, error) {
	var keys []string
	dir := filepath.Join(p.dir, filepath.FromSlash(prefix))
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			keys = append(keys, filepath.ToSlash(rel))
		}
		return nil
	})
	slices.Sort(keys)
	return keys, err
}

// uploads returns the keys below a prefix with unfinished multipart uploads.
func (p *place) uploads(prefix string) ([]string, error) {
	if p.srv == nil {
		return nil, nil
	}
	var keys []string
	pages := s3.NewListMultipartUploadsPaginator(p.client, &s3.ListMultipartUploadsInput{Bucket: &p.srv.Bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.Background())
		if err != nil {
			return nil, fmt.Errorf("list unfinished uploads: %w", err)
		}
		for _, u := range page.Uploads {
			keys = append(keys, aws.ToString(u.Key))
		}
	}
	return keys, nil
}

// remove deletes what lies below a prefix, so that hundreds of runs fit a small disk.
func (p *place) remove(prefix string) {
	_ = os.RemoveAll(filepath.Join(p.dir, filepath.FromSlash(strings.TrimSuffix(prefix, "/"))))
}
