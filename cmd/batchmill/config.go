package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/urfave/cli/v2"

	"github.com/batchmill/batchmill/jobs"
)

// yamlKeys is the place of every flag in a job file. A flag that is missing here cannot stand in one.
var yamlKeys = map[string]string{
	"model": "model", "seed": "seed",
	"input.urls": "input", "input.format": "input-format", "input.columns": "columns", "input.limit": "limit",
	"input.prompt_column": "prompt-column", "input.messages_column": "messages-column", "input.token_ids_column": "token-ids-column",
	"input.id_column": "id-column", "input.tenant_column": "tenant-column", "input.split_bytes": "split-bytes", "input.max_line_bytes": "max-line-bytes",
	"output.url": "output", "output.format": "format", "output.prefix": "output-prefix", "output.columns": "output-columns",
	"prompt.user": "prompt", "prompt.file": "prompt-file", "prompt.system": "system", "prompt.raw": "raw",
	"prompt.chat_template": "chat-template", "prompt.chat_template_kwargs": "chat-template-kwargs", "prompt.template_date": "template-date",
	"sampling.max_tokens": "max-tokens", "sampling.temperature": "temperature", "sampling.top_p": "top-p", "sampling.top_k": "top-k",
	"sampling.min_p": "min-p", "sampling.repetition_penalty": "repetition-penalty", "sampling.presence_penalty": "presence-penalty",
	"sampling.frequency_penalty": "frequency-penalty", "sampling.seed": "seed", "sampling.stop": "stop", "sampling.n": "samples",
	"sampling.ignore_eos": "ignore-eos", "sampling.logprobs": "logprobs", "sampling.return_token_ids": "return-token-ids",
	"engine.device": "device", "engine.activations": "activations", "engine.isa": "isa", "engine.threads": "threads", "engine.batch_tokens": "batch-tokens",
	"engine.max_seqs": "max-seqs", "engine.max_model_len": "max-model-len", "engine.window_rows": "window-rows", "engine.open_shards": "open-shards",
	"output.journal_units": "journal-units", "output.journal_every": "journal-every",
	"engine.no_dedup": "no-dedup", "engine.no_prefix_sharing": "no-prefix-sharing", "engine.no_speculation": "no-speculation",
	"limits.kv_memory":   "kv-memory",
	"report.strict_exit": "strict-exit", "report.progress": "progress", "report.json": "json",
	"report.heartbeat": "heartbeat", "limits.max_error_rate": "max-error-rate", "limits.min_rows": "min-rows", "limits.row_timeout": "row-timeout",
	"limits.stall_timeout": "stall-timeout", "limits.grace": "grace",
	"report.skip_exit": "skip-exit", "output.no_lock": "no-lock",
}

// maxConfig bounds a job file: it is written by hand.
const maxConfig = 1 << 20

// applyConfig sets the flags that a job file gives and that neither the command line nor the environment has set.
func applyConfig(c *cli.Context) error {
	name := c.String("config")
	if name == "" {
		return nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return jobs.Errorf(jobs.NoInput, "", "--config: %w", err)
	}
	if info.Size() > maxConfig {
		return jobs.Errorf(jobs.Config, "", "--config: %s has %d bytes, more than %d", name, info.Size(), maxConfig)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return jobs.Errorf(jobs.NoInput, "", "--config: %w", err)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return jobs.Errorf(jobs.Config, "", "--config %s: %w", name, err)
	}
	docs := slices.DeleteFunc(file.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) == 0 {
		return nil
	}
	if len(docs) > 1 {
		return jobs.Errorf(jobs.Config, "write one document", "--config %s holds %d documents", name, len(docs))
	}
	a := configApplier{c: c, file: name, given: map[string]bool{}, places: map[string]string{}}
	c.App.Metadata[placesKey] = a.places
	for _, f := range c.Command.Flags {
		a.given[f.Names()[0]] = c.IsSet(f.Names()[0])
	}
	return a.walk("", docs[0].Body)
}

