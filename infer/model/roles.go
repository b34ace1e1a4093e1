package model

import (
	"fmt"
	"strings"
)

// role is what a tensor is for.
type role int

const (
	embedding role = iota
	finalNorm
	head
	ropeFactors
	attentionNorm
	queries
	keysRole
	valuesRole
	output
	queryNorm
	keyNorm
	mlpNorm
	gate
	up
	down
	numRoles
)

// roleNames are the names without .weight or .bias; %d is the layer. An empty name: the format has no such tensor.
var roleNames = [numRoles]struct{ hf, gguf string }{
	embedding:     {"model.embed_tokens", "token_embd"},
	finalNorm:     {"model.norm", "output_norm"},
	head:          {"lm_head", "output"},
	ropeFactors:   {"", "rope_freqs"},
	attentionNorm: {"model.layers.%d.input_layernorm", "blk.%d.attn_norm"},
	queries:       {"model.layers.%d.self_attn.q_proj", "blk.%d.attn_q"},
	keysRole:      {"model.layers.%d.self_attn.k_proj", "blk.%d.attn_k"},
	valuesRole:    {"model.layers.%d.self_attn.v_proj", "blk.%d.attn_v"},
	output:        {"model.layers.%d.self_attn.o_proj", "blk.%d.attn_output"},
	queryNorm:     {"model.layers.%d.self_attn.q_norm", "blk.%d.attn_q_norm"},
	keyNorm:       {"model.layers.%d.self_attn.k_norm", "blk.%d.attn_k_norm"},
	mlpNorm:       {"model.layers.%d.post_attention_layernorm", "blk.%d.ffn_norm"},
	gate:          {"model.layers.%d.mlp.gate_proj", "blk.%d.ffn_gate"},
	up:            {"model.layers.%d.mlp.up_proj", "blk.%d.ffn_up"},
	down:          {"model.layers.%d.mlp.down_proj", "blk.%d.ffn_down"},
}

// tensorName is the name of a role's tensor in a layer; kind is "weight" or "bias".
func tensorName(gguf bool, r role, layer int, kind string) string {
	name := roleNames[r].hf
	if gguf {
		name = roleNames[r].gguf
	}
	if strings.Contains(name, "%d") {
		name = fmt.Sprintf(name, layer)
	}
	return name + "." + kind
}

// derived tells whether a tensor holds what the loader computes by itself, so that it may be left out.
func derived(name string) bool { return strings.HasSuffix(name, "rotary_emb.inv_freq") }
