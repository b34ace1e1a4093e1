package infer

import (
	"math"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
)

func TestParamsCheck(t *testing.T) {
	if p := DefaultParams(); p.check() != nil {
		t.Fatalf("defaults refused: %v", p.check())
	}
	for name, change := range map[string]func(*Params){
		"max_tokens":          func(p *Params) { p.MaxTokens = -1 },
		"temperature":         func(p *Params) { p.Temperature = math.NaN() },
		"temperature ":        func(p *Params) { p.Temperature = -0.1 },
		"temperature is":      func(p *Params) { p.Temperature = 1e-9 },
		"top_p":               func(p *Params) { p.TopP = -0.5 },
		"top_p ":              func(p *Params) { p.TopP = 1.01 },
		"top_k":               func(p *Params) { p.TopK = -1 },
		"min_p":               func(p *Params) { p.MinP = math.Inf(1) },
		"repetition_penalty":  func(p *Params) { p.RepetitionPenalty = 0 },
		"presence_penalty":    func(p *Params) { p.PresencePenalty = math.Inf(-1) },
		"frequency_penalty":   func(p *Params) { p.FrequencyPenalty = 1e9 },
		"logprobs":            func(p *Params) { p.Logprobs = 21 },
		"stop string 2":       func(p *Params) { p.Stop = []string{"a", ""} },
		"stop string 1":       func(p *Params) { p.Stop = []string{string(make([]byte, MaxStopBytes+1))} },
		"65 stop strings":     func(p *Params) { p.Stop = make([]string, 65) },
		"max_tokens is -5":    func(p *Params) { p.MaxTokens = -5 },
		"logprobs is -2":      func(p *Params) { p.Logprobs = -2 },
		"temperature is 1000": func(p *Params) { p.Temperature = 1000 },
	} {
		p := DefaultParams()
		change(&p)
		err := p.check()
		name = strings.TrimRight(name, " ")
		if err == nil || err.Code != row.InvalidParams || len(err.Message) < len(name) || err.Message[:len(name)] != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
