package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/batchmill/batchmill/infer"
	"github.com/batchmill/batchmill/infer/bundle"
	"github.com/batchmill/batchmill/infer/cpu"
	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/model"
	"github.com/batchmill/batchmill/infer/tokenizer"
	"github.com/batchmill/batchmill/internal/hub"
	"github.com/batchmill/batchmill/internal/objstore"
)

// OpenModel resolves a model reference and gives its failures their kind. progress may be nil.
func OpenModel(ctx context.Context, ref string, store *objstore.Store, progress func(hub.Progress)) (*bundle.Bundle, error) {
	b, err := bundle.Open(ctx, ref, hub.Options{Store: hubStore{store}, Progress: progress})
	if err != nil {
		return nil, modelError(err)
	}
	return b, nil
}

// OpenTokenizer opens the tokenizer of a model reference.
func OpenTokenizer(ctx context.Context, ref string, store *objstore.Store) (*tokenizer.Tokenizer, error) {
	t, err := bundle.OpenTokenizer(ctx, ref, hub.Options{Store: hubStore{store}})
	if err != nil {
		return nil, modelError(err)
	}
	return t, nil
}

// deviceOptions are a job's wishes for its device; zero values leave the choice to it.
type deviceOptions struct {
	threads     int
	isa         string // changes no result
	activations string
}

// newDevice starts the device for a model; one that only describes or estimates needs a single thread.
func newDevice(b *bundle.Bundle, o deviceOptions) (*cpu.Device, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.isa == "auto" {
		o.isa = ""
	}
	dev, err := cpu.New(cpu.Config{Threads: o.threads, ISA: o.isa, Activations: cpu.Activations(resolveActivations(b, o.activations))})
	if err != nil {
		return nil, Errorf(Config, "", "start the CPU device: %w", err)
	}
	return dev, nil
}

// resolveActivations says what "auto" means for a model: integers where weights are quantised, so that products run at the
// speed of integers, and float32 where they are not. It depends on the model alone, so that every machine decides alike.
func resolveActivations(b *bundle.Bundle, asked string) string {
	switch {
	case asked != "auto" && asked != "":
		return asked
	case b.Quantised():
		return string(cpu.ActivationsInt8)
	}
	return string(cpu.ActivationsF32)
}

// loaded is a model on its device, ready for an engine.
type loaded struct {
	dev    device.Device
	model  *model.Model
	config model.Config
}

// weightShare is the part of the available memory that unpacked weights may take; the rest is for KV pages and rows.
// Weights beyond it stay packed and are unpacked at every use.
const weightShare = 0.6

func loadModel(ctx context.Context, b *bundle.Bundle, d deviceOptions) (*loaded, error) {
	dev, err := newDevice(b, d)
	if err != nil {
		return nil, err
	}
	var o model.Options
	if n, ok := availableMemory(); ok {
		o.WeightMemory = int64(weightShare * float64(n))
	}
	m, err := b.Load(ctx, dev, o)
	if err != nil {
		return nil, errors.Join(modelError(fmt.Errorf("model %s: %w", b.Name, err)), dev.Close())
	}
	return &loaded{dev: dev, model: m, config: m.Config()}, nil
}

func (l *loaded) forwarder() infer.Forwarder { return infer.FromModel(l.model) }

func (l *loaded) close() error { return errors.Join(l.model.Close(), l.dev.Close()) }

// modelError gives a model's failures their kind: what is missing, what is damaged, what is away for now.
func modelError(err error) error {
	var known *Error
	var memory *model.MemoryError
	if errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.As(err, &memory) {
		return Errorf(Config, "use a smaller model or a smaller quantisation, or free some memory", "%w", err)
	}
	switch hub.KindOf(err) {
	case hub.Usage:
		return Errorf(Usage, "", "%w", err)
	case hub.Missing:
		return Errorf(NoInput, "", "%w", err)
	case hub.Unavailable, hub.NotCached:
		return Errorf(Unavailable, "", "%w", err)
	}
	return Errorf(BadInput, "", "%w", err)
}
