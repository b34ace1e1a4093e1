package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const openVINO = "OpenVINO GenAI"

// ovSettings are most tokens of a step and properties: OpenVINO's own choice, which on processors with AMX computes in
// bfloat16, its dynamic int8 activations in groups of 32, and both in larger steps.
var ovSettings = []string{
	"512", "2048",
	"512 DYNAMIC_QUANTIZATION_GROUP_SIZE=32", "512 DYNAMIC_QUANTIZATION_GROUP_SIZE=32 INFERENCE_PRECISION_HINT=f32",
	"256 DYNAMIC_QUANTIZATION_GROUP_SIZE=32 INFERENCE_PRECISION_HINT=f32",
}

// openVINO runs a workload on OpenVINO GenAI with int8 weights.
func (s *session) openVINO(ctx context.Context, r *result, measure, name string, p *prompts, share, ahead bool) {
	if s.openvino == nil {
		return
	}
	type job struct {
		Name    string  `json:"name"`
		Prompts [][]int `json:"prompts"`
		Tokens  int     `json:"output_tokens"`
		Share   bool    `json:"share"`
		Ahead   bool    `json:"ahead"`
	}
	w := job{Name: name, Tokens: p.Tokens, Share: share, Ahead: ahead}
	for _, row := range p.Rows {
		w.Prompts = append(w.Prompts, row.IDs)
	}
	data, err := json.Marshal([]job{w})
	file := filepath.Join(s.workDir, name+".openvino.json")
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		r.fails(openVINO, err)
		return
	}
	settings := ovSettings
	if s.tiny {
		settings = settings[:1]
	}
	for _, set := range r.settings(measure, openVINO, settings) {
		fields := strings.Fields(set)
		args := append([]string{s.openvino["run"], s.openvino["model"], file, strconv.Itoa(s.threads), fields[0]}, fields[1:]...)
		out, err := output(ctx, s.openvino["python"], args...)
		if err == nil {
			err = eachLine(out, func(line []byte) error {
				var got struct {
					Wall   float64 `json:"wall_s"`
					Tokens int     `json:"output_tokens"`
				}
				if err := json.Unmarshal(line, &got); err != nil {
					return err
				}
				if want := len(p.Rows) * p.Tokens; got.Tokens != want {
					return fmt.Errorf("%d tokens came back, %d were asked for", got.Tokens, want)
				}
				r.add(entry{Measure: measure, Engine: openVINO, Setting: set, Value: got.Wall, Unit: "s"})
				return nil
			})
		}
		if err != nil {
			r.fails(openVINO+" "+set, err)
		}
	}
}

// perplexityLine is how llama-perplexity ends.
var perplexityLine = regexp.MustCompile(`Final estimate: PPL = ([0-9.]+)`)

// perplexity is llama.cpp's over the text that bench/quality uses, in windows of 512 tokens of which the later half counts.
func (s *session) perplexity(ctx context.Context, file string) (float64, error) {
	data, err := os.ReadFile("infer/model/testdata/smollm2/perplexity.json")
	if err != nil {
		return 0, err
	}
	var sample struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &sample); err != nil {
		return 0, err
	}
	text := filepath.Join(s.workDir, "perplexity.txt")
	if err := os.WriteFile(text, []byte(sample.Text), 0o644); err != nil {
		return 0, err
	}
	out, err := command(ctx, filepath.Join(s.llama[s.builds[len(s.builds)-1]], "llama-perplexity"), "-m", file, "-f", text, "-c", "512", "-b", "512", "-t", strconv.Itoa(s.threads))
	if err != nil {
		return 0, err
	}
	m := perplexityLine.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("llama-perplexity printed no estimate: %s", tail(out))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
