package model

import (
	"encoding/json"
	"errors"
	"fmt"
)

// hfConfig is the part of config.json that is read. Pointers tell absent and null from zero.
type hfConfig struct {
	Architectures    []string        `json:"architectures"`
	ModelType        string          `json:"model_type"`
	HiddenSize       int             `json:"hidden_size"`
	IntermediateSize int             `json:"intermediate_size"`
	Layers           int             `json:"num_hidden_layers"`
	Heads            int             `json:"num_attention_heads"`
	KVHeads          *int            `json:"num_key_value_heads"`
	HeadDim          *int            `json:"head_dim"`
	VocabSize        int             `json:"vocab_size"`
	MaxPositions     int             `json:"max_position_embeddings"`
	NormEps          *float64        `json:"rms_norm_eps"`
	HiddenAct        string          `json:"hidden_act"`
	Tied             *bool           `json:"tie_word_embeddings"`
	AttentionBias    bool            `json:"attention_bias"`
	MLPBias          bool            `json:"mlp_bias"`
	PartialRotary    *float64        `json:"partial_rotary_factor"`
	RopeTheta        *float64        `json:"rope_theta"`
	RopeScaling      *hfRope         `json:"rope_scaling"`
	RopeParameters   *hfRope         `json:"rope_parameters"`
	SlidingWindow    *int            `json:"sliding_window"`
	UseSlidingWindow *bool           `json:"use_sliding_window"`
	MaxWindowLayers  *int            `json:"max_window_layers"`
	LayerTypes       []string        `json:"layer_types"`
	BOS              *int32          `json:"bos_token_id"`
	EOS              tokenIDs        `json:"eos_token_id"`
	Quantization     json.RawMessage `json:"quantization_config"`
}

// hfRope is rope_scaling, or the newer rope_parameters, which holds theta too.
type hfRope struct {
	Type            string   `json:"rope_type"`
	OldType         string   `json:"type"`
	Theta           *float64 `json:"rope_theta"`
	Factor          *float64 `json:"factor"`
	LowFreqFactor   float64  `json:"low_freq_factor"`
	HighFreqFactor  float64  `json:"high_freq_factor"`
	Original        int      `json:"original_max_position_embeddings"`
	AttentionFactor *float64 `json:"attention_factor"`
	BetaFast        *float64 `json:"beta_fast"`
	BetaSlow        *float64 `json:"beta_slow"`
	MScale          float64  `json:"mscale"`
	MScaleAllDim    float64  `json:"mscale_all_dim"`
	Truncate        *bool    `json:"truncate"`
	PartialRotary   *float64 `json:"partial_rotary_factor"`
}

// tokenIDs is a token id or a list of them; null is none.
type tokenIDs []int32

func (t *tokenIDs) UnmarshalJSON(b []byte) error {
	var one int32
	if json.Unmarshal(b, &one) == nil {
		*t = nil
		if string(b) != "null" {
			*t = tokenIDs{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]int32)(t))
}

// fromHF reads config.json and generation_config.json.
func fromHF(config, generation []byte) (*hparams, error) {
	if len(config) == 0 {
		return nil, errors.New("read config.json: there is none beside the weights")
	}
	var c hfConfig
	if err := decodeConfig("config.json", config, &c); err != nil {
		return nil, err
	}
	arch, err := findHF(c.Architectures, c.ModelType)
	if err != nil {
		return nil, err
	}
	if len(c.Quantization) > 0 && string(c.Quantization) != "null" {
		var q struct {
			Method string `json:"quant_method"`
		}
		_ = json.Unmarshal(c.Quantization, &q) // the method only serves the message
		return nil, fmt.Errorf("read config.json: weights quantised by %q are not supported; use the unquantised model or a GGUF file", q.Method)
	}
	if c.HiddenAct != "" && c.HiddenAct != "silu" {
		return nil, fmt.Errorf("read config.json: activation %q is not supported for %s", c.HiddenAct, arch.name)
	}
	h := &hparams{
		arch: arch, hidden: c.HiddenSize, intermediate: c.IntermediateSize, layers: c.Layers, heads: c.Heads, kvHeads: c.Heads,
		vocab: c.VocabSize, positions: c.MaxPositions, eps: 1e-6, attentionBias: c.AttentionBias, mlpBias: c.MLPBias, bos: -1,
	}
	if c.KVHeads != nil {
		h.kvHeads = *c.KVHeads
	}
	if c.HeadDim != nil {
		h.headDim = *c.HeadDim
	} else if h.heads > 0 {
		h.headDim = h.hidden / h.heads
	}
	if c.NormEps != nil {
		h.eps = *c.NormEps
	}
	h.tied = arch.tied
	if c.Tied != nil {
		h.tied = *c.Tied
	}
	c.setWindow(h)
	if err := c.setRope(h); err != nil {
		return nil, err
	}
	if c.BOS != nil {
		h.bos = *c.BOS
	}
	h.addEOS(c.EOS...)
	if len(generation) > 0 {
		var g struct {
			EOS tokenIDs `json:"eos_token_id"`
		}
		if err := decodeConfig("generation_config.json", generation, &g); err != nil {
			return nil, err
		}
		h.addEOS(g.EOS...)
	}
	return h, h.check()
}

// setWindow finds which layers see a sliding window: none where use_sliding_window is false (for Qwen also where it is
// absent); those that layer_types names; else the layers from max_window_layers on (Qwen); else all (Mistral).
func (c *hfConfig) setWindow(h *hparams) {
	use := !h.arch.windowOptional
	if c.UseSlidingWindow != nil {
		use = *c.UseSlidingWindow
	}
	if c.SlidingWindow == nil || !use {
		return
	}
	h.window = *c.SlidingWindow
	from := 0
	if c.UseSlidingWindow != nil && c.MaxWindowLayers != nil {
		from = *c.MaxWindowLayers
	}
	h.windowed = func(i int) bool { return i >= from }
	if len(c.LayerTypes) > 0 {
		h.windowed = func(i int) bool { return i < len(c.LayerTypes) && c.LayerTypes[i] == "sliding_attention" }
	}
}

// setRope reads either layout of the rotary embedding's parameters.
func (c *hfConfig) setRope(h *hparams) error {
	r := &h.rope
	r.theta = defaultTheta
	partial := c.PartialRotary
	s := c.RopeScaling
	if c.RopeParameters != nil {
		s = c.RopeParameters
	}
	if c.RopeTheta != nil {
		r.theta = *c.RopeTheta
	}
	if s != nil {
		if s.Theta != nil {
			r.theta = *s.Theta
		}
		if s.PartialRotary != nil {
			partial = s.PartialRotary
		}
		r.kind = s.Type
		if r.kind == "" {
			r.kind = s.OldType
		}
		r.lowFreq, r.highFreq, r.original = s.LowFreqFactor, s.HighFreqFactor, s.Original
		r.attention, r.betaFast, r.betaSlow = s.AttentionFactor, s.BetaFast, s.BetaSlow
		r.mscale, r.mscaleAllDim = s.MScale, s.MScaleAllDim
		r.exactRange = s.Truncate != nil && !*s.Truncate
		if r.original == 0 {
			r.original = h.positions
		}
		switch {
		case s.Factor != nil:
			r.factor = *s.Factor
		case r.original > 0:
			r.factor = float64(h.positions) / float64(r.original)
		}
	}
	r.dim = h.headDim
	if partial != nil {
		r.dim = int(*partial * float64(h.headDim))
	}
	return r.check()
}
