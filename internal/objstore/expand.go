package objstore

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// compressions are the endings that may follow a known ending.
var compressions = []string{"", ".gz", ".gzip", ".zst", ".zstd"}

// Expand returns the objects that a pattern (a URL or a path) selects, sorted by URL, each once:
//   - a name that exists literally, even if it could be read as a pattern;
//   - else, with wildcards, everything that matches (see glob.go);
//   - with a slash at the end, every file of a known format below it.
//
// Names that start with "_" or "." are passed over unless they are written out. An error that Is ErrNoMatch says that
// nothing was found.
func (s *Store) Expand(ctx context.Context, pattern string) ([]Info, error) {
	url, err := Normalize(pattern)
	if err != nil {
		return nil, err
	}
	b, loc, err := s.at(ctx, url)
	if err != nil {
		return nil, err
	}
	if loc.Key != "" && !strings.HasSuffix(loc.Key, "/") {
		info, err := s.Stat(ctx, url)
		if err == nil {
			return []Info{info}, nil
		}
		if !errors.Is(err, ErrNotExist) {
			return nil, err
		}
		if !hasMeta(loc.Key) {
			return nil, noMatch(url, err)
		}
	}
	alternatives, err := unfold(loc.Key)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var out []Info
	for _, key := range alternatives {
		found, err := retry(ctx, s.o, "list", url, func(ctx context.Context) ([]entry, error) { return s.match(ctx, b, key) })
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if info := e.info(loc); !seen[info.URL] {
				seen[info.URL] = true
				out = append(out, info)
			}
		}
	}
	if len(out) == 0 {
		return nil, noMatch(url, nil)
	}
	sortInfos(out)
	return out, nil
}

// ExpandAll expands several patterns; an object that more than one selects is returned once. A pattern that selects
// nothing is an error even if others do.
func (s *Store) ExpandAll(ctx context.Context, patterns []string) ([]Info, error) {
	var out []Info
	for _, p := range patterns {
		infos, err := s.Expand(ctx, p)
		if err != nil {
			return nil, err
		}
		out = append(out, infos...)
	}
	sortInfos(out)
	return slices.CompactFunc(out, func(a, b Info) bool { return a.URL == b.URL }), nil
}

func noMatch(url string, cause error) error {
	e := &Error{Op: "find", URL: url, Kinds: []error{ErrNoMatch, ErrNotExist}}
	var c *Error
	if errors.As(cause, &c) {
		e.Hint = c.Hint
	}
	switch {
	case cause != nil && e.Hint == "":
		e.Hint = "no such file; check the spelling, or end a folder with a slash"
	case cause == nil && strings.HasSuffix(url, "/"):
		e.Hint = "no file of a known format (" + strings.Join(KnownExtensions, ", ") + ", also .gz or .zst) below it; names starting with _ or . do not count"
	case cause == nil:
		e.Hint = "names starting with _ or . match only when written out; quote the pattern so that the shell leaves it alone"
	}
	return e
}

// match finds the entries of one unfolded pattern.
func (s *Store) match(ctx context.Context, b backend, key string) ([]entry, error) {
	folder := key == "" || strings.HasSuffix(key, "/")
	if folder && !hasMeta(key) {
		return s.below(ctx, b, key)
	}
	elems, err := parsePattern(strings.TrimSuffix(key, "/"))
	if err != nil {
		return nil, err
	}
	var out []entry
	m := matcher{ctx: ctx, b: b, yield: func(e entry) error { out = append(out, e); return nil }}
	if folder {
		m.dirs = true
		m.yield = func(dir entry) error {
			files, err := s.below(ctx, b, dir.key)
			out = append(out, files...)
			return err
		}
	}
	err = m.walk("", elems)
	return out, err
}

// matcher walks a pattern element by element, listing only the folders that can hold a match.
type matcher struct {
	ctx   context.Context
	b     backend
	dirs  bool // folders are wanted, not files
	yield func(entry) error
}

