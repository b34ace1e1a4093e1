package model

import (
	"fmt"
	"slices"
	"strings"
)

// architecture declares a family of models. To add one: a file arch_NAME.go with its declaration and a line in the table
// below, a golden under testdata, and its name in docs.
type architecture struct {
	name string   // for people
	hf   []string // classes that config.json may name under architectures
	// modelType is config.json's model_type, which decides where it names no classes.
	modelType string
	gguf      []string // values of general.architecture
	// interleaved: GGUF files store queries and keys so that neighbours are rotated.
	interleaved bool
	// tied: the head is the embedding where config.json does not say.
	tied bool
	// windowOptional: a sliding_window in config.json counts only with use_sliding_window.
	windowOptional bool
	// biases and norms of a layer.
	qkvBias, outBias, mlpBias presence
	qkNorm                    bool // RMS norm per head on queries and keys, before the rotation
}

// presence says whether a layer's optional tensor is there.
type presence uint8

const (
	never       presence = iota // a file that has it is refused
	always                      // a file that lacks it is refused
	byAttention                 // as config.json's attention_bias says; in a GGUF file, if it is there
	byMLP                       // as config.json's mlp_bias says; in a GGUF file, if it is there
)

// architectures is everything that can be loaded.
var architectures = []*architecture{&llama, &mistral, &qwen2, &qwen3}

// findHF finds an architecture by the classes that config.json names, or without any by its model_type.
func findHF(classes []string, modelType string) (*architecture, error) {
	for _, a := range architectures {
		for _, c := range classes {
			if slices.Contains(a.hf, c) {
				return a, nil
			}
		}
	}
	switch {
	case len(classes) > 0:
		return nil, unsupported(strings.Join(classes, ", "))
	case modelType == "":
		return nil, unsupported("none (config.json has neither architectures nor model_type)")
	}
	for _, a := range architectures {
		if a.modelType == modelType {
			return a, nil
		}
	}
	return nil, unsupported("of model_type " + modelType)
}

// findGGUF finds an architecture by a GGUF file's general.architecture.
func findGGUF(name string) (*architecture, error) {
	for _, a := range architectures {
		if slices.Contains(a.gguf, name) {
			return a, nil
		}
	}
	if name == "" {
		name = "none (no general.architecture)"
	}
	return nil, unsupported(name)
}

// UnsupportedError names an architecture that cannot be loaded.
type UnsupportedError struct{ Architecture string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("architecture %s is not supported; supported are %s", e.Architecture, strings.Join(Architectures(), ", "))
}

func unsupported(name string) error { return &UnsupportedError{Architecture: name} }

// Architectures lists the names of all that can be loaded.
func Architectures() []string {
	var names []string
	for _, a := range architectures {
		names = append(names, a.name)
	}
	return names
}
