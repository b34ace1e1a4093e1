package readers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// sniffBytes is how much of a file's start, before and after decompression, decides its format.
const sniffBytes = 4096

// Compressions that are undone by content.
const (
	gzipped = "gzip"
	zstded  = "zstd"
)

type detected struct {
	format      string
	compression string // "", gzipped or zstded
}

// Detect tells a file's format and compression: by content first, then by name. What cannot be read is refused by name,
// with the command that converts it.
func Detect(ctx context.Context, obj Object) (format, compression string, err error) {
	d, err := detect(ctx, obj, Options{})
	return d.format, d.compression, err
}

func detect(ctx context.Context, obj Object, o Options) (detected, error) {
	switch o.Format {
	case "", JSONL, Parquet:
	default:
		return detected{}, fmt.Errorf("input format %q is not supported (known: jsonl, parquet)", o.Format)
	}
	if o.Format == Parquet {
		return detected{format: Parquet}, nil // its own reader says what is wrong
	}
	head, err := sniff(obj.NewReader(ctx, 0, sniffBytes))
	if err != nil {
		return detected{}, err
	}
	d := detected{compression: compressionOf(head)}
	name := baseName(obj)
	if c, ok := compressedExt[path.Ext(name)]; ok && d.compression == "" && len(head) < len(c.magic) && strings.HasPrefix(c.magic, string(head)) {
		if len(head) > 0 {
			return d, &FileError{URL: obj.Name(), Truncated: true, Hint: "copy it again", Err: fmt.Errorf("%d bytes are less than the start of %s data", len(head), c.name)}
		}
		name = strings.TrimSuffix(name, path.Ext(name)) // nothing at all, as a program leaves it that had nothing to write
	}
	if d.compression != "" {
		name = strings.TrimSuffix(name, path.Ext(name))
		r, err := decompress(obj.NewReader(ctx, 0, -1), d.compression)
		if err != nil {
			return d, fileError(obj, "", err)
		}
		head, err = sniff(r)
		if err != nil && len(head) == 0 && !isDamage(err) {
			return d, err
		} // a damaged start shows again, with its place, when the file is read
	}
	if err := refuse(obj, head, name, d.compression); err != nil {
		return d, err
	}
	switch ext := path.Ext(name); {
	case bytes.HasPrefix(head, []byte("PAR1")):
		d.format = Parquet
		if d.compression != "" {
			return d, brokenf(obj, "", "decompress it first: Parquet is compressed inside", "a Parquet file inside %s cannot be read by range", d.compression)
		}
		if o.Format == JSONL {
			return d, brokenf(obj, "", "leave --input-format out", "it is a Parquet file, not JSONL")
		}
	case o.Format == JSONL:
		d.format = JSONL
	case ext == ".parquet" || ext == ".pq":
		return d, brokenf(obj, "", "write it anew, or copy it again", "its name says Parquet, but it does not start with PAR1")
	case looksLikeJSON(head) || ext == ".jsonl" || ext == ".ndjson" || ext == ".json" || len(head) == 0 && ext == "":
		d.format = JSONL
	default:
		return d, brokenf(obj, "", "say --input-format jsonl if that is what it is", "its format is not known, neither by content nor by name")
	}
	return d, nil
}

func baseName(obj Object) string {
	name, _, _ := strings.Cut(path.Base(obj.Name()), "?") // connection settings
	return strings.ToLower(name)
}

func sniff(r io.ReadCloser) ([]byte, error) {
	defer r.Close()
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(r, head)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return head[:n], err
}

// compressedExt are the endings of compressed files' names, with the first bytes that such a file has.
var compressedExt = map[string]struct{ name, magic string }{
	".gz": {gzipped, gzipMagic}, ".gzip": {gzipped, gzipMagic}, ".zst": {zstded, zstdMagic}, ".zstd": {zstded, zstdMagic},
}

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

func compressionOf(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		return gzipped
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		return zstded
	case len(head) >= 4 && head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18: // skippable frame
		return zstded
	}
	return ""
}

