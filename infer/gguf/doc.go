// Package gguf reads GGUF weight files, versions 2 and 3, whole or split, from memory-mapped files or by range from
// object storage. A file is never trusted: every count, length, offset and overlap is checked against the file's size
// before anything is allocated, and what is wrong is reported as a *quant.FileError that names tensor and byte offset.
//
//	f, err := gguf.OpenPath(ctx, "model.gguf")
//	if err != nil { ... }
//	defer f.Close()
//	arch, _ := f.String("general.architecture")
//	data, release, err := f.Data(ctx, "token_embd.weight")
//
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
package gguf
