package objstore

import "testing"

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, url string
		want         bool
	}{
		{"s3://b/in/*.jsonl", "s3://b/in/out.jsonl", true},
		{"s3://b/in/*.jsonl", "s3://b/in/x/out.jsonl", false},
		{"s3://b/in/*.jsonl", "s3://c/in/out.jsonl", false},
		{"s3://b/in/*.jsonl?region=x", "s3://b/in/out.jsonl?endpoint=y", true},
		{"s3://b/in/**", "s3://b/in/o/part-00000-of-00001.jsonl", true},
		{"s3://b/in/**", "s3://b/in/a.jsonl", true},
		{"s3://b/in/**", "s3://b/other/a.jsonl", false},
		{"s3://b/in/**/*.jsonl", "s3://b/in/a.jsonl", true},
		{"s3://b/in/**/*.jsonl", "s3://b/in/x/y/a.jsonl", true},
		{"s3://b/in/**/*.jsonl", "s3://b/in/_run/a.jsonl", false},
		{"s3://b/in/", "s3://b/in/x/a.jsonl", true},
		{"s3://b/i*/", "s3://b/in/x/a.jsonl", true},
		{"s3://b/in/", "s3://b/in/_x/a.jsonl", false},
		{"s3://b/", "s3://b/a", true},
		{"s3://b/in/{a,b}.jsonl", "s3://b/in/b.jsonl", true},
		{"s3://b/in/a.jsonl", "s3://b/in/a.jsonl", true},
		{"s3://b/in/part-*", "s3://b/in/part-00001-of-00002.parquet", true},
		{"s3://b/in/*.parquet", "s3://b/in/part-00001-of-00002.jsonl", false},
	} {
		if got, err := Matches(c.pattern, c.url); err != nil || got != c.want {
			t.Errorf("Matches(%s, %s) = %v, %v, want %v", c.pattern, c.url, got, err, c.want)
		}
	}
}
