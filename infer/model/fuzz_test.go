package model

import "testing"

// FuzzConfig: a config.json from a stranger gives numbers within the limits, or an error.
func FuzzConfig(f *testing.F) {
	for _, name := range goldenModels {
		s := folder(f, name)
		f.Add(s.ConfigJSON, s.GenerationConfigJSON)
	}
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"hidden_size":1e9,"eos_token_id":[1,2,null]}`), []byte("null"))
	f.Add([]byte(`{"model_type":"llama","rope_scaling":{"type":"yarn","factor":-1}}`), []byte(`{"eos_token_id":"x"}`))
	f.Fuzz(func(t *testing.T, config, generation []byte) {
		h, err := fromHF(config, generation)
		if err != nil {
			return
		}
		if err := h.check(); err != nil {
			t.Fatal(err)
		}
		if h.heads*h.headDim > maxWidth || h.layers > maxLayers {
			t.Fatalf("the description is %+v", h)
		}
		for i := range min(h.layers, 5) {
			if h.window > 0 {
				h.windowed(i)
			}
		}
		if h.rope.dim > 1024 {
			return // only slow
		}
		if _, err := h.rope.table(nil); err != nil {
			t.Fatal(err)
		}
	})
}
