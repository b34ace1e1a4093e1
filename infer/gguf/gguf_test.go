package gguf

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/quant"
)

type goldenTensor struct {
	Name   string
	Type   string
	Shape  []int
	Bytes  int64
	SHA256 string
}

// TestGoldens reads files that the gguf package on PyPI wrote, mapped and by range.
func TestGoldens(t *testing.T) {
	raw, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string]struct{ Tensors []goldenTensor }
	if err := json.Unmarshal(raw, &goldens); err != nil {
		t.Fatal(err)
	}
	if len(goldens) != 2 {
		t.Fatalf("goldens of %d files, want 2", len(goldens))
	}
	ctx := context.Background()
	for name, want := range goldens {
		mapped, err := OpenPath(ctx, filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		defer mapped.Close()
		names := []string{name}
		if parts, ok := SplitNames(name); ok {
			names = parts
		}
		var src []Source
		for _, n := range names {
			data, err := os.ReadFile(filepath.Join("testdata", n))
			if err != nil {
				t.Fatal(err)
			}
			src = append(src, source(data, n))
		}
		ranged, err := Open(ctx, src...)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*File{mapped, ranged} {
			checkTensors(t, f, want.Tensors)
		}
		if text, _ := mapped.String("general.architecture"); text != "llama" {
			t.Errorf("%s: architecture %q", name, text)
		}
	}
}

func checkTensors(t *testing.T, f *File, want []goldenTensor) {
	t.Helper()
	if got := len(f.Tensors()); got != len(want) {
		t.Fatalf("%d tensors, want %d", got, len(want))
	}
	for _, w := range want {
		info, ok := f.Tensor(w.Name)
		if !ok {
			t.Fatalf("tensor %s is missing", w.Name)
		}
		if info.Name != w.Name || info.Type.String() != w.Type || !slices.Equal(info.Shape, w.Shape) || info.Bytes != w.Bytes {
			t.Errorf("got %+v, want %+v", info, w)
		}
		data, release, err := f.Data(context.Background(), w.Name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if hex.EncodeToString(sum[:]) != w.SHA256 {
			t.Errorf("tensor %s: wrong data", w.Name)
		}
		release()
	}
}

func TestMetadataKinds(t *testing.T) {
	f, err := OpenPath(context.Background(), "testdata/kinds.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for key, want := range map[string]any{
		"t.u8": uint8(200), "t.i8": int8(-100), "t.u16": uint16(60000), "t.i16": int16(-30000), "t.u32": uint32(4000000000),
		"t.i32": int32(-2000000000), "t.u64": uint64(1 << 63), "t.i64": int64(-1 << 63), "t.f32": float32(0.5), "t.f64": 1e300,
		"t.yes": true, "t.no": false, "t.text": "h\u00e9llo \u2581 \U0001f600",
		"t.strings": []string{"a", "", "b c", "\u0120x"}, "t.ints": []int32{1, -2, 3}, "t.floats": []float32{0.5, -1.5},
		"t.bools": []bool{true, false, true},
	} {
		if got, ok := f.Value(key); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %T %v, want %T %v", key, got, got, want, want)
		}
		if !slices.Contains(f.Keys(), key) {
			t.Errorf("Keys lacks %s", key)
		}
	}
	type result struct {
		v  any
		ok bool
	}
	pair := func(v any, ok bool) result { return result{v, ok} }
	u := func(key string) result { v, ok := f.Uint(key); return pair(v, ok) }
	fl := func(key string) result { v, ok := f.Float(key); return pair(v, ok) }
	s := func(key string) result { v, ok := f.String(key); return pair(v, ok) }
	b := func(key string) result { v, ok := f.Bool(key); return pair(v, ok) }
	for name, c := range map[string]struct{ got, want result }{
		"Uint u8":       {u("t.u8"), pair(uint64(200), true)},
		"Uint u64":      {u("t.u64"), pair(uint64(1<<63), true)},
		"Float f32":     {fl("t.f32"), pair(0.5, true)},
		"Float i16":     {fl("t.i16"), pair(float64(-30000), true)},
		"String":        {s("t.text"), pair("h\u00e9llo \u2581 \U0001f600", true)},
		"String of int": {s("t.u8"), pair("", false)},
		"Bool":          {b("t.yes"), pair(true, true)},
		"Bool absent":   {b("none"), pair(false, false)},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %v, want %v", name, c.got, c.want)
		}
	}
	for _, key := range []string{"t.i8", "t.i64", "t.f32", "t.text", "none"} {
		if v, ok := f.Uint(key); ok {
			t.Errorf("Uint(%s) = %d", key, v)
		}
	}
	if v, ok := f.Int32s("t.strings"); ok {
		t.Errorf("Int32s of strings = %v", v)
	}
}

