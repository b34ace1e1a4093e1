package archtest

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// module is our import path, as go.mod says.
const module = "github.com/batchmill/batchmill"

// file is one parsed Go file of the module.
type file struct {
	path      string // from the module's root, with slashes
	dir       string // the same for its folder, "" for the root
	test      bool
	generated bool
	lines     int
	src       []byte
	ast       *ast.File
	fset      *token.FileSet
}

// imports returns the import paths of a file.
func (f *file) imports() []string {
	var paths []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

func (f *file) line(p token.Pos) int { return f.fset.Position(p).Line }

// tree parses every Go file of the module. Folders that are not ours (.git, .cache, testdata and such) are left out.
func tree(t *testing.T) []*file {
	t.Helper()
	const root = "../.."
	if mod, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !bytes.HasPrefix(mod, []byte("module "+module+"\n")) {
		t.Fatalf("%s/go.mod is not that of %s (%v)", root, module, err)
	}
	var files []*file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "out" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parse(root, path)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Go files below %s: looking at the wrong folder", len(files), root)
	}
	return files
}

func parse(root, path string) (*file, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		return nil, err
	}
	return parseSource(filepath.ToSlash(rel), src)
}

func parseSource(rel string, src []byte) (*file, error) {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	dir := ""
	if at := strings.LastIndexByte(rel, '/'); at >= 0 {
		dir = rel[:at]
	}
	return &file{
		path:      rel,
		dir:       dir,
		test:      strings.HasSuffix(rel, "_test.go"),
		generated: ast.IsGenerated(parsed),
		lines:     bytes.Count(src, []byte("\n")),
		src:       src,
		ast:       parsed,
		fset:      fset,
	}, nil
}
