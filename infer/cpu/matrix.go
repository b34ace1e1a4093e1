package cpu

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/batchmill/batchmill/infer/device"
	"github.com/batchmill/batchmill/infer/quant"
)

// matrix is the weight of a linear layer: packed, as float32 or compact, or streamed.
type matrix struct {
	src    device.MatrixSource
	row    int       // bytes of a row of src.Data
	kpad   int       // In rounded up to 32
	panels int       // Out/32, rounded up
	packed []float32 // [panels][kpad][32], or compact panels if there is a form; nil when streamed
	form   *compactForm
	size   int // float32 of a packed panel
	free   func()

	quantised bool      // multiplied as integers: panels are stored as q says, and packed and form are unused
	q         qLayout   // of stored panels
	stored    []float32 // [panels][q.total] bytes; nil when streamed
}

func (m *matrix) Shape() (out, in int) { return m.src.Out, m.src.In }
func (m *matrix) Bytes() int64         { return int64(len(m.packed)+len(m.stored)) * 4 }

// Close gives the panels back; the matrix is unusable then.
func (m *matrix) Close() error {
	if m.free != nil {
		m.free()
	}
	m.packed, m.stored, m.src.Data, m.free = nil, nil, nil, nil
	return nil
}

// checkSource makes sure that the kernels can read src without further checks.
func checkSource(src *device.MatrixSource) (rowBytes int, err error) {
	rowBytes, err = src.Type.RowBytes(src.In)
	if err != nil {
		return 0, fmt.Errorf("load %s: %w", src.Name, err)
	}
	if src.Out < 1 || src.In < 1 {
		return 0, fmt.Errorf("load %s: empty shape [%d %d]", src.Name, src.Out, src.In)
	}
	rows := len(src.Data) / rowBytes
	if src.Rows == nil {
		if rows < src.Out {
			return 0, fmt.Errorf("load %s: %d rows of data, want %d", src.Name, rows, src.Out)
		}
		return rowBytes, nil
	}
	if len(src.Rows) != src.Out {
		return 0, fmt.Errorf("load %s: %d rows named, want %d", src.Name, len(src.Rows), src.Out)
	}
	for _, r := range src.Rows {
		if r < 0 || int(r) >= rows {
			return 0, fmt.Errorf("load %s: row %d of %d rows of data", src.Name, r, rows)
		}
	}
	return rowBytes, nil
}

// rowBytes is row o as it is stored.
func (m *matrix) rowBytes(o int) []byte {
	if m.src.Rows != nil {
		o = int(m.src.Rows[o])
	}
	return m.src.Data[o*m.row : (o+1)*m.row]
}

// values unpacks row o of the source to dst, [In].
func (m *matrix) values(o int, dst []float32) { quant.Dequantize(m.src.Type, dst, m.rowBytes(o)) }

// pack fills a panel, [kpad][32], from the source. tmp holds panelScratch values.
func (m *matrix) pack(p int, panel, tmp []float32) {
	in := m.src.In
	cols := min(panelCols, m.src.Out-p*panelCols)
	if cols < panelCols || m.kpad > in {
		clear(panel)
	}
	for o := range cols {
		m.values(p*panelCols+o, tmp[o*in:(o+1)*in])
	}
	// Transposed in squares, so that both sides stay in the first cache.
	const square = 16
	for k0 := 0; k0 < in; k0 += square {
		k1 := min(k0+square, in)
		for o := range cols {
			row := tmp[o*in : (o+1)*in]
			for k := k0; k < k1; k++ {
				panel[k*panelCols+o] = row[k]
			}
		}
	}
}

func panelScratch(in int) int { return panelCols * in }

// MatrixBytes is the size of the packed panels. A quantised weight whose values the compact form cannot give exactly takes
// more; no file that a quantiser wrote has shown one.
func (d *Device) MatrixBytes(t quant.Type, out, in int) int64 {
	if f, ok := t.Form(); ok && d.activations != ActivationsF32 {
		l := newQLayout(f, roundUp(in, panelCols))
		return int64(roundUp(out, panelCols)/panelCols) * int64(l.total)
	}
	return int64(roundUp(out, panelCols)/panelCols) * int64(panelSize(compactForms[t], roundUp(in, panelCols))) * 4
}

