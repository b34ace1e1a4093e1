package objstore

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNormalize(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	here := "file://" + filepath.ToSlash(wd)
	for _, c := range []struct{ in, want string }{
		{"in.jsonl", here + "/in.jsonl"}, {"./a/../b.jsonl", here + "/b.jsonl"}, {"data/", here + "/data/"}, {".", here + "/"},
		{"/x//y/*.parquet", "file:///x/y/*.parquet"}, {"file:///x/./y", "file:///x/y"}, {"file://localhost/x", "file:///x"},
		{"/a b%20c?.jsonl", "file:///a b%20c?.jsonl"}, {"/", "file:///"},
		{"s3://b/k//x/../y", "s3://b/k//x/../y"}, {"s3://b", "s3://b/"}, {"s3://b/k-?.jsonl", "s3://b/k-?.jsonl"},
		{"s3://b/k-?.jsonl?region=eu-1&endpoint=http://h:1", "s3://b/k-?.jsonl?region=eu-1&endpoint=http://h:1"},
		{"C3-data/x", here + "/C3-data/x"},
	} {
		if got, err := Normalize(c.in); got != c.want || err != nil {
			t.Errorf("Normalize(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "http://h/x", "s3://", "s3:///k", "file://x/y", "s3://b*/k", "s3://b/\x00"} {
		if got, err := Normalize(bad); err == nil {
			t.Errorf("Normalize(%q) = %q, want an error", bad, got)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for _, c := range []struct{ in, key, query string }{
		{"s3://b/k?region=x", "k", "region=x"}, {"s3://b/k?region=x&nope=1", "k?region=x&nope=1", ""}, {"s3://b/k?", "k?", ""},
		{"s3://b/??region=x", "?", "region=x"}, {"gs://b/k?region=x", "k?region=x", ""}, {"file:///k?region=x", "k?region=x", ""},
	} {
		loc, err := Parse(c.in)
		if err != nil || loc.Key != c.key || loc.Query != c.query {
			t.Errorf("Parse(%q) = %+v, %v", c.in, loc, err)
		}
		if loc.String() != c.in {
			t.Errorf("%q came back as %q", c.in, loc)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		base string
		elem []string
		want string
	}{
		{"s3://b/out/", []string{"_run", "plan.json"}, "s3://b/out/_run/plan.json"},
		{"s3://b/out?region=x", []string{"p/", "/q"}, "s3://b/out/p/q?region=x"},
		{"s3://b", []string{"k"}, "s3://b/k"}, {"file:///", []string{"a"}, "file:///a"}, {"file:///o", []string{"", "a/"}, "file:///o/a/"},
		{"file:///o", []string{"/"}, "file:///o/"}, {"file:///o/", []string{"/"}, "file:///o/"},
	} {
		if got := Join(c.base, c.elem...); got != c.want {
			t.Errorf("Join(%q, %q) = %q, want %q", c.base, c.elem, got, c.want)
		}
	}
	if got := Base("s3://b/x/part-1.parquet?region=x"); got != "part-1.parquet" {
		t.Error(got)
	}
}
