package main

import (
	"bytes"
	"strings"
	"testing"
)

// summarise runs a stream through the program and returns what it printed and whether it was satisfied.
func summarise(t *testing.T, stream string, strict bool) (string, bool) {
	t.Helper()
	var out bytes.Buffer
	s := newSummary(&out)
	if err := s.read(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	ok := s.print(5, strict)
	return out.String(), ok
}

func TestSummary(t *testing.T) {
	const (
		pass    = `{"Action":"run","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2.5}` + "\n"
		subs    = `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"run","Package":"p","Test":"TestB/x"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestB/x","Output":"x went wrong\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB/x"}` + "\n" + `{"Action":"run","Package":"p","Test":"TestB/y"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestB/y"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB"}` + "\n"
		parent  = `{"Action":"run","Package":"p","Test":"TestB"}` + "\n" + `{"Action":"run","Package":"p","Test":"TestB/y"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestB/y"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB"}` + "\n"
		skip    = `{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: needs a server\n"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestC","Output":"--- SKIP: TestC (0.00s)\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestC"}` + "\n"
		pkgOK   = `{"Action":"pass","Package":"p","Elapsed":3}` + "\n"
		pkgFail = `{"Action":"fail","Package":"p","Elapsed":3}` + "\n"
		noTests = `{"Action":"skip","Package":"q"}` + "\n"
		build   = `{"ImportPath":"p [p.test]","Action":"build-output","Output":"p/a.go:1:1: boom\n"}` + "\n" + `{"ImportPath":"p [p.test]","Action":"build-fail"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}` + "\n"
		crash   = `{"Action":"run","Package":"p","Test":"TestD"}` + "\n" + `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: oops\n"}` + "\n" + pkgFail
	)
	cases := []struct {
		name, stream string
		strict       bool
		ok           bool
		last         string
		contains     []string
	}{
		{"all well", pass + pkgOK + noTests, false, true, "1 passed, 0 failed, 0 skipped", []string{"ok    p", "2.5s  p TestA"}},
		{"subtests count once", pass + subs + pkgFail, false, false, "2 passed, 1 failed, 0 skipped", []string{"x went wrong", "p TestB/x"}},
		{"a parent that fails alone counts", parent + pkgFail, false, false, "1 passed, 1 failed, 0 skipped", []string{"p TestB"}},
		{"skips give their reason", pass + skip + pkgOK, false, true, "1 passed, 0 failed, 1 skipped", []string{"p TestC: c_test.go:7: needs a server"}},
		{"skips fail when asked", pass + skip + pkgOK, true, false, "1 passed, 0 failed, 1 skipped", nil},
		{"only skips is no success", skip + pkgOK, false, false, "0 passed, 0 failed, 1 skipped", nil},
		{"nothing ran", noTests, false, false, "0 passed, 0 failed, 0 skipped", []string{"no test was run"}},
		{"empty stream", "", false, false, "0 passed, 0 failed, 0 skipped", []string{"no test was run"}},
		{"build failure", build, false, false, "0 passed, 1 failed, 0 skipped", []string{"a.go:1:1: boom", "p (the package)"}},
		{"panic in a test", pass + crash, false, false, "1 passed, 1 failed, 0 skipped", []string{"panic: oops"}},
		{"go's own words pass through", "go: cannot find module\n" + pass + pkgOK, false, true, "1 passed, 0 failed, 0 skipped", []string{"go: cannot find module"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			out, ok := summarise(t, c.stream, c.strict)
			if ok != c.ok {
				t.Errorf("satisfied: %v, want %v\n%s", ok, c.ok, out)
			}
			lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
			if got := lines[len(lines)-1]; got != c.last {
				t.Errorf("last line %q, want %q", got, c.last)
			}
			for _, want := range c.contains {
				if !strings.Contains(out, want) {
					t.Errorf("output lacks %q:\n%s", want, out)
				}
			}
		})
	}
}