// panelSize is how many float32 a packed panel takes; a nil form is that of float32.
func panelSize(f *compactForm, k int) int {
	if f == nil {
		return k * panelCols
	}
	return f.panelBytes(k) / 4
}

// Matrix packs a weight on all threads, or keeps it streamed.
func (d *Device) Matrix(ctx context.Context, src device.MatrixSource) (device.Matrix, error) {
	row, err := checkSource(&src)
	if err != nil {
		return nil, err
	}
	m := &matrix{src: src, row: row, kpad: roundUp(src.In, panelCols), panels: (src.Out + panelCols - 1) / panelCols}
	if f, ok := src.Type.Form(); ok && d.activations != ActivationsF32 {
		m.q = newQLayout(f, m.kpad)
		if m.quantised, err = d.storeAll(ctx, m); err != nil {
			return nil, err
		}
		if m.quantised {
			return m, nil
		}
	}
	d.floats.Store(true)
	if src.Streamed {
		return m, nil
	}
	forms := []*compactForm{nil}
	if f := compactForms[src.Type]; f != nil {
		forms = []*compactForm{f, nil}
	}
	for _, f := range forms {
		exact, err := d.packAll(ctx, m, f)
		if err != nil {
			return nil, err
		}
		if exact {
			break
		}
	}
	m.src.Data, m.src.Rows = nil, nil
	return m, nil
}

// packAll packs all panels, unless a compact one turns out not to be exact.
func (d *Device) packAll(ctx context.Context, m *matrix, form *compactForm) (exact bool, err error) {
	m.form, m.size = form, panelSize(form, m.kpad)
	packed, free, err := d.weights.allocate(m.panels * m.size)
	if err != nil {
		return false, fmt.Errorf("load %s: %w", m.src.Name, err)
	}
	exact, err = d.eachPanel(ctx, m.panels, func() func(p int) bool {
		pack := m.packer(d.kernels)
		return func(p int) bool { return pack(p, packed[p*m.size:(p+1)*m.size]) }
	})
	if !exact {
		free()
		return false, err
	}
	m.packed, m.free = packed, free
	return true, nil
}

// eachPanel packs panels on all threads, each with a function of its own from worker, until one says no or ctx ends, whose error it
// returns.
func (d *Device) eachPanel(ctx context.Context, panels int, worker func() func(p int) bool) (all bool, err error) {
	var next atomic.Int64
	var refused atomic.Bool
	var wg sync.WaitGroup
	for range min(d.pool.workers, panels) {
		wg.Go(func() {
			pack := worker()
			for ctx.Err() == nil && !refused.Load() {
				p := int(next.Add(1)) - 1
				if p >= panels {
					return
				}
				if !pack(p) {
					refused.Store(true)
				}
			}
		})
	}
	wg.Wait()
	err = ctx.Err()
	return err == nil && !refused.Load(), err
}

// packer makes a function that packs panels in the matrix's form.
func (m *matrix) packer(kn *kernels) func(p int, panel []float32) (exact bool) {
	if m.form != nil {
		return newCompactPacker(kn, m).pack
	}
	tmp := make([]float32, panelScratch(m.src.In))
	return func(p int, panel []float32) bool {
		m.pack(p, panel, tmp)
		return true
	}
}

// Table keeps the rows as they are stored; a looked-up row is unpacked.
func (d *Device) Table(_ context.Context, src device.MatrixSource) (device.Matrix, error) {
	row, err := checkSource(&src)
	if err != nil {
		return nil, err
	}
	return &matrix{src: src, row: row}, nil
}

// vector is padded with zeros to a multiple of 32.
type vector struct {
	n int
	v []float32
}

func (v *vector) Len() int { return v.n }

// Vector copies v.
func (d *Device) Vector(v []float32) (device.Vector, error) {
	p := aligned(roundUp(len(v), panelCols))
	copy(p, v)
	return &vector{n: len(v), v: p}, nil
}
