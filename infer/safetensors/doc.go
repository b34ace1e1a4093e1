// Package safetensors reads safetensors weight files, single or sharded by an index, from memory-mapped files or by
// range from object storage. A file is never trusted: the head's length, every shape, offset and overlap is checked
// against the file's size before anything is allocated, and what is wrong is reported as a *quant.FileError that names
// tensor and byte offset.
//
//	f, err := safetensors.OpenPath(ctx, "model.safetensors") // or model.safetensors.index.json
//	if err != nil { ... }
//	defer f.Close()
//	data, release, err := f.Data(ctx, "model.embed_tokens.weight")
//
// Format: https://github.com/huggingface/safetensors#format
package safetensors
