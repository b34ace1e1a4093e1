package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Sizes of the parts. decodePast is the prompt of each sequence that decodes.
const (
	promptTokens = 512
	decodePast   = 128
	decodeTokens = 32
	longPrompt   = 8191
	tinyPrompt   = 64
	tinyRows     = 6
)

// decodeSeqs are the numbers of sequences that decode at once.
var decodeSeqs = []int{1, 4, 16, 64}

func (s *session) file(t string) (string, error) {
	if f, ok := s.models[t]; ok {
		return f, nil
	}
	return "", fmt.Errorf("there is no file of type %s", t)
}

// prefill: tokens/s over prompts of 512 tokens.
func prefill(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		n, settings := promptTokens, []string{"-fa 1 -ub 512", "-fa 0 -ub 512", "-fa 1 -ub 256", "-fa 1 -ub 128"}
		if s.tiny {
			n, settings = tinyPrompt, settings[:1]
		}
		measure := "prefill, " + t
		b, _, err := s.bench(ctx, file, 1, "--parts", "prefill", "--prompt-tokens", strconv.Itoa(n))
		if err != nil {
			return err
		}
		r.add(entry{Measure: measure, Engine: ours, Value: b.Prefill.Rate, Unit: "tokens/s", Setting: b.Activations})
		s.llamaBench(ctx, r, measure, file, n, settings)
		return ctx.Err()
	}
}

// decode: tokens/s of several sequences, all that they generate.
func decode(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		seqs, past, tokens := decodeSeqs, decodePast, decodeTokens
		if s.tiny {
			seqs, past, tokens = []int{1, 2}, 32, 8
		}
		list := ""
		for _, n := range seqs {
			list += "," + strconv.Itoa(n)
		}
		b, _, err := s.bench(ctx, file, 1, "--parts", "decode", "--seqs", list[1:], "--decode-past", strconv.Itoa(past), "--decode-tokens", strconv.Itoa(tokens))
		if err != nil {
			return err
		}
		for _, d := range b.Decode {
			r.add(entry{Measure: decodeMeasure(d.Seqs, t), Engine: ours, Value: d.Rate, Unit: "tokens/s", Setting: b.Activations})
		}
		s.batchedBench(ctx, r, t, file, seqs, past, tokens)
		return ctx.Err()
	}
}

// long: tokens/s over one prompt of 8,191 tokens.
func long(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		n, short := longPrompt, promptTokens
		if s.tiny {
			n, short = 2*tinyPrompt, tinyPrompt
		}
		b, _, err := s.bench(ctx, file, 1, "--parts", "long", "--long-tokens", strconv.Itoa(n), "--prompt-tokens", strconv.Itoa(short))
		if err != nil {
			return err
		}
		at := func(n int) string { return fmt.Sprintf("prefill of %d tokens, %s", n, t) }
		r.add(entry{Measure: at(short), Engine: ours, Value: b.Long.ShortRate, Unit: "tokens/s", Setting: b.Activations})
		r.add(entry{Measure: at(n), Engine: ours, Value: b.Long.Rate, Unit: "tokens/s", Setting: b.Activations})
		for _, n := range []int{short, n} {
			s.llamaBench(ctx, r, at(n), file, n, []string{"-fa 1 -ub 512"})
		}
		return ctx.Err()
	}
}

// prefixes: the same rows with shared prefixes and without.
func prefixes(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		rows := s.prefixRows
		if s.tiny {
			rows = tinyRows
		}
		_, raw, err := s.bench(ctx, file, 1, "--parts", "prefix", "--prefix-rows", strconv.Itoa(rows), "--prefix-tokens", "400", "--own-tokens", "100")
		if err != nil {
			return err
		}
		r.Raw = append(r.Raw, raw)
		return nil
	}
}

// benchTable: everything that `batchmill bench` measures, in one run with repeats of its own.
func benchTable(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		if r.round > 0 {
			return nil // it repeats by itself
		}
		file, err := s.file(t)
		if err != nil {
			return err
		}
		args := []string{"--parts", "ceilings,prefill,decode,long,jobs", "--size", fmt.Sprint(s.size)}
		if s.tiny {
			args = []string{"--parts", "ceilings,prefill,decode,jobs", "--prompt-tokens", "32", "--decode-tokens", "8", "--decode-past", "8", "--seqs", "1,2", "--size", "0.01", "--profiles", "chat"}
		}
		_, raw, err := s.bench(ctx, file, s.rounds, args...)
		if err != nil {
			return err
		}
		r.Raw = []json.RawMessage{raw}
		return nil
	}
}

// quality: perplexity and divergence of each mode, over all files.
func quality(ctx context.Context, s *session, r *result) error {
	if r.round > 0 {
		return nil // nothing is timed
	}
	args := []string{"run", "./bench/quality"}
	if s.tiny {
		args = append(args, "-limit", "40")
	}
	for _, t := range split(s.types) {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		args = append(args, file)
	}
	out, err := output(ctx, "go", args...)
	if err != nil {
		return err
	}
	if r.Raw, err = jsonLines(out); err != nil {
		return err
	}
	if s.tiny {
		return nil
	}
	// llama.cpp over the same text, by windows: its own arithmetic, with activations in 8 bits.
	for _, t := range split(s.types) {
		p, err := s.perplexity(ctx, s.models[t])
		if err != nil {
			r.fails("llama-perplexity "+t, err)
			continue
		}
		r.add(entry{Measure: "perplexity, " + t, Engine: "llama.cpp", Value: p, Unit: "perplexity"})
	}
	return ctx.Err()
}