func TestNarrow(t *testing.T) {
	if got, ok := narrow([]uint32{0, 1<<31 - 1}); !ok || got[1] != 1<<31-1 {
		t.Errorf("got %v, %v", got, ok)
	}
	if got, ok := narrow([]uint32{1 << 31}); ok {
		t.Errorf("2^31 became %v", got)
	}
	if got, ok := narrow([]uint64{1<<64 - 1}); ok {
		t.Errorf("2^64-1 became %v", got)
	}
	if got, ok := narrow([]int64{-1 << 31, -1<<31 - 1}); ok {
		t.Errorf("-2^31-1 became %v", got)
	}
	if got, ok := narrow([]int8{-1}); !ok || got[0] != -1 {
		t.Errorf("got %v, %v", got, ok)
	}
}

// TestRefuses holds each check of the head to a file that breaks just that.
func TestRefuses(t *testing.T) {
	two := func() *builder { return new(builder).tensor("a", 8, 0).tensor("b", 8, 32) }
	big := u64(1 << 62)
	withTensor := func(change func(*builtTensor)) []byte {
		b := two()
		change(&b.tensors[1])
		return b.bytes()
	}
	for _, c := range []struct {
		name string
		data []byte
		want string // in the message
		kind bool   // unsupported rather than damaged
	}{
		{"empty", nil, "needs 4 bytes", false},
		{"no gguf", []byte("PK\x03\x04 and so on"), "not a GGUF file", false},
		{"version 1", (&builder{version: 1}).bytes(), "version 1", true},
		{"big-endian", (&builder{version: 3 << 24}).bytes(), "big-endian", true},
		{"many tensors", (&builder{count: func(_, k uint64) (uint64, uint64) { return 1 << 60, k }}).bytes(), "tensors are more", false},
		{"many keys", (&builder{count: func(n, _ uint64) (uint64, uint64) { return n, 1 << 60 }}).bytes(), "keys are more", false},
		{"more tensors than bytes", (&builder{count: func(_, k uint64) (uint64, uint64) { return 1000, k }}).bytes(), "truncated", false},
		{"more keys than bytes", (&builder{count: func(n, _ uint64) (uint64, uint64) { return n, 1000 }}).bytes(), "truncated", false},
		{"one key too many", (&builder{count: func(n, k uint64) (uint64, uint64) { return n, k + 1 }}).key("a", kindBool, []byte{1}).bytes(), "a metadata key is empty", false},
		{"long key", (&builder{count: func(n, _ uint64) (uint64, uint64) { return n, 1 }, keys: [][]byte{big, make([]byte, 64)}}).bytes(), "truncated", false},
		{"empty key", new(builder).key("", kindBool, []byte{1}).bytes(), "empty", false},
		{"key twice", new(builder).key("k", kindBool, []byte{1}).key("k", kindBool, []byte{1}).bytes(), `"k" stands there twice`, false},
		{"bad kind", new(builder).key("k", 13, u64(0)).bytes(), "unknown value type 13", false},
		{"bad bool", new(builder).key("k", kindBool, []byte{2}).bytes(), "boolean", false},
		{"long string", new(builder).key("k", kindString, big).bytes(), "truncated", false},
		{"long array", new(builder).key("k", kindArray, u32(kindUint8), big).bytes(), "elements", false},
		{"array beyond the end", new(builder).key("k", kindArray, u32(kindUint64), u64(1000)).bytes(), "truncated", false},
		{"strings beyond the end", new(builder).key("k", kindArray, u32(kindString), u64(1000)).bytes(), "truncated", false},
		{"array of arrays", new(builder).key("k", kindArray, u32(kindArray), u64(1), u32(kindBool), u64(0)).bytes(), "array of arrays", false},
		{"bad element kind", new(builder).key("k", kindArray, u32(77), u64(0)).bytes(), "unknown type 77", false},
		{"alignment 0", new(builder).key("general.alignment", kindUint32, u32(0)).bytes(), "general.alignment", false},
		{"alignment 48", new(builder).key("general.alignment", kindUint32, u32(48)).bytes(), "general.alignment", false},
		{"alignment text", new(builder).key("general.alignment", kindString, str("32")).bytes(), "general.alignment", false},
		{"no name", withTensor(func(t *builtTensor) { t.name = "" }), "no name", false},
		{"name twice", withTensor(func(t *builtTensor) { t.name = "a" }), `tensor "a": at byte`, false},
		{"no dimensions", withTensor(func(t *builtTensor) { t.dims = nil }), "0 dimensions", false},
		{"five dimensions", withTensor(func(t *builtTensor) { t.dims = []uint64{1, 1, 1, 1, 8} }), "5 dimensions", false},
		{"dimension 0", withTensor(func(t *builtTensor) { t.dims = []uint64{0} }), "dimension 0 is 0", false},
		{"huge dimension", withTensor(func(t *builtTensor) { t.dims = []uint64{1 << 63} }), "dimension 0", false},
		{"product overflows", withTensor(func(t *builtTensor) { t.dims = []uint64{1 << 40, 1 << 40} }), "too large", false},
		{"no whole blocks", withTensor(func(t *builtTensor) { t.typ = 12 }), "Q4_K needs a multiple of 256", false},
		{"unsupported type", withTensor(func(t *builtTensor) { t.typ = 10 }), "tensor type Q2_K (number 10) is not supported", true},
		{"unknown type", withTensor(func(t *builtTensor) { t.typ = 200 }), "tensor type unknown (number 200)", true},
		{"misaligned", withTensor(func(t *builtTensor) { t.off = 36 }), "alignment 32", false},
		{"overlap", withTensor(func(t *builtTensor) { t.off = 0 }), "overlaps", false},
		{"offset overflows", withTensor(func(t *builtTensor) { t.off = 1<<64 - 32; t.data = nil; t.dims = []uint64{8} }), "beyond the end", false},
		{"truncated", two().bytes()[:len(two().bytes())-1], `tensor "b": at byte`, false},
		{"a part alone", new(builder).key("split.no", kindUint16, []byte{1, 0}).key("split.count", kindUint16, []byte{3, 0}).bytes(), "part 2 of 3", false},
	} {
		f, err := Open(context.Background(), source(c.data, "file.gguf"))
		if err == nil {
			t.Errorf("%s: accepted, %d tensors", c.name, len(f.Tensors()))
			continue
		}
		var fe *quant.FileError
		if !errors.As(err, &fe) || fe.File != "file.gguf" || fe.Unsupported != c.kind {
			t.Errorf("%s: error %#v, want a FileError with Unsupported %v", c.name, err, c.kind)
		}
		if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: message %q lacks %q", c.name, err, c.want)
		}
	}
	if f, err := Open(context.Background(), source(two().bytes(), "file.gguf")); err != nil || len(f.Tensors()) != 2 {
		t.Errorf("the file that the wrong ones are made from: %v", err)
	}
}

