package jobs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
)

// checkOverlap refuses an output that is an input, lies inside one, or would become one at the next run because a
// pattern matches its parts. Links are followed: two names of one folder are one folder.
func checkOverlap(patterns []string, inputs []objstore.Info, out layout) error {
	if err := refuseLinks(out); err != nil {
		return err
	}
	base, single := realURL(out.base), realURL(out.single)
	for _, info := range inputs {
		if url := realURL(info.URL); url == single || out.single == "" && within(url, base) {
			return Errorf(Usage, "choose another --output, or a narrower --input", "the input %s lies inside the output %s", info.URL, out.shown())
		}
	}
	parts := []string{single}
	if out.single == "" {
		probe := layout{base: base, parts: 1}
		for _, ext := range []string{".jsonl", ".parquet"} {
			probe.ext = ext
			parts = append(parts, probe.part(0))
		}
	}
	for _, pattern := range patterns {
		url, err := objstore.Normalize(pattern)
		if err != nil {
			return Errorf(Usage, "", "input %s: %w", pattern, err)
		}
		for _, part := range parts {
			if part == "" {
				continue
			}
			hit, err := objstore.Matches(realURL(url), part)
			if err != nil {
				return Errorf(Usage, "", "input %s: %w", pattern, err)
			}
			if hit {
				return Errorf(Usage, "choose an --output outside of it, or a narrower --input", "the output %s lies inside the input %s", out.shown(), pattern)
			}
		}
	}
	return nil
}

// refuseLinks refuses links in the place of what a job writes and removes: behind them lies what is not the job's. The
// folder of an output may be a link.
func refuseLinks(out layout) error {
	own := []string{objstore.Join(out.base, "_errors"), objstore.Join(out.base, "_run"), objstore.Join(out.base, "_run", "parts"), objstore.Join(out.base, "_run", "tmp")}
	if out.single != "" {
		own = append(own, out.single, out.base)
	}
	for _, url := range own {
		p, ok := objstore.LocalPath(url)
		if !ok {
			return nil
		}
		info, err := os.Lstat(filepath.Clean(p))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return Errorf(Usage, "remove the link, or choose another --output", "%s is a link; a job writes and removes only what is its own", filepath.Clean(p))
		}
	}
	return nil
}

// realURL follows the links in a file:// URL, as far as its path exists.
func realURL(url string) string {
	p, ok := objstore.LocalPath(url)
	if !ok {
		return url
	}
	rest := ""
	for dir := filepath.Clean(p); ; {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return withSlash(filepath.Join(real, rest), url)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return url
		}
		rest = filepath.Join(filepath.Base(dir), rest)
		dir = parent
	}
}

// withSlash is the URL of a path, a prefix if the original was one.
func withSlash(path, original string) string {
	url, err := objstore.Normalize(path)
	if err != nil {
		return original
	}
	if loc, err := objstore.Parse(original); err == nil && (loc.Key == "" || strings.HasSuffix(loc.Key, "/")) {
		return objstore.Join(url, "/")
	}
	return url
}

// within tells whether a URL lies below a folder, whose URL ends in a slash.
func within(url, folder string) bool {
	a, err1 := objstore.Parse(url)
	b, err2 := objstore.Parse(folder)
	return err1 == nil && err2 == nil && a.Scheme == b.Scheme && a.Bucket == b.Bucket &&
		strings.HasPrefix(strings.TrimSuffix(a.Key, "/")+"/", b.Key)
}
