// Package model loads models of known architectures and runs the one forward pass over a device.Device.
//
// Weights come from safetensors (with config.json) or GGUF (with its metadata) through Source; both are turned into the
// same hparams and the same tensor roles, and from there on the origin makes no difference. An architecture is a small
// declarative file, arch_*.go, with a line in the table of arch.go; one that is not there is refused by its name, and
// so is a file with tensors that its architecture does not use: a part left out would only show as bad text.
//
// Rotary embeddings: the forward pass pairs (i, i+d/2) as safetensors do. GGUF files of the llama family store queries
// and keys for neighbouring pairs; their rows are put back in order when they are loaded.
package model
