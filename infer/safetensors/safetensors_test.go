package safetensors

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/quant"
)

// memory is a Source in memory that, unlike a mapped file, has to be read.
type memory struct {
	*bytes.Reader
	name string
}

func (m memory) Name() string { return m.name }

// file builds a file of a head and so many bytes of data.
func file(head string, data int) Source {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	return memory{bytes.NewReader(append(b, make([]byte, data)...)), "file.safetensors"}
}

// TestGoldens reads files that the safetensors package on PyPI wrote, mapped and by range.
func TestGoldens(t *testing.T) {
	raw, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	var goldens map[string][]struct {
		Name   string
		Type   string
		Shape  []int
		Bytes  int64
		SHA256 string
	}
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
		open := func(name string) (Source, error) {
			data, err := os.ReadFile(filepath.Join("testdata", name))
			return memory{bytes.NewReader(data), name}, err
		}
		var ranged *File
		if strings.HasSuffix(name, ".json") {
			index, readErr := os.ReadFile(filepath.Join("testdata", name))
			if readErr != nil {
				t.Fatal(readErr)
			}
			ranged, err = OpenIndex(ctx, name, index, open)
		} else {
			var src Source
			if src, err = open(name); err != nil {
				t.Fatal(err)
			}
			ranged, err = Open(ctx, src)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []*File{mapped, ranged} {
			if len(f.Tensors()) != len(want) {
				t.Fatalf("%s: %d tensors, want %d", name, len(f.Tensors()), len(want))
			}
			for _, w := range want {
				info, ok := f.Tensor(w.Name)
				if !ok || info.Name != w.Name || info.Type.String() != w.Type || !slices.Equal(info.Shape, w.Shape) || info.Bytes != w.Bytes {
					t.Fatalf("%s: got %+v, want %+v", name, info, w)
				}
				data, release, err := f.Data(ctx, w.Name)
				if err != nil {
					t.Fatal(err)
				}
				if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != w.SHA256 {
					t.Errorf("%s: tensor %s: wrong data", name, w.Name)
				}
				release()
			}
		}
	}
}

func TestMetadata(t *testing.T) {
	f, err := OpenPath(context.Background(), "testdata/single.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if m := f.Metadata(); len(m) != 1 || m["format"] != "pt" {
		t.Errorf("metadata %v", m)
	}
	if _, _, err := f.Data(context.Background(), "none"); err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("missing tensor: %v", err)
	}
}