// walk finds what elems match below prefix, which is "" or ends in a slash.
func (m *matcher) walk(prefix string, elems []element) error {
	for len(elems) > 1 && elems[0].re == nil && !elems[0].any {
		prefix += elems[0].literal + "/"
		elems = elems[1:]
	}
	e, last := elems[0], len(elems) == 1
	switch {
	case e.any:
		return m.deep(prefix, collapse(elems))
	case e.re == nil: // a literal at the end
		return m.end(prefix, e.literal)
	}
	return m.b.list(m.ctx, prefix+e.start, false, func(x entry) error {
		name := strings.TrimSuffix(strings.TrimPrefix(x.key, prefix), "/")
		if name == "" || strings.HasSuffix(x.key, "/") != x.dir || !e.matches(name) {
			return nil
		}
		if last && x.dir == m.dirs {
			return m.yield(x)
		}
		if !last && x.dir {
			return m.walk(x.key, elems[1:])
		}
		return nil
	})
}

// end yields the file or folder of a literal name that ends a pattern.
func (m *matcher) end(prefix, name string) error {
	if m.dirs {
		return m.yield(entry{key: prefix + name + "/", dir: true})
	}
	x, err := m.b.stat(m.ctx, prefix+name)
	if errors.Is(wrap("find", prefix+name, err), ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.yield(x)
}

// collapse makes "**/**" one "**": the meaning is the same, and matching stays cheap.
func collapse(elems []element) []element {
	return slices.CompactFunc(slices.Clone(elems), func(a, b element) bool { return a.any && b.any })
}

// deep matches elems, of which the first is "**", against everything below prefix: one listing, however many folders.
func (m *matcher) deep(prefix string, elems []element) error {
	folders := map[string]bool{}
	return m.b.list(m.ctx, prefix, true, func(x entry) error {
		if x.dir || strings.HasSuffix(x.key, "/") {
			return nil
		}
		names := strings.Split(strings.TrimPrefix(x.key, prefix), "/")
		if !m.dirs {
			if matchPath(elems, names) { // names is never empty, so that "**" at the end takes the file itself
				return m.yield(x)
			}
			return nil
		}
		for n := range len(names) {
			dir := prefix + strings.Join(names[:n], "/") + "/"
			if n == 0 {
				dir = prefix
			}
			if !folders[dir] && matchPath(elems, names[:n]) {
				folders[dir] = true
				if err := m.yield(entry{key: dir, dir: true}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// matchPath matches whole paths; "**" takes any number of names, but no hidden one.
func matchPath(elems []element, names []string) bool {
	if len(elems) == 0 {
		return len(names) == 0
	}
	e := elems[0]
	if e.any {
		if matchPath(elems[1:], names) {
			return true
		}
		return len(names) > 0 && !isHidden(names[0]) && matchPath(elems, names[1:])
	}
	if len(names) == 0 {
		return false
	}
	if e.re == nil && names[0] != e.literal || e.re != nil && !e.matches(names[0]) {
		return false
	}
	return matchPath(elems[1:], names[1:])
}

// below lists the data files of known formats under a prefix that ends in a slash.
func (s *Store) below(ctx context.Context, b backend, prefix string) ([]entry, error) {
	var out []entry
	err := b.list(ctx, prefix, true, func(e entry) error {
		rest := strings.TrimPrefix(e.key, prefix)
		if e.dir || rest == "" || strings.HasSuffix(rest, "/") || !s.isKnown(rest) {
			return nil
		}
		for name := range strings.SplitSeq(rest, "/") {
			if isHidden(name) {
				return nil
			}
		}
		out = append(out, e)
		return nil
	})
	return out, err
}

func (s *Store) isKnown(key string) bool {
	key = strings.ToLower(key)
	for _, c := range compressions {
		stem, ok := strings.CutSuffix(key, c)
		if !ok {
			continue
		}
		for _, k := range s.o.Known {
			if strings.HasSuffix(stem, k) {
				return true
			}
		}
	}
	return false
}
