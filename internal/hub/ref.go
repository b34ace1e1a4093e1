package hub

import (
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Source says where a reference's files come from.
type Source string

// The sources of models.
const (
	Local  Source = "path"
	PyPI   Source = "pypi"
	HF     Source = "hf"
	Object Source = "object"
)

// Ref is a parsed model reference.
type Ref struct {
	Text   string // as it was given, without the pin
	Alias  string // the catalogue's alias, if it was one
	Source Source
	SHA256 string // pinned hash of the single file, hex; "" where there is none

	Path    string // Local: a file or folder. Object: the URL
	Name    string // PyPI: the project. HF: ORG/REPO
	Version string // PyPI: the version. HF: the revision, "main" where none was given
	File    string // PyPI: the wheel's member. HF: the file. "" where none was given
}

const pinMark = "#sha256="

var (
	projectName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`) // PEP 508
	versionText = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.!+_-]*$`)
	hfPart      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,95}$`)
	hfRevision  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]*$`)
	hexSHA256   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	hexSHA1     = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// Parse reads a reference; it touches neither disk nor network. A name that is an alias of the catalogue is the alias:
// for a folder of that name, write ./NAME.
func Parse(text string) (Ref, error) {
	r := Ref{Text: text}
	if head, pin, ok := cutLast(text, pinMark); ok {
		pin = strings.ToLower(pin)
		if !hexSHA256.MatchString(pin) {
			return Ref{}, usage(text, "%q is no SHA-256: 64 hex digits", pin)
		}
		r.Text, r.SHA256 = head, pin
	}
	if r.Text == "" {
		return Ref{}, usage(text, "the reference is empty")
	}
	if m, ok := lookup(r.Text); ok {
		pinned := r.SHA256
		target, err := Parse(m.Ref)
		if err != nil {
			return Ref{}, err
		}
		target.Text, target.Alias = m.Alias, m.Alias
		target.SHA256 = m.SHA256
		if pinned != "" {
			target.SHA256 = pinned
		}
		return target, nil
	}
	switch {
	case strings.HasPrefix(r.Text, "pypi:"):
		return r.parsePyPI()
	case strings.HasPrefix(r.Text, "hf:"):
		return r.parseHF()
	case strings.HasPrefix(r.Text, "file://"):
		u, err := url.Parse(r.Text)
		if err != nil || u.Path == "" || u.Host != "" && u.Host != "localhost" {
			return Ref{}, usage(text, "not a file URL of the form file:///path")
		}
		r.Source, r.Path = Local, filepath.FromSlash(u.Path)
		if runtime.GOOS == "windows" { // file:///C:/x
			r.Path = strings.TrimPrefix(r.Path, `\`)
		}
	case strings.Contains(r.Text, "://"):
		if scheme, _, _ := strings.Cut(r.Text, "://"); scheme == "http" || scheme == "https" {
			return Ref{}, usage(text, "web addresses are no model references; fetch the file and give its path, or use hf:ORG/REPO:FILE")
		}
		r.Source, r.Path = Object, r.Text
	default:
		r.Source, r.Path = Local, r.Text
	}
	return r, nil
}

func (r Ref) parsePyPI() (Ref, error) {
	r.Source = PyPI
	name, rest, ok := strings.Cut(strings.TrimPrefix(r.Text, "pypi:"), "==")
	if !ok {
		return Ref{}, usage(r.Text, "a version is needed: pypi:NAME==VERSION")
	}
	r.Name = name
	r.Version, r.File, _ = strings.Cut(rest, ":")
	if !projectName.MatchString(r.Name) || !versionText.MatchString(r.Version) {
		return Ref{}, usage(r.Text, "not of the form pypi:NAME==VERSION[:MEMBER]")
	}
	if r.File != "" && !cleanPath(r.File) {
		return Ref{}, usage(r.Text, "member %q is not a plain path inside the wheel", r.File)
	}
	return r, nil
}

func (r Ref) parseHF() (Ref, error) {
	r.Source = HF
	rest, file, hasFile := strings.Cut(strings.TrimPrefix(r.Text, "hf:"), ":")
	name, rev, hasRev := strings.Cut(rest, "@")
	if !hasRev {
		rev = "main"
	}
	org, repo, ok := strings.Cut(name, "/")
	if !ok || !hfPart.MatchString(org) || !hfPart.MatchString(repo) {
		return Ref{}, usage(r.Text, "not of the form hf:ORG/REPO[@REVISION][:FILE]")
	}
	if !hfRevision.MatchString(rev) || strings.Contains(rev, "..") {
		return Ref{}, usage(r.Text, "%q is no revision: a branch, a tag or a commit", rev)
	}
	if hasFile && !cleanPath(file) {
		return Ref{}, usage(r.Text, "%q is not a plain path inside the repository", file)
	}
	r.Name, r.Version, r.File = name, rev, file
	return r, nil
}

// ModelName is what results say about where the model came from: the alias, the reference, or for paths and URLs the last
// element, so that the same model gives the same name on every machine.
func (r Ref) ModelName() string {
	switch r.Source {
	case Local:
		abs, err := filepath.Abs(r.Path)
		if err != nil {
			abs = r.Path
		}
		return filepath.Base(abs)
	case Object:
		p, _, _ := strings.Cut(r.Path, "?")
		return path.Base(strings.TrimRight(p, "/"))
	}
	return r.Text
}

// String is the reference as it was given, without a pin and without what a URL may hold of secrets.
func (r Ref) String() string {
	if r.Source == Object {
		s, _, _ := strings.Cut(r.Text, "?")
		return s
	}
	return r.Text
}

// key identifies the reference in the cache: aliases share the key of what they stand for.
func (r Ref) key() string {
	switch r.Source {
	case PyPI:
		return fmt.Sprintf("pypi:%s==%s:%s", strings.ToLower(r.Name), r.Version, r.File)
	case HF:
		return fmt.Sprintf("hf:%s@%s:%s", r.Name, r.Version, r.File)
	}
	return r.Path
}

func usage(ref, format string, args ...any) error {
	return &Error{Kind: Usage, Ref: ref, Err: fmt.Errorf(format, args...)}
}

// cleanPath tells whether p is a relative slash path without dots, backslashes or drive letters.
func cleanPath(p string) bool {
	return p != "" && path.Clean(p) == p && !path.IsAbs(p) && p != "." && p != ".." && !strings.HasPrefix(p, "../") &&
		!strings.ContainsAny(p, "\\:\x00")
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