// TestRefuses holds each check of the head to a file that breaks just that.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name, head  string
		data        int
		want        string
		unsupported bool
	}{
		{"no object", `[1]`, 0, "not a JSON object", false},
		{"broken JSON", `{"a": `, 0, "parse the head", false},
		{"two values", `{}{}`, 0, "text after the end", false},
		{"name twice", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4, "duplicate", false},
		{"entry no object", `{"a":7}`, 0, `tensor "a"`, false},
		{"unknown key", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 4, `unknown key "x"`, false},
		{"no dtype", `{"a":{"shape":[1],"data_offsets":[0,4]}}`, 4, "dtype", false},
		{"unsupported dtype", `{"a":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}`, 4, "tensor type F8_E4M3 is not supported", true},
		{"no shape", `{"a":{"dtype":"F32","data_offsets":[0,4]}}`, 4, "shape", false},
		{"negative dimension", `{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4, "shape", false},
		{"fraction", `{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4, "shape", false},
		{"many dimensions", `{"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}}`, 4, "shape", false},
		{"product overflows", `{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}`, 4, "too large", false},
		{"row overflows", `{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}`, 4, "too large", false},
		{"one offset", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`, 4, "data_offsets", false},
		{"negative offset", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, 4, "data_offsets", false},
		{"huge offset", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551616]}}`, 4, "data_offsets", false},
		{"offsets turned", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4, "ends before", false},
		{"wrong span", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 8, "span 8", false},
		{"beyond the end", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 7, "truncated", false},
		{"overlap", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8, "overlaps", false},
		{"gap", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, 12, "belong to no tensor", false},
		{"rest", `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 5, "belong to none", false},
		{"metadata no object", `{"__metadata__":[]}`, 0, "__metadata__", false},
		{"metadata nested", `{"__metadata__":{"a":{}}}`, 0, "__metadata__", false},
	} {
		_, err := Open(context.Background(), file(c.head, c.data))
		var fe *quant.FileError
		if !errors.As(err, &fe) || fe.File != "file.safetensors" || fe.Unsupported != c.unsupported || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a FileError with %q, Unsupported %v", c.name, err, c.want, c.unsupported)
		}
	}
	for name, data := range map[string]string{
		"empty": "", "short": "\x01\x00", "head beyond the end": "\xff\x00\x00\x00\x00\x00\x00\x00{}",
		"huge head": "\xff\xff\xff\xff\xff\xff\xff\xff{}", "a zip": "PK\x03\x04aaaaaaaaaaaaaa",
	} {
		if _, err := Open(context.Background(), memory{bytes.NewReader([]byte(data)), name}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ok := `{"__metadata__":{"n":1},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}  `
	if f, err := Open(context.Background(), file(ok, 10)); err != nil || len(f.Tensors()) != 2 {
		t.Errorf("a right file: %v", err)
	}
}

// TestEveryTruncation cuts a file at each byte: the format leaves nothing out that could be missed.
func TestEveryTruncation(t *testing.T) {
	whole, err := os.ReadFile("testdata/single.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if _, err := Open(context.Background(), memory{bytes.NewReader(whole[:n]), "cut"}); err == nil {
			t.Fatalf("cut at %d of %d: accepted", n, len(whole))
		}
	}
	cut := whole[:len(whole)-1]
	_, err = Open(context.Background(), memory{bytes.NewReader(cut), "cut"})
	var fe *quant.FileError
	if !errors.As(err, &fe) || fe.Tensor == "" || fe.Offset < 8 {
		t.Errorf("a cut in the data names no tensor and offset: %v", err)
	}
}

func TestIndex(t *testing.T) {
	ctx := context.Background()
	read := func(shard string) (Source, error) {
		data, err := os.ReadFile(filepath.Join("testdata", shard))
		if err != nil {
			return nil, err
		}
		return memory{bytes.NewReader(data), shard}, nil
	}
	for _, c := range []struct{ name, index, want string }{
		{"no map", `{}`, "no weight_map"},
		{"empty map", `{"weight_map":{}}`, "no weight_map"},
		{"broken", `{"weight_map":`, "index.json"},
		{"path", `{"weight_map":{"a":"../model.safetensors"}}`, `tensor "a": its shard is "../model.safetensors"`},
		{"backslash", `{"weight_map":{"a":"x\\y"}}`, "not the name of a file"},
		{"drive", `{"weight_map":{"a":"c:x"}}`, "not the name of a file"},
		{"number", `{"weight_map":{"a":1}}`, "not the name of a file"},
		{"dots", `{"weight_map":{"a":".."}}`, "not the name of a file"},
		{"wrong shard", `{"weight_map":{"a":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}}`, `tensor "a": it is not in model-00002`},
		{"missing tensor", `{"weight_map":{"zz":"model-00001-of-00002.safetensors"}}`, `tensor "zz": it is not in`},
	} {
		if _, err := OpenIndex(ctx, "index.json", []byte(c.index), read); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := OpenIndex(ctx, "index.json", []byte(`{"weight_map":{"a":"gone.safetensors"}}`), read); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing shard: %v", err)
	}
	one, err := read("model-00001-of-00002.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, one, one); err == nil || !strings.Contains(err.Error(), "stands also in") {
		t.Errorf("one shard twice: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	data, err := os.ReadFile("testdata/single.safetensors")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Open(context.Background(), memory{bytes.NewReader(data), "fuzz"})
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

// FuzzHead puts the bytes where the JSON stands, which random bytes in front of it rarely reach.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`))
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},"b":{"dtype":"BF16","shape":[],"data_offsets":[0,8]}}`))
	f.Fuzz(func(t *testing.T, head []byte) {
		file, err := Open(context.Background(), file(string(head), 8))
		if err != nil {
			return
		}
		for _, info := range file.Tensors() {
			if _, _, err := file.Data(context.Background(), info.Name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":1},"weight_map":{"a":"model-00001-of-00002.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		weights, err := ParseIndex("fuzz", data)
		if err != nil {
			return
		}
		for _, shard := range Shards(weights) {
			if filepath.Base(shard) != shard || !filepath.IsLocal(shard) {
				t.Fatalf("shard %q is a path", shard)
			}
		}
	})
}
