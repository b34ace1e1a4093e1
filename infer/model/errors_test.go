package model

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// edit replaces a piece of config.json.
func edit(s Source, old, repl string) Source {
	if !strings.Contains(string(s.ConfigJSON), old) {
		panic("config.json does not hold " + old)
	}
	s.ConfigJSON = []byte(strings.Replace(string(s.ConfigJSON), old, repl, 1))
	return s
}

func TestLoadRefuses(t *testing.T) {
	dev := newDevice(t, cpu.Config{})
	base := folder(t, "llama")
	with := func(f func(memory)) Source {
		m := copyOf(t, base)
		f(m)
		return Source{Weights: m, ConfigJSON: base.ConfigJSON, GenerationConfigJSON: base.GenerationConfigJSON}
	}
	const down1 = "model.layers.1.mlp.down_proj.weight"
	for _, c := range []struct {
		name string
		src  Source
		want string // part of the message
	}{
		{"missing tensor", with(func(m memory) { delete(m, down1) }), "tensor " + down1 + ": it is missing"},
		{"wrong shape", with(func(m memory) { m.add(down1, quant.F32, []int{96, 64}, m[down1].data) }), "tensor " + down1 + ": its shape is [96 64], want [64 96]"},
		{"short data", with(func(m memory) { m.add(down1, quant.F32, []int{64, 96}, m[down1].data[:100]) }), down1},
		{"tensor without use", with(func(m memory) { m.add("model.layers.0.self_attn.q_proj.bias", quant.F32, []int{64}, make([]byte, 256)) }), "no use for tensors model.layers.0.self_attn.q_proj.bias"},
		{"unknown architecture", edit(base, "LlamaForCausalLM", "MambaForCausalLM"), "architecture MambaForCausalLM is not supported; supported are llama, mistral"},
		{"no known model type", edit(edit(base, `"architectures"`, `"other"`), `"model_type": "llama"`, `"model_type": "mamba"`), "of model_type mamba is not supported"},
		{"no architecture", edit(edit(base, `"architectures"`, `"other"`), `"model_type"`, `"type"`), "neither architectures nor model_type"},
		{"text for a number", edit(base, `"use_cache"`, `"rope_theta": "x", "use_cache"`), "read config.json: rope_theta is text where a number is expected"},
		{"fraction", edit(base, `"num_hidden_layers": 3`, `"num_hidden_layers": 3.5`), "num_hidden_layers is 3.5 where a whole number is expected"},
		{"nested", edit(base, `"use_cache"`, `"rope_scaling": {"factor": [2]}, "use_cache"`), "rope_scaling.factor is a list where a number is expected"},
		{"list for an object", edit(base, `"use_cache"`, `"rope_scaling": [], "use_cache"`), "rope_scaling is a list where an object is expected"},
		{"flag", edit(base, `"tie_word_embeddings": true`, `"tie_word_embeddings": 1`), "tie_word_embeddings is a number where true or false is expected"},
		{"end token", edit(base, `"use_cache"`, `"eos_token_id": ["</s>"], "use_cache"`), "eos_token_id is text where a whole number is expected"},
		{"text for layers", edit(base, `"use_cache"`, `"layer_types": "all", "use_cache"`), "layer_types is text where a list is expected"},
		{"no object", Source{Weights: base.Weights, ConfigJSON: []byte("[]")}, "its content is a list where an object is expected"},
		{"cut off", Source{Weights: base.Weights, ConfigJSON: base.ConfigJSON[:40]}, "it ends too early, after 40 bytes"},
		{"generation config", Source{Weights: base.Weights, ConfigJSON: base.ConfigJSON, GenerationConfigJSON: []byte(`{"eos_token_id": "x"}`)}, "read generation_config.json: eos_token_id is text where"},
		{"no config", Source{Weights: base.Weights}, "config.json"},
		{"broken config", edit(base, "{", "[{"), "read config.json"},
		{"quantised", edit(base, `"use_cache"`, `"quantization_config": {"quant_method": "gptq"}, "use_cache"`), `"gptq"`},
		{"activation", edit(base, `"silu"`, `"gelu"`), `activation "gelu"`},
		{"rope scaling", edit(base, `"use_cache"`, `"rope_scaling": {"type": "dynamic", "factor": 2}, "use_cache"`), `rope scaling "dynamic"`},
		{"heads", edit(base, `"num_key_value_heads": 2`, `"num_key_value_heads": 3`), "do not share 3 KV heads"},
		{"zero layers", edit(base, `"num_hidden_layers": 3`, `"num_hidden_layers": 0`), "layers is 0"},
		{"huge layers", edit(base, `"num_hidden_layers": 3`, `"num_hidden_layers": 2000000000`), "layers is 2000000000"},
		{"odd rope", edit(base, `"use_cache"`, `"partial_rotary_factor": 0.2, "use_cache"`), "rotary embedding of 3"},
		{"untied without head", edit(base, `"tie_word_embeddings": true`, `"tie_word_embeddings": false`), "tensor lm_head.weight: it is missing"},
		{"GGUF architecture", Source{Weights: base.Weights, Metadata: metadata{"general.architecture": "mamba"}}, "architecture mamba is not supported"},
		{"GGUF without keys", Source{Weights: base.Weights, Metadata: metadata{"general.architecture": "llama"}}, "llama.embedding_length is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, err := Load(t.Context(), c.src, dev, Options{})
			if err == nil {
				m.Close()
				t.Fatal("it was loaded")
			}
			if msg := err.Error(); strings.Contains(msg, "Go ") || strings.Contains(msg, "hfConfig") {
				t.Errorf("the message speaks of this program's insides: %q", msg)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("the message is %q, want %q in it", err, c.want)
			}
		})
	}
}

