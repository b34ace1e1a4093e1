package model

// llama is Llama 1 to 3 and everything published in its shape: SmolLM, Yi, TinyLlama, and in GGUF also Mistral.
var llama = architecture{
	name:        "llama",
	modelType:   "llama",
	hf:          []string{"LlamaForCausalLM"},
	gguf:        []string{"llama"},
	interleaved: true,
	qkvBias:     byAttention,
	outBias:     byAttention,
	mlpBias:     byMLP,
}

// mistral differs by its sliding window only. Its GGUF files call themselves llama.
var mistral = architecture{
	name:      "mistral",
	modelType: "mistral",
	hf:        []string{"MistralForCausalLM"},
}
