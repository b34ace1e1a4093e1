package objstore

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// Location is a parsed URL. For file:// Bucket is empty and Key is the absolute path without its first slash.
type Location struct {
	Scheme string
	Bucket string
	Key    string
	Query  string // connection settings, as written, without "?"
}

// connectionKeys are the settings that may follow a key. Anything else behind a "?" is part of the key, since "?" is
// also a wildcard.
var connectionKeys = map[string][]string{
	"s3": {"region", "endpoint", "use_path_style", "s3ForcePathStyle", "disable_https", "profile", "anonymous", "role",
		"role_session_name", "role_external_id", "web_identity_token_file", "dualstack", "fips", "accelerate",
		"request_checksum_calculation", "response_checksum_validation", "ssetype", "kmskeyid", "hostname_immutable"},
	"gs":     {"anonymous", "access_id", "universe_domain"},
	"azblob": {"storage_account", "domain", "protocol", "cdn", "localemu"},
	"mem":    {},
	"file":   {},
}

// Parse reads a URL of a known scheme. Use Normalize for what a user typed.
func Parse(url string) (Location, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return Location{}, fmt.Errorf("%q is not a URL", url)
	}
	known, ok := connectionKeys[scheme]
	if !ok {
		return Location{}, fmt.Errorf("storage scheme %q of %q is not supported (known: file, s3, gs, azblob, mem)", scheme, url)
	}
	if strings.ContainsRune(url, 0) {
		return Location{}, fmt.Errorf("%q holds a NUL byte", url)
	}
	loc := Location{Scheme: scheme}
	rest, loc.Query = cutQuery(rest, known)
	if scheme == "file" {
		if rest = strings.TrimPrefix(rest, "localhost"); !strings.HasPrefix(rest, "/") {
			return loc, fmt.Errorf("%q: a file URL needs an absolute path, as in file:///data/in.jsonl", url)
		}
		loc.Key = cleanSlashes(rest[1:])
		return loc, nil
	}
	loc.Bucket, loc.Key, _ = strings.Cut(rest, "/")
	if loc.Bucket == "" {
		return loc, fmt.Errorf("%q names no bucket", url)
	}
	if strings.ContainsAny(loc.Bucket, "*?[]{}") {
		return loc, fmt.Errorf("%q: wildcards in a bucket's name are not supported", url)
	}
	return loc, nil
}

// cutQuery splits rest at the last "?" if nothing but known settings follows it.
func cutQuery(rest string, known []string) (string, string) {
	i := strings.LastIndexByte(rest, '?')
	if i < 0 || i == len(rest)-1 {
		return rest, ""
	}
	for pair := range strings.SplitSeq(rest[i+1:], "&") {
		name, _, ok := strings.Cut(pair, "=")
		found := false
		for _, k := range known {
			found = found || k == name
		}
		if !ok || !found {
			return rest, ""
		}
	}
	return rest[:i], rest[i+1:]
}

// cleanSlashes resolves ".", ".." and doubled slashes of a path and keeps a slash at its end.
func cleanSlashes(key string) string {
	if key == "" {
		return ""
	}
	c := strings.TrimPrefix(path.Clean("/"+key), "/")
	if c != "" && (strings.HasSuffix(key, "/") || strings.HasSuffix(key, "/.")) {
		c += "/"
	}
	return c
}

// String is the URL again.
func (l Location) String() string {
	s := l.Scheme + "://" + l.Bucket + "/" + l.Key
	if l.Query != "" {
		s += "?" + l.Query
	}
	return s
}

// Path is the local path of a file:// location.
func (l Location) Path() string {
	if runtime.GOOS == "windows" {
		return filepath.FromSlash(l.Key) // file:///C:/data has the key C:/data
	}
	return "/" + l.Key
}

// LocalPath returns the local path of a file:// URL, ok is false for every other URL.
func LocalPath(url string) (p string, ok bool) {
	loc, err := Parse(url)
	if err != nil || loc.Scheme != "file" {
		return "", false
	}
	return loc.Path(), true
}

// Normalize turns what a user typed into a URL: a path becomes an absolute file:// URL, a URL is checked and cleaned. A
// slash at the end is kept: it makes a prefix.
func Normalize(pathOrURL string) (string, error) {
	if pathOrURL == "" {
		return "", errors.New("the path or URL is empty")
	}
	if scheme, _, ok := strings.Cut(pathOrURL, "://"); ok && isScheme(scheme) {
		loc, err := Parse(pathOrURL)
		return loc.String(), err
	}
	abs, err := filepath.Abs(pathOrURL)
	if err != nil {
		return "", fmt.Errorf("make %q absolute: %w", pathOrURL, err)
	}
	slash := filepath.ToSlash(abs)
	if last := pathOrURL[len(pathOrURL)-1]; (last == '/' || last == filepath.Separator || pathOrURL == "." || pathOrURL == "..") && !strings.HasSuffix(slash, "/") {
		slash += "/"
	}
	loc, err := Parse("file:///" + strings.TrimPrefix(slash, "/"))
	return loc.String(), err
}

func isScheme(s string) bool {
	for i := range len(s) {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (i == 0 || s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s != ""
}

// Join appends path elements to a URL, before its query, with single slashes between them. A slash at the end of the
// last element is kept; the element "/" makes the URL a prefix.
func Join(base string, elem ...string) string {
	loc, err := Parse(base)
	if err != nil { // not a URL: join as plain text, so that the error surfaces where it is used
		loc = Location{Key: base}
	}
	for _, e := range elem {
		if e == "" {
			continue
		}
		e = strings.TrimLeft(e, "/")
		if loc.Key != "" && !strings.HasSuffix(loc.Key, "/") {
			loc.Key += "/"
		}
		loc.Key += e
	}
	if err != nil {
		return loc.Key
	}
	return loc.String()
}

// Base is the last element of a URL's key.
func Base(url string) string {
	loc, err := Parse(url)
	if err != nil {
		return path.Base(url)
	}
	return path.Base("/" + loc.Key)
}