func TestErrorTypes(t *testing.T) {
	dev := newDevice(t, cpu.Config{})
	base := folder(t, "llama")
	_, err := Load(t.Context(), base, dev, Options{WeightMemory: 1000})
	if e := (*MemoryError)(nil); !errors.As(err, &e) || e.Available != 1000 || e.Needed < 100000 {
		t.Errorf("too little memory gives %v", err)
	}
	_, err = Load(t.Context(), edit(base, "LlamaFor", "OtherFor"), dev, Options{})
	if e := (*UnsupportedError)(nil); !errors.As(err, &e) || e.Architecture != "OtherForCausalLM" {
		t.Errorf("an unknown architecture gives %v", err)
	}
	m := copyOf(t, base)
	delete(m, "model.norm.weight")
	_, err = Load(t.Context(), Source{Weights: m, ConfigJSON: base.ConfigJSON}, dev, Options{})
	if e := (*TensorError)(nil); !errors.As(err, &e) || e.Name != "model.norm.weight" || !errors.Is(err, ErrMissingTensor) {
		t.Errorf("a missing tensor gives %v", err)
	}
}

func TestForwardRefuses(t *testing.T) {
	m := load(t, folder(t, "llama"), newDevice(t, cpu.Config{}), Options{})
	c, err := m.NewCache(2)
	if err != nil {
		t.Fatal(err)
	}
	row := func() [][]float32 { return [][]float32{make([]float32, m.Config().VocabSize)} }
	good := func() *device.Batch {
		return &device.Batch{Tokens: []int32{1, 2}, Positions: []int32{0, 1}, Seqs: []device.Seq{{Len: 2, Pages: []int32{1}}}, Logits: []int32{1}}
	}
	if err := m.Forward(t.Context(), c, good(), row()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(b *device.Batch){
		"token":           func(b *device.Batch) { b.Tokens[1] = 512 },
		"negative token":  func(b *device.Batch) { b.Tokens[1] = -1 },
		"position":        func(b *device.Batch) { b.Positions[1] = 2 },
		"positions":       func(b *device.Batch) { b.Positions = b.Positions[:1] },
		"page":            func(b *device.Batch) { b.Seqs[0].Pages[0] = 2 },
		"too few pages":   func(b *device.Batch) { b.Seqs[0].Past, b.Positions = 31, []int32{31, 32} },
		"span":            func(b *device.Batch) { b.Seqs[0].Len = 1 },
		"logits":          func(b *device.Batch) { b.Logits[0] = 2 },
		"beyond context":  func(b *device.Batch) { b.Seqs[0].Past, b.Positions = 511, []int32{511, 512} },
		"two rows of one": func(b *device.Batch) { b.Logits = append(b.Logits, 0) },
	} {
		b := good()
		spoil(b)
		if err := m.Forward(t.Context(), c, b, row()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := m.Forward(t.Context(), c, good(), [][]float32{make([]float32, 10)}); err == nil {
		t.Error("short logits: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Forward(ctx, c, good(), row()); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled step gives %v", err)
	}
}

func TestNonFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, c := range []struct {
		row  []float32
		want bool
	}{
		{nil, false}, {[]float32{1, -2, math.MaxFloat32, math.MaxFloat32}, false}, {[]float32{0, nan, 1}, true}, {[]float32{inf}, true},
		{[]float32{-inf, inf}, true},
	} {
		if got := NonFinite(c.row); got != c.want {
			t.Errorf("%v: %v", c.row, got)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	m := load(t, folder(t, "llama"), newDevice(t, cpu.Config{Threads: 2}), Options{})
	c, err := m.NewCache(8)
	if err != nil {
		t.Fatal(err)
	}
	b := &device.Batch{Tokens: []int32{5, 6}, Positions: []int32{40, 0}, Logits: []int32{0, 1},
		Seqs: []device.Seq{{Len: 1, Past: 40, Pages: []int32{3, 4}}, {Start: 1, Len: 1, Pages: []int32{5}}}}
	rows := [][]float32{make([]float32, 512), make([]float32, 512)}
	ctx := context.Background()
	if n := testing.AllocsPerRun(50, func() {
		if err := m.Forward(ctx, c, b, rows); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a step allocates %g times", n)
	}
}

// TestModelTypeAlone: a config.json that names no classes is known by its model_type.
func TestModelTypeAlone(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range goldenModels {
		s := folder(t, name)
		full, err := fromHF(s.ConfigJSON, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, without := range []Source{edit(s, `"architectures"`, `"other"`), edit(s, `"architectures": [`, `"architectures": [], "other": [`)} {
			h, err := fromHF(without.ConfigJSON, nil)
			if err != nil || h.arch != full.arch {
				t.Errorf("%s: %v", name, err)
			}
		}
		seen[full.arch.name] = true
	}
	if len(seen) != len(architectures) {
		t.Errorf("only %v were checked", seen)
	}
}
