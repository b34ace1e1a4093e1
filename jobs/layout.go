package jobs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/batchmill/batchmill/internal/objstore"
)

// layout names every object of an output. In a folder all that is not data starts with "_", so that Parquet and JSONL
// readers take the folder as it is. A single object has its side objects in a folder beside it.
type layout struct {
	base   string // URL of the folder that holds parts and side objects, with its slash
	single string // URL of the one part, or ""
	ext    string // of the parts
	parts  int
}

// newLayout decides between folder and single object.
func newLayout(output, format string) (layout, error) {
	url, err := objstore.Normalize(output)
	if err != nil {
		return layout{}, Errorf(Usage, "", "output %q: %w", output, err)
	}
	l := layout{ext: extension(format), base: objstore.Join(url, "/")}
	if loc, err := objstore.Parse(url); err == nil && isSingle(url) {
		l.single = url
		loc.Key += ".batchmill/"
		l.base = loc.String()
	}
	return l, nil
}

// isSingle tells whether an output is one object: it has a known extension and no slash at its end.
func isSingle(output string) bool { return formatOfName(output) != "" }

// part is the URL of data object n.
func (l layout) part(n int) string {
	if l.single != "" {
		return l.single
	}
	return objstore.Join(l.base, l.partName(n)+l.ext)
}

func (l layout) partName(n int) string { return fmt.Sprintf("part-%05d-of-%05d", n, l.parts) }

// errors is the URL of the dead letters of part n.
func (l layout) errors(n int) string {
	return objstore.Join(l.base, "_errors", l.partName(n)+".jsonl")
}

// plan is the URL of the plan.
func (l layout) plan() string { return objstore.Join(l.base, "_run", "plan.json") }

// seal is the URL of the seal of shard n.
func (l layout) seal(n int) string {
	return objstore.Join(l.base, "_run", "seal", shardName(n)+".json")
}

// seals is the folder of all seals.
func (l layout) seals() string { return objstore.Join(l.base, "_run", "seal/") }

// isSeal tells whether an object has the name of a seal.
func (l layout) isSeal(url string) bool {
	n, err := strconv.Atoi(strings.TrimSuffix(objstore.Base(url), ".json"))
	return err == nil && l.seal(n) == url
}

// journal is the folder of the journal of shard n, and chunk one of its objects.
func (l layout) journal(n int) string {
	return objstore.Join(l.base, "_run", "journal", shardName(n)+"/")
}

func (l layout) chunk(n int, name string) string {
	return objstore.Join(l.base, "_run", "journal", shardName(n), name)
}

// journals is the folder of all shards' journals.
func (l layout) journals() string { return objstore.Join(l.base, "_run", "journal/") }

// shardOf is the shard to whose journal an object belongs.
func (l layout) shardOf(url string) (int, bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(url, l.journals()), "/")
	n, err := strconv.Atoi(name)
	return n, err == nil && shardName(n) == name && strings.HasPrefix(url, l.journal(n))
}

func shardName(n int) string { return fmt.Sprintf("%05d", n) }

// success is the URL of the marker of a complete job.
func (l layout) success() string { return objstore.Join(l.base, "_SUCCESS") }

// shown is the output as messages name it.
func (l layout) shown() string {
	if l.single != "" {
		return l.single
	}
	return l.base
}

// TmpDir is the folder in which files of a job with that output are written before they are linked into place: inside
// the output, so that it lies on the same file system, and under "_run", so that no reader of the data sees it. It is
// "" for object storage.
func TmpDir(output string) string {
	l, err := newLayout(output, formatOfName(output))
	if err != nil || !strings.HasPrefix(l.base, "file://") {
		return ""
	}
	return objstore.Join(l.base, "_run", "tmp")
}
