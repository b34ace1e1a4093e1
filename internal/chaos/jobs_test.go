package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
)

// work is a job of a chaos run: inputs, and the flags that decide its results.
type work struct {
	name   string
	files  []file
	flags  []string
	output string // what follows the output's prefix
	format string // of its parts
	weight int    // how often it is drawn, among the others
}

// file is an input of JSON lines.
type file struct {
	name string
	data []byte
	rows []rowWant
}

// rowWant says what must come of one record.
type rowWant struct {
	failed  bool
	samples int
}

// writer of one file.
type writer struct {
	buf     bytes.Buffer
	rows    []rowWant
	samples int
}

func (w *writer) ok(line string) {
	fmt.Fprintln(&w.buf, line)
	w.rows = append(w.rows, rowWant{samples: w.samples})
}

// bad is a record that cannot be used, or a request that fails: one result, whatever the number of samples.
func (w *writer) bad(line string) {
	fmt.Fprintln(&w.buf, line)
	w.rows = append(w.rows, rowWant{failed: true, samples: 1})
}

func (w *writer) file(name string) file { return file{name, w.buf.Bytes(), w.rows} }

// mixed writes n records: prompts of many lengths, repeated ones, some that fail, and numbers that a float cannot hold.
func mixed(name string, n, samples int) file {
	w := &writer{samples: samples}
	for i := range n {
		switch {
		case i%11 == 3:
			w.bad(fmt.Sprintf(`{"id": "%s-%d", "text": "no prompt here"}`, name, i))
		case i%17 == 5:
			w.bad(fmt.Sprintf(`{"id": "%s-%d", "prompt": `, name, i))
		case i%13 == 7:
			w.ok(fmt.Sprintf(`{"id": "%s-%d", "prompt": "the same words again"}`, name, i))
		default:
			w.ok(fmt.Sprintf(`{"id": "%s-%d", "prompt": "row %d %s", "big": 12345678901234567890}`, name, i, i, strings.Repeat("word ", i*7%19)))
		}
	}
	return w.file(name)
}

// fat writes records of megabytes, so that the part, and its dead letters, are multipart uploads: the client makes them
// from 16 MiB on.
func fat() file {
	const pad = 2 << 20
	w := &writer{samples: 1}
	r := rand.New(rand.NewPCG(1, 1))
	letters := make([]byte, pad)
	for i := range 18 {
		for k := range letters {
			letters[k] = 'a' + byte(r.IntN(26))
		}
		if i%2 == 0 {
			w.bad(fmt.Sprintf(`{"id": %d, "pad": "%s"}`, i, letters))
		} else {
			w.ok(fmt.Sprintf(`{"id": %d, "prompt": "row %d", "pad": "%s"}`, i, i, letters[:100]))
		}
	}
	return w.file("fat.jsonl")
}

// works are the jobs. They are small: what matters here happens between rows.
func works() []work {
	return []work{
		{name: "shards", weight: 6, output: "/", format: "jsonl",
			files: []file{mixed("a.jsonl", 33, 1), mixed("b.jsonl", 1, 1), {name: "c.jsonl"}, mixed("d.jsonl", 21, 1)},
			flags: []string{"--split-bytes", "600", "--max-tokens", "12"}},
		{name: "samples", weight: 4, output: "/", format: "parquet",
			files: []file{mixed("a.jsonl", 20, 2), mixed("b.jsonl", 9, 2)},
			flags: []string{"--split-bytes", "700", "--max-tokens", "8", "--samples", "2", "--temperature", "0.8", "--seed", "7", "--format", "parquet"}},
		{name: "single", weight: 2, output: "/out.jsonl", format: "jsonl",
			files: []file{mixed("a.jsonl", 40, 1)},
			flags: []string{"--max-tokens", "12"}},
		{name: "uploads", weight: 2, output: "/", format: "jsonl",
			files: []file{fat()},
			flags: []string{"--max-tokens", "4"}},
	}
}

// inputs is the prefix of a job's files.
func (w *work) inputs() string { return "in/" + w.name + "/" }

// args is the command line of a job with the given output prefix. What decides no result is drawn anew for every life.
func (w *work) args(p *place, prefix string, r *rand.Rand) []string {
	args := []string{"run", "--model", filepath.Join(root, tinyModel), "--input", p.url(w.inputs()), "--output", p.url(prefix + w.output),
		"--kv-memory", "16MiB", "--threads", "1", "--json", "--progress", "none"}
	if r != nil {
		args = append(args, "--open-shards", fmt.Sprint(1+r.IntN(5)), "--window-rows", fmt.Sprint(2+r.IntN(30)), "--batch-tokens", fmt.Sprint(8<<r.IntN(4)))
		if knows("journal-units") {
			args = append(args, "--journal-units", fmt.Sprint(1+r.IntN(9)))
		}
	}
	return append(args, w.flags...)
}

// pick draws a job.
func pick(works []work, r *rand.Rand) *work {
	total := 0
	for _, w := range works {
		total += w.weight
	}
	n := r.IntN(total)
	for i := range works {
		if n -= works[i].weight; n < 0 {
			return &works[i]
		}
	}
	return nil
}