type configApplier struct {
	c     *cli.Context
	file  string
	given map[string]bool // flags that the command line or the environment set: they win

	places map[string]string // where in the file the values of flags stand
}

func (a *configApplier) walk(prefix string, n ast.Node) error {
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		return a.fail(n, "", "expected keys and values, found %s", n.Type())
	}
	for _, p := range pairs {
		key := prefix + keyText(p.Key)
		if flag, ok := yamlKeys[key]; ok {
			if err := a.set(key, flag, p.Value); err != nil {
				return err
			}
			continue
		}
		if !isSection(key) {
			return a.fail(p.Key, closestKey(key), "unknown key %q", key)
		}
		if err := a.walk(key+".", p.Value); err != nil {
			return err
		}
	}
	return nil
}

// keyText is a key without its quotes.
func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	return k.String()
}

func (a *configApplier) set(key, flag string, v ast.Node) error {
	if a.given[flag] {
		return nil
	}
	var values []string
	switch v := v.(type) {
	case *ast.SequenceNode:
		for _, item := range v.Values {
			s, err := a.scalar(key, item)
			if err != nil {
				return err
			}
			values = append(values, s)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		if flag != "chat-template-kwargs" {
			return a.fail(v, "", "%q takes a value, not a group of keys", key)
		}
		var m map[string]any
		if err := yaml.NodeToValue(v, &m); err != nil {
			return a.fail(v, "", "%q: %v", key, err)
		}
		data, err := json.Marshal(m)
		if err != nil {
			return a.fail(v, "", "%q: %v", key, err)
		}
		values = []string{string(data)}
	default:
		s, err := a.scalar(key, v)
		if err != nil {
			return err
		}
		values = []string{s}
	}
	if len(values) != 1 && !a.isList(flag) {
		return a.fail(v, "", "%q takes one value, not %d", key, len(values))
	}
	a.places[flag] = a.place(v)
	for _, s := range values {
		if err := a.c.Set(flag, s); err != nil {
			return a.fail(v, "", "%q: %q is not %s", key, s, wanted(a.flag(flag)))
		}
	}
	return nil
}

func (a *configApplier) isList(flag string) bool {
	_, is := a.flag(flag).(*cli.StringSliceFlag)
	return is
}

// flag finds a flag of the command; nil if it has none of that name.
func (a *configApplier) flag(name string) cli.Flag {
	for _, f := range a.c.Command.Flags {
		if f.Names()[0] == name {
			return f
		}
	}
	return nil
}

// scalar is a value as it was written: numbers keep their text, so that 010 stays ten and 1.5 is no integer.
func (a *configApplier) scalar(key string, n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode:
		return decimal(n.GetToken().Value), nil
	case *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", a.fail(n, "quote it if it is text", "%q takes a value, not %s", key, n.Type())
}

// decimal drops leading zeros, which flags would take for a sign of octal.
func decimal(s string) string {
	digits := strings.TrimLeft(s, "0")
	if digits == "" || strings.Trim(s, "0123456789") != "" {
		return s
	}
	return digits
}

func (a *configApplier) fail(n ast.Node, hint, format string, args ...any) error {
	return jobs.Errorf(jobs.Config, hint, "%s: %s", a.place(n), fmt.Sprintf(format, args...))
}

func (a *configApplier) place(n ast.Node) string {
	pos := n.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", a.file, pos.Line, pos.Column)
}

// isSection tells whether a key is the first half of a known one.
func isSection(key string) bool {
	for k := range yamlKeys {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return false
}

// closestKey suggests a known key.
func closestKey(key string) string {
	known := make([]string, 0, len(yamlKeys))
	for k := range yamlKeys {
		known = append(known, k)
	}
	slices.Sort(known)
	if s := jobs.Closest(key, known); s != "" {
		return fmt.Sprintf("did you mean %q?", s)
	}
	return ""
}