func looksLikeJSON(head []byte) bool {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, utf8BOM), " \t\r\n")
	return len(head) > 0 && head[0] == '{'
}

// foreign are formats that are told by their first bytes and refused.
var foreign = []struct{ magic, name, convert string }{
	{"\xff\xfe\x00\x00", "UTF-32 text", "iconv -f UTF-32 -t UTF-8 IN > OUT"},
	{"\x00\x00\xfe\xff", "UTF-32 text", "iconv -f UTF-32 -t UTF-8 IN > OUT"},
	{"\xff\xfe", "UTF-16 text", "iconv -f UTF-16 -t UTF-8 IN > OUT"},
	{"\xfe\xff", "UTF-16 text", "iconv -f UTF-16 -t UTF-8 IN > OUT"},
	{"BZh", "bzip2 compression", "bunzip2 IN.bz2"},
	{"\xfd7zXZ\x00", "xz compression", "unxz IN.xz"},
	{"\x04\x22\x4d\x18", "LZ4 compression", "unlz4 IN.lz4"},
	{"\xff\x06\x00\x00sNaPpY", "Snappy compression", "snzip -d IN.sz"},
	{"PK\x03\x04", "a zip archive", "unzip IN.zip"},
	{"PARE", "Parquet with an encrypted footer", ""},
	{"ARROW1", "Arrow IPC (Feather)", `python -c "import pyarrow.feather as f, pyarrow.parquet as q; q.write_table(f.read_table('IN'), 'OUT.parquet')"`},
	{"ORC", "ORC", `python -c "import pyarrow.orc as o, pyarrow.parquet as q; q.write_table(o.read_table('IN'), 'OUT.parquet')"`},
	{"Obj\x01", "Avro", ""},
	{"SQLite format 3\x00", "an SQLite database", ""},
}

// refuse returns the error for content that is known and cannot be read.
func refuse(obj Object, head []byte, name, compression string) error {
	no := func(what, convert string) error {
		hint := ""
		if convert != "" {
			hint = "convert it with: " + convert
		}
		return brokenf(obj, "", hint, "%s is not supported", what)
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return no(f.name, f.convert)
		}
	}
	if compression != "" && compressionOf(head) != "" {
		return no("a file that is compressed twice", "")
	}
	// UTF-16 and UTF-32 without a mark: JSON starts with ASCII, so the zero bytes give it away.
	if len(head) >= 4 {
		switch zero := [4]bool{head[0] == 0, head[1] == 0, head[2] == 0, head[3] == 0}; zero {
		case [4]bool{false, true, false, true}:
			return no("UTF-16LE text", "iconv -f UTF-16LE -t UTF-8 IN > OUT")
		case [4]bool{true, false, true, false}:
			return no("UTF-16BE text", "iconv -f UTF-16BE -t UTF-8 IN > OUT")
		case [4]bool{false, true, true, true}:
			return no("UTF-32LE text", "iconv -f UTF-32LE -t UTF-8 IN > OUT")
		case [4]bool{true, true, true, false}:
			return no("UTF-32BE text", "iconv -f UTF-32BE -t UTF-8 IN > OUT")
		}
	}
	switch path.Ext(name) {
	case ".csv", ".tsv":
		return no("CSV", `python -c "import pandas; pandas.read_csv('IN').to_json('OUT.jsonl', orient='records', lines=True)"`)
	case ".json": // one JSON document, rather than one a line?
		text := bytes.TrimPrefix(head, utf8BOM)
		first, _, _ := bytes.Cut(bytes.TrimLeft(text, " \t\r\n"), []byte("\n"))
		if first = bytes.TrimSpace(first); bytes.HasPrefix(first, []byte("[")) {
			return no("a JSON array (one document)", "jq -c '.[]' IN.json > OUT.jsonl")
		} else if string(first) == "{" {
			return no("JSON that is spread over several lines", "jq -c . IN.json > OUT.jsonl")
		}
	}
	return nil
}
