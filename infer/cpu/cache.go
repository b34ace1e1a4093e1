package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/batchmill/batchmill/infer/device"
)

// cache holds keys and values, in float32 or as 8-bit codes.
//
// In float32: for each layer, page and KV head: keys transposed [kdim][32 tokens], then values
// [32 tokens][vdim], where kdim and vdim are headDim rounded up to whole blocks and panels.
//
// The values of a page are cleared when its first token is written: slots beyond a sequence's end have probability 0, but
// the remains of another sequence could be NaN, and 0 times NaN is NaN. Keys need no clearing, since scores of slots beyond
// the end are replaced.
type cache struct {
	shape      device.CacheShape
	codes      bool // 8-bit: see kernels8 for a page's layout
	kdim, vdim int
	unit       int         // values of one layer, page and head
	layers     [][]float32 // [layers][pages][kvHeads][unit]
	free       []func()
}

// CacheBytes is the memory that a cache of that shape takes.
func (d *Device) CacheBytes(s device.CacheShape) int64 { return newCache(s, d.activations).Bytes() }

// newCache is a cache without its memory.
func newCache(s device.CacheShape, a Activations) *cache {
	c := &cache{shape: s, codes: a == ActivationsInt8}
	if c.codes {
		c.vdim = roundUp(s.HeadDim, headUnit)
		c.kdim = c.vdim
		c.unit = pageBytes8(c.vdim) / 4
		return c
	}
	c.kdim, c.vdim = roundUp(s.HeadDim, lanes), roundUp(s.HeadDim, panelCols)
	c.unit = device.PageTokens * (c.kdim + c.vdim)
	return c
}

// Cache allocates a cache; the memory is touched when it is used.
func (d *Device) Cache(s device.CacheShape) (device.Cache, error) {
	if s.Layers < 1 || s.Pages < 1 || s.KVHeads < 1 || s.HeadDim < 1 {
		return nil, fmt.Errorf("make a KV cache: bad shape %+v", s)
	}
	c := newCache(s, d.activations)
	if int64(s.Pages) > math.MaxInt64/4/int64(c.unit)/int64(s.KVHeads)/int64(s.Layers) {
		return nil, fmt.Errorf("make a KV cache: %d pages are too many", s.Pages)
	}
	for range s.Layers {
		l, free, err := allocate(s.Pages * s.KVHeads * c.unit)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("make a KV cache of %d bytes: %w", c.Bytes(), err)
		}
		c.layers = append(c.layers, l)
		c.free = append(c.free, free)
	}
	return c, nil
}

// Pages is the number of pages.
func (c *cache) Pages() int { return c.shape.Pages }

// Bytes is the memory of all pages.
func (c *cache) Bytes() int64 {
	return int64(c.shape.Layers) * int64(c.shape.Pages) * int64(c.shape.KVHeads) * int64(c.unit) * 4
}

// Close gives the memory back; the cache is unusable then.
func (c *cache) Close() error {
	for _, free := range c.free {
		free()
	}
	c.layers, c.free = nil, nil
	return nil
}

// at is what a page holds for one head.
func (c *cache) at(layer int, page int32, head int) []float32 {
	off := (int(page)*c.shape.KVHeads + head) * c.unit
	return c.layers[layer][off : off+c.unit]
}

// page8 is a page of codes.
func (c *cache) page8(layer int, page int32, head int) unsafe.Pointer {
	return unsafe.Pointer(&c.at(layer, page, head)[0])
}

// page gives keys and values of a page for one head.
func (c *cache) page(layer int, page int32, head int) (k, v []float32) {
	u := c.at(layer, page, head)
	n := c.kdim * device.PageTokens
	return u[:n], u[n:]
}

// CopyPage copies the first tokens of a page and clears the values of the rest. Of codes all are copied: those of slots without
// a token count for nothing.
func (c *cache) CopyPage(dst, src int32, tokens int) {
	for l := range c.layers {
		for h := range c.shape.KVHeads {
			if c.codes {
				copy(c.at(l, dst, h), c.at(l, src, h))
				continue
			}
			dk, dv := c.page(l, dst, h)
			sk, sv := c.page(l, src, h)
			clear(dv)
			for i := range c.kdim {
				copy(dk[i*device.PageTokens:][:tokens], sk[i*device.PageTokens:][:tokens])
			}
			copy(dv[:tokens*c.vdim], sv[:tokens*c.vdim])
		}
	}
}
