package objstore

import "strings"

// Matches tells whether Expand of a pattern would find an object at that URL, if there were one. Connection settings
// do not count.
func Matches(pattern, url string) (bool, error) {
	norm, err := Normalize(pattern)
	if err != nil {
		return false, err
	}
	p, err := Parse(norm)
	if err != nil {
		return false, err
	}
	o, err := Parse(url)
	if err != nil {
		return false, err
	}
	if p.Scheme != o.Scheme || p.Bucket != o.Bucket {
		return false, nil
	}
	if p.Key == o.Key {
		return true, nil
	}
	alternatives, err := unfold(p.Key)
	if err != nil {
		return false, err
	}
	names := strings.Split(o.Key, "/")
	for _, key := range alternatives {
		folder := key == "" || strings.HasSuffix(key, "/")
		if key = strings.TrimSuffix(key, "/"); key == "" {
			return !anyHidden(names), nil
		}
		elems, err := parsePattern(key)
		if err != nil {
			return false, err
		}
		if matchNames(elems, names, folder) {
			return true, nil
		}
	}
	return false, nil
}

// matchNames matches elements against the names of a key; with folder, the names behind a match may be any that are data.
func matchNames(elems []element, names []string, folder bool) bool {
	if len(elems) == 0 {
		return len(names) == 0 || folder && !anyHidden(names)
	}
	if len(names) == 0 {
		return false
	}
	e := elems[0]
	switch {
	case e.any:
		if matchNames(elems[1:], names, folder) {
			return true
		}
		return !isHidden(names[0]) && (matchNames(elems, names[1:], folder) || len(elems) == 1 && len(names) == 1)
	case e.re == nil:
		return e.literal == names[0] && matchNames(elems[1:], names[1:], folder)
	}
	return e.matches(names[0]) && matchNames(elems[1:], names[1:], folder)
}

func anyHidden(names []string) bool {
	for _, n := range names {
		if isHidden(n) {
			return true
		}
	}
	return false
}