// workload: W1 to W3, token ids in, on all three engines. W3s is W3 with the first row ahead of the others, which helps
// engines that share prefixes only once they are computed; for batchmill it is W3.
func workload(name, t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		base, ahead := name[:2], len(name) > 2
		p, err := s.prompts(base)
		if err != nil {
			return err
		}
		if s.tiny {
			p = p.first(tinyRows)
			p.Tokens = min(p.Tokens, 4)
		}
		measure := name + ", " + t
		m, err := s.job(ctx, file, filepath.Join(s.workDir, base+".jsonl"), len(p.Rows), p.Tokens, "--token-ids-column", "ids")
		if err != nil {
			return err
		}
		r.add(entry{Measure: measure, Engine: ours, Value: m.seconds(), Unit: "s", Note: fmt.Sprintf("engine %.2f s, %d of %d prompt tokens cached", m.Time.Engine, m.Tokens.Cached, m.Tokens.Prompt)})
		s.openVINO(ctx, r, measure, name, p, base == "W3", ahead)
		if base == "W2" {
			return ctx.Err() // one token a row: llama-bench measures the same better
		}
		s.llamaServer(ctx, r, measure, file, p, ahead)
		return ctx.Err()
	}
}

// wholeJob: texts of mixed lengths in JSONL to completions in Parquet, against llama-server with the same texts.
func wholeJob(t string) func(context.Context, *session, *result) error {
	return func(ctx context.Context, s *session, r *result) error {
		file, err := s.file(t)
		if err != nil {
			return err
		}
		p, err := s.prompts("job")
		if err != nil {
			return err
		}
		p = p.first(s.jobRows)
		if s.tiny {
			p = p.first(tinyRows)
			p.Tokens = 4
		}
		measure := fmt.Sprintf("job of %d rows, %s", len(p.Rows), t)
		m, err := s.job(ctx, file, filepath.Join(s.workDir, "job.jsonl"), len(p.Rows), p.Tokens, "--raw")
		if err != nil {
			return err
		}
		r.add(entry{Measure: measure, Engine: ours, Value: m.seconds(), Unit: "s", Note: fmt.Sprintf("engine %.1f s, %d prompt and %d completion tokens", m.Time.Engine, m.Tokens.Prompt, m.Tokens.Completion)})
		s.llamaServer(ctx, r, measure, file, p, false)
		return ctx.Err()
	}
}

// llamaServer runs a workload on llama-server. In the first round a part of the rows finds the fastest build, and then the
// best number of slots with it; all rows run with these.
func (s *session) llamaServer(ctx context.Context, r *result, measure, file string, p *prompts, ahead bool) {
	length := p.Tokens + 32
	for _, row := range p.Rows {
		length = max(length, len(row.IDs)+p.Tokens+32, len(row.Prompt)/3+p.Tokens+32) // a token of these texts is more than 3 bytes
	}
	once := func(setting string, p *prompts) (served, error) {
		var build string
		var slots int
		if _, err := fmt.Sscanf(setting, "%s -np %d", &build, &slots); err != nil {
			return served{}, fmt.Errorf("setting %q: %w", setting, err)
		}
		return s.server(ctx, build, file, slots, length, p, ahead)
	}
	probe := p.first(s.probeRows)
	var best entry
	if e, ok := r.best(measure, llamaServer); ok {
		best = e
	}
	try := func(setting string) {
		for _, e := range r.Entries {
			if e.Measure == measure+probed && e.Setting == setting {
				return
			}
		}
		got, err := once(setting, probe)
		if err != nil {
			r.fails(llamaServer+" "+setting, err)
			return
		}
		e := entry{Measure: measure + probed, Engine: llamaServer, Setting: setting, Value: got.wall, Unit: "s", Note: fmt.Sprintf("%d rows", len(probe.Rows))}
		r.add(e)
		if best.Setting == "" || better(e, best) {
			best = e
		}
	}
	if slots := split(s.slots); r.round == 0 {
		for _, build := range s.builds {
			try(build + " -np " + slots[len(slots)/2])
		}
		build, _, _ := strings.Cut(best.Setting, " ")
		for _, n := range slots {
			if build != "" {
				try(build + " -np " + n)
			}
		}
	}
	if best.Setting == "" {
		return
	}
	got, err := once(best.Setting, p)
	if err != nil {
		r.fails(llamaServer+" "+best.Setting, err)
		return
	}
	r.add(entry{Measure: measure, Engine: llamaServer, Setting: best.Setting, Value: got.wall, Unit: "s", Note: fmt.Sprintf("%d prompt and %d completion tokens", got.prompt, got.completion)})
}

// llamaServer is the engine's name in tables; probed marks measures of a part of the rows, which are in none.
const (
	llamaServer = "llama-server"
	probed      = ", probe"
)

// command runs a program and returns all that it printed.
func command(ctx context.Context, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, tail(out))
	}
	return out, nil
}