// TestEveryTruncation cuts a file at each byte: it must be refused, never read past its end.
func TestEveryTruncation(t *testing.T) {
	whole, err := os.ReadFile("testdata/kinds.gguf")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		f, err := Open(context.Background(), source(whole[:n], "cut"))
		if err != nil && !strings.Contains(err.Error(), "truncated") {
			t.Errorf("cut at %d of %d: %v, which does not say that it is cut", n, len(whole), err)
		}
		if err == nil {
			// The padding behind the last tensor may be missing.
			for _, info := range f.Tensors() {
				if _, _, err := f.Data(context.Background(), info.Name); err != nil {
					t.Fatalf("cut at %d of %d: accepted, but %v", n, len(whole), err)
				}
			}
			if n < len(whole)-defaultAlignment {
				t.Fatalf("cut at %d of %d: accepted", n, len(whole))
			}
		}
	}
}

func TestSplitParts(t *testing.T) {
	ctx := context.Background()
	parts, ok := SplitNames("split-00002-of-00003.gguf")
	if !ok || len(parts) != 3 || parts[0] != "split-00001-of-00003.gguf" {
		t.Fatalf("SplitNames gave %v", parts)
	}
	for _, name := range []string{"a.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-1-of-3.gguf"} {
		if got, ok := SplitNames(name); ok {
			t.Errorf("SplitNames(%q) = %v", name, got)
		}
	}
	open := func(names ...string) error {
		var src []Source
		for _, n := range names {
			data, err := os.ReadFile(filepath.Join("testdata", n))
			if err != nil {
				t.Fatal(err)
			}
			src = append(src, source(data, n))
		}
		_, err := Open(ctx, src...)
		return err
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{[]string{parts[0]}, "part 1 of 3, but 1 were given"},
		{[]string{parts[0], parts[1]}, "part 1 of 3, but 2 were given"},
		{[]string{parts[1], parts[0], parts[2]}, "it says it is part 2, where part 1 is due"},
		{[]string{parts[0], "kinds.gguf"}, "part 1 of 3, but 2"},
		{[]string{"kinds.gguf", "kinds.gguf"}, "no part of a split file"},
	} {
		if err := open(c.names...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.names, err, c.want)
		}
	}
	// Any part opens all of them; a missing one is missing.
	dir := t.TempDir()
	for _, p := range parts[:2] {
		data, err := os.ReadFile(filepath.Join("testdata", p))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenPath(ctx, filepath.Join(dir, parts[0])); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), parts[2]) {
		t.Errorf("a missing part: %v", err)
	}
}

