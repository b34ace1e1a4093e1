package model

// qwen2 is Qwen 1.5 to 2.5, dense: biases on queries, keys and values.
var qwen2 = architecture{
	name:           "qwen2",
	modelType:      "qwen2",
	hf:             []string{"Qwen2ForCausalLM"},
	gguf:           []string{"qwen2"},
	windowOptional: true,
	qkvBias:        always,
}

// qwen3 is Qwen 3, dense: norms on queries and keys instead of biases, and heads of their own size.
var qwen3 = architecture{
	name:           "qwen3",
	modelType:      "qwen3",
	hf:             []string{"Qwen3ForCausalLM"},
	gguf:           []string{"qwen3"},
	windowOptional: true,
	qkvBias:        byAttention,
	outBias:        byAttention,
	qkNorm:         true,
}
