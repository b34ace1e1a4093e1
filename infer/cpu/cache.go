package cpu

import (
	"fmt"
	"math"

	"github.com/batchmill/batchmill/infer/device"
)

// cache holds keys and values in float32. For each layer, page and KV head: keys transposed [kdim][32 tokens], then values
// [32 tokens][vdim], where kdim and vdim are headDim rounded up to whole blocks and panels.
//
// The values of a page are cleared when its first token is written: slots beyond a sequence's end have probability 0, but
// the remains of another sequence could be NaN, and 0 times NaN is NaN. Keys need no clearing, since scores of slots beyond
// the end are replaced.
type cache struct {
	shape      device.CacheShape
	kdim, vdim int
	unit       int         // values of one layer, page and head
	layers     [][]float32 // [layers][pages][kvHeads][unit]
	free       []func()
}

// CacheBytes is the memory that a cache of that shape takes.
func (d *Device) CacheBytes(s device.CacheShape) int64 { return cacheBytes(s) }

func cacheBytes(s device.CacheShape) int64 {
	return int64(s.Layers) * int64(s.Pages) * int64(s.KVHeads) * int64(cacheUnit(s.HeadDim)) * 4
}

func cacheUnit(headDim int) int {
	return device.PageTokens * (roundUp(headDim, lanes) + roundUp(headDim, panelCols))
}

// Cache allocates a cache; the memory is touched when it is used.
func (d *Device) Cache(s device.CacheShape) (device.Cache, error) {
	if s.Layers < 1 || s.Pages < 1 || s.KVHeads < 1 || s.HeadDim < 1 {
		return nil, fmt.Errorf("make a KV cache: bad shape %+v", s)
	}
	c := &cache{shape: s, kdim: roundUp(s.HeadDim, lanes), vdim: roundUp(s.HeadDim, panelCols), unit: cacheUnit(s.HeadDim)}
	if int64(s.Pages) > math.MaxInt64/4/int64(c.unit)/int64(s.KVHeads)/int64(s.Layers) {
		return nil, fmt.Errorf("make a KV cache: %d pages are too many", s.Pages)
	}
	for range s.Layers {
		l, free, err := allocate(s.Pages * s.KVHeads * c.unit)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("make a KV cache of %d bytes: %w", cacheBytes(s), err)
		}
		c.layers = append(c.layers, l)
		c.free = append(c.free, free)
	}
	return c, nil
}

func (c *cache) Pages() int   { return c.shape.Pages }
func (c *cache) Bytes() int64 { return cacheBytes(c.shape) }

// Close gives the memory back; the cache is unusable then.
func (c *cache) Close() error {
	for _, free := range c.free {
		free()
	}
	c.layers, c.free = nil, nil
	return nil
}

// page gives keys and values of a page for one head.
func (c *cache) page(layer int, page int32, head int) (k, v []float32) {
	off := (int(page)*c.shape.KVHeads + head) * c.unit
	u := c.layers[layer][off : off+c.unit]
	n := c.kdim * device.PageTokens
	return u[:n], u[n:]
}

// CopyPage copies the first tokens of a page and clears the values of the rest.
func (c *cache) CopyPage(dst, src int32, tokens int) {
	for l := range c.layers {
		for h := range c.shape.KVHeads {
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
