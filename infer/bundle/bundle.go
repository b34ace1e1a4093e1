// Package bundle brings together what one model reference gives: weights with their description, the tokenizer, the chat
// template, and the tokens that end a text. It is the one place that knows that a GGUF file holds all of them, while a
// folder in the Hugging Face layout has a file for each.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/batchmill/batchmill/infer/chat"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/infer/quant"
	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/hub"
)

// Bundle is an open model reference. Its weights are not loaded yet.
type Bundle struct {
	Name         string // what results say
	Digest       string // hex SHA-256 over weights, configuration and tokenizer
	Tokenizer    *tokenizer.Tokenizer
	ChatTemplate string // source text; "" where the model has none
	BOS, EOS     string // text of these tokens, for chat templates; "" where there is none

	hub *hub.Model
}

// Open resolves a reference and reads everything but the weights. Errors are those of package hub, or say which part of
// the model is damaged or unsupported.
func Open(ctx context.Context, ref string, o hub.Options) (*Bundle, error) {
	h, err := hub.Resolve(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Name: h.Name, Digest: h.Digest, hub: h}
	if err := b.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("model %s: %w", ref, err), h.Close())
	}
	return b, nil
}

func (b *Bundle) read() error {
	var err error
	if b.Tokenizer, err = readTokenizer(b.hub); err != nil {
		return err
	}
	if b.ChatTemplate, err = readChatTemplate(b.hub); err != nil {
		return err
	}
	if id, ok := b.Tokenizer.BOS(); ok {
		b.BOS, _ = b.Tokenizer.Token(id)
	}
	if id, ok := b.Tokenizer.EOS(); ok {
		b.EOS, _ = b.Tokenizer.Token(id)
	}
	return nil
}

// OpenTokenizer reads only the tokenizer; a folder with just a tokenizer.json will do.
func OpenTokenizer(ctx context.Context, ref string, o hub.Options) (*tokenizer.Tokenizer, error) {
	o.TokenizerOnly = true
	h, err := hub.Resolve(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	t, err := readTokenizer(h)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", ref, err)
	}
	return t, nil
}

func readTokenizer(h *hub.Model) (*tokenizer.Tokenizer, error) {
	if h.TokenizerJSON == nil {
		if h.GGUF == nil {
			return nil, errors.New("it has no tokenizer.json")
		}
		t, err := tokenizer.FromGGUF(h.GGUF)
		if err != nil {
			return nil, fmt.Errorf("its tokenizer: %w", err)
		}
		return t, nil
	}
	t, err := tokenizer.FromJSON(h.TokenizerJSON)
	if err == nil && h.TokenizerConfigJSON != nil {
		t, err = t.WithConfig(h.TokenizerConfigJSON)
	}
	if err != nil {
		return nil, fmt.Errorf("its tokenizer.json: %w", err)
	}
	return t, nil
}

// ggufTemplate is the key of a GGUF file's chat template.
const ggufTemplate = "tokenizer.chat_template"

func readChatTemplate(h *hub.Model) (string, error) {
	src, ok, err := chat.FromFolder(h.ChatTemplateJinja, h.TokenizerConfigJSON)
	if err != nil {
		return "", fmt.Errorf("its chat template: %w", err)
	}
	if !ok && h.GGUF != nil {
		src, _ = h.GGUF.String(ggufTemplate)
	}
	return src, nil
}

// source is the model as package model reads it.
func (b *Bundle) source() model.Source {
	s := model.Source{Weights: b.hub.Weights, ConfigJSON: b.hub.ConfigJSON, GenerationConfigJSON: b.hub.GenerationConfigJSON}
	if b.hub.GGUF != nil {
		s.Metadata = b.hub.GGUF
	}
	return s
}

// Describe says what the model is, without loading it.
func (b *Bundle) Describe(dev device.Device) (model.Config, error) {
	return model.Describe(b.source(), dev)
}

// Estimate says how much memory the weights take.
func (b *Bundle) Estimate(ctx context.Context, dev device.Device) (model.Memory, error) {
	return model.Estimate(ctx, b.source(), dev)
}

// Load hands the weights to a device. The bundle must stay open as long as the model.
func (b *Bundle) Load(ctx context.Context, dev device.Device, o model.Options) (*model.Model, error) {
	return model.Load(ctx, b.source(), dev, o)
}

// chatEnds are tokens that end an assistant's turn in the common chat formats. A model that has one of them as a special
// token ends with it, whether its configuration says so or not.
var chatEnds = []string{"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|eom_id|>", "<|return|>"}

// EndTokens is the set of tokens that end a text: what configuration and generation configuration name, the tokenizer's
// own, and the ends of chat turns.
func (b *Bundle) EndTokens(c model.Config) []int32 {
	ends := slices.Clone(c.EOS)
	if id, ok := b.Tokenizer.EOS(); ok {
		ends = append(ends, id)
	}
	for _, text := range chatEnds {
		if id, ok := b.Tokenizer.ID(text); ok && b.Tokenizer.IsSpecial(id) {
			ends = append(ends, id)
		}
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// Files, Bytes and Tensors describe what the reference stands for on this machine.
func (b *Bundle) Files() []string { return b.hub.Files }

// Bytes is the size of all files.
func (b *Bundle) Bytes() int64 { return b.hub.Bytes }

// Tensors is the number of tensors of the weight files.
func (b *Bundle) Tensors() int { return len(b.hub.Weights.Tensors()) }

// Quantised tells whether any weight is block-quantised.
func (b *Bundle) Quantised() bool {
	return slices.ContainsFunc(b.hub.Weights.Tensors(), func(t quant.TensorInfo) bool {
		_, ok := t.Type.Form()
		return ok
	})
}

// CheckTensors reads every tensor once, so that a damaged disk or a truncated file shows. It returns the bytes read.
func (b *Bundle) CheckTensors(ctx context.Context) (int64, error) {
	var total int64
	for _, t := range b.hub.Weights.Tensors() {
		data, release, err := b.hub.Weights.Data(ctx, t.Name)
		if err != nil {
			return total, err
		}
		total += int64(len(data))
		release()
	}
	return total, nil
}

// Close releases the files.
func (b *Bundle) Close() error { return b.hub.Close() }
