package jobs

import (
	"context"
	"fmt"

	"github.com/batchmill/batchmill/internal/hub"
	"github.com/batchmill/batchmill/internal/objstore"
)

// ModelCall names a model for PullModel and VerifyModel.
type ModelCall struct {
	Ref      string
	Store    *objstore.Store
	Progress func(hub.Progress) // may be nil
}

// ModelInfo says what a model reference stands for on this machine.
type ModelInfo struct {
	Name         string   `json:"name"`
	Digest       string   `json:"digest"`
	Files        []string `json:"files"`
	Bytes        int64    `json:"bytes"`
	Architecture string   `json:"architecture"`
	Tensors      int      `json:"tensors"`
	Context      int      `json:"context"`
	Verified     bool     `json:"verified"` // hashes and tensors were read again
}

// PullModel fetches what the model's source has now and opens it.
func PullModel(ctx context.Context, c ModelCall) (*ModelInfo, error) {
	if _, err := hub.Pull(ctx, c.Ref, c.options()); err != nil {
		return nil, modelError(err)
	}
	return c.info(ctx, false)
}

// VerifyModel reads a model on this machine again: its hashes, and every tensor.
func VerifyModel(ctx context.Context, c ModelCall) (*ModelInfo, error) {
	if _, err := hub.Verify(ctx, c.Ref, c.options()); err != nil {
		return nil, modelError(err)
	}
	return c.info(ctx, true)
}

func (c ModelCall) options() hub.Options {
	return hub.Options{Store: hubStore{c.Store}, Progress: c.Progress}
}

func (c ModelCall) info(ctx context.Context, verify bool) (*ModelInfo, error) {
	b, err := OpenModel(ctx, c.Ref, c.Store, c.Progress)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	dev, err := newDevice(b, deviceOptions{threads: 1})
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	conf, err := b.Describe(dev)
	if err == nil && verify {
		if _, err = b.Estimate(ctx, dev); err == nil {
			_, err = b.CheckTensors(ctx)
		}
	}
	if err != nil {
		return nil, modelError(fmt.Errorf("model %s: %w", c.Ref, err))
	}
	return &ModelInfo{
		Name: b.Name, Digest: b.Digest, Files: b.Files(), Bytes: b.Bytes(), Architecture: conf.Architecture, Tensors: b.Tensors(),
		Context: conf.MaxPositions, Verified: verify,
	}, nil
}

// ListedModel is one line of ListModels: an alias of the catalogue, or a cached model without one.
type ListedModel struct {
	Alias  string `json:"alias"`
	Ref    string `json:"ref"`
	About  string `json:"about"`
	Pinned bool   `json:"pinned"` // its bytes are fixed by a hash in this program
	Cached bool   `json:"cached"`
	Bytes  int64  `json:"bytes"` // in the cache
}

// ListModels lists the built-in catalogue and what else is in the cache.
func ListModels(ctx context.Context) ([]ListedModel, error) {
	var list []ListedModel
	known := map[string]bool{}
	for _, e := range hub.Catalogue() {
		m := ListedModel{Alias: e.Alias, Ref: e.Ref, About: e.About, Pinned: e.Pinned()}
		if s, err := hub.Locate(ctx, e.Alias, hub.Options{}); err == nil {
			m.Cached, m.Bytes = true, s.Bytes
		}
		list = append(list, m)
		known[e.Ref], known[e.Alias] = true, true
	}
	entries, err := hub.List(hub.Options{})
	if err != nil {
		return nil, modelError(err)
	}
	for _, e := range entries {
		for _, ref := range e.Refs {
			if !known[ref] {
				list = append(list, ListedModel{Ref: ref, Cached: true, Bytes: e.Bytes})
			}
		}
	}
	return list, nil
}
