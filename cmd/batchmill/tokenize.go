package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/objstore"
	"github.com/batchmill/batchmill/internal/ordered"
	"github.com/batchmill/batchmill/jobs"
)

func tokenizeCommand() *cli.Command {
	return &cli.Command{
		Name:  "tokenize",
		Usage: "turn text into token ids, or ids into text",
		Description: "Reads one JSON string a line (with --decode a JSON list of ids) and writes {\"ids\":[...],\"text\":\"...\"} a line.\n" +
			"A folder with just a tokenizer.json will do as model.",
		Flags: []cli.Flag{
			text("model", "model or tokenizer", ""),
			toggle("no-special", "add no special tokens"),
			toggle("parse-special", "recognise special tokens in the text"),
			toggle("decode", "lines are lists of ids"),
			toggle("skip-special", "with --decode: leave special tokens out of the text"),
			toggle("json", "write JSON lines (always so)"),
		},
		Action: tokenizeAction,
	}
}

func tokenizeAction(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	if c.String("model") == "" {
		return jobs.Errorf(jobs.Usage, "for example --model smollm2-135m", "no model given")
	}
	store := objstore.New(objstore.Options{})
	defer store.Close()
	tok, err := jobs.OpenTokenizer(c.Context, c.String("model"), store)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.App.Writer)
	defer out.Flush()
	in := bufio.NewReaderSize(c.App.Reader, 1<<16)
	for line := 1; ; line++ {
		data, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(data) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return jobs.Errorf(jobs.StorageIO, "", "read standard input: %w", err)
		}
		if len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		ids, text, err := tokenizeLine(c, tok, data)
		if err != nil {
			return jobs.Errorf(jobs.BadInput, "write one JSON string a line, or with --decode one list of ids", "line %d: %w", line, err)
		}
		rec, err := json.Marshal(struct {
			IDs  []int32 `json:"ids"`
			Text string  `json:"text"`
		}{ids, text})
		if err != nil {
			return err
		}
		out.Write(append(rec, '\n'))
	}
}

func tokenizeLine(c *cli.Context, tok *tokenizer.Tokenizer, line []byte) ([]int32, string, error) {
	v, err := ordered.DecodeJSON(bytes.TrimSpace(line))
	if err != nil {
		return nil, "", err
	}
	if !c.Bool("decode") {
		s, ok := v.(string)
		if !ok {
			return nil, "", fmt.Errorf("not a JSON string")
		}
		o := tokenizer.EncodeOptions{AddSpecial: !c.Bool("no-special"), ParseSpecial: c.Bool("parse-special")}
		if !o.ParseSpecial {
			o.Literal = []tokenizer.Span{}
		}
		ids, err := tok.Encode(s, o)
		if ids == nil {
			ids = []int32{}
		}
		return ids, s, err
	}
	items, ok := v.([]any)
	if !ok {
		return nil, "", fmt.Errorf("not a JSON list of ids")
	}
	ids := make([]int32, len(items))
	for i, x := range items {
		n, ok := x.(int64)
		if !ok || n < 0 || n > math.MaxInt32 {
			return nil, "", fmt.Errorf("element %d, %v, is not a token id", i, x)
		}
		ids[i] = int32(n)
	}
	return ids, tok.Decode(ids, c.Bool("skip-special")), nil
}