// TestDuplicateAcrossParts: a tensor may stand in one part only.
func TestDuplicateAcrossParts(t *testing.T) {
	part := func(no, tensors byte) []byte {
		return new(builder).key("split.no", kindUint16, []byte{no, 0}).key("split.count", kindUint16, []byte{2, 0}).
			key("split.tensors.count", kindInt32, []byte{tensors, 0, 0, 0}).tensor("same", 8, 0).bytes()
	}
	_, err := Open(context.Background(), source(part(0, 2), "one"), source(part(1, 2), "two"))
	if err == nil || !strings.Contains(err.Error(), `two: tensor "same"`) {
		t.Errorf("got %v", err)
	}
}

func TestDataErrors(t *testing.T) {
	data := new(builder).tensor("a", 8, 0).bytes()
	f, err := Open(context.Background(), failing{source(data, "file"), int64(len(data)) - 32})
	if err != nil {
		t.Fatal(err)
	}
	var fe *quant.FileError
	if _, _, err := f.Data(context.Background(), "a"); !errors.As(err, &fe) || fe.Tensor != "a" || fe.Offset != int64(len(data))-32 {
		t.Errorf("read failure: %v", err)
	}
	if _, _, err := f.Data(context.Background(), "b"); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("missing tensor: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := f.Data(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// failing fails reads at and beyond an offset.
type failing struct {
	Source
	from int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off >= f.from {
		return 0, io.ErrClosedPipe
	}
	return f.Source.ReadAt(p, off)
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"kinds.gguf", "split-00001-of-00003.gguf"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(new(builder).key("general.alignment", kindUint32, u32(64)).tensor("a", 8, 0).bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Open(context.Background(), source(data, "fuzz"))
		if err != nil {
			return
		}
		total := int64(0)
		for _, info := range file.Tensors() {
			b, _, err := file.Data(context.Background(), info.Name)
			if err != nil || int64(len(b)) != info.Bytes {
				t.Fatalf("tensor %q: %d bytes of %d, %v", info.Name, len(b), info.Bytes, err)
			}
			total += info.Bytes
			quant.Dequantize(info.Type, make([]float32, info.Values()), b)
		}
		if total > int64(len(data)) { // they must not overlap
			t.Fatalf("tensors of %d bytes in a file of %d", total, len(data))
		}
	})
}
