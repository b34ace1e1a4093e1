package quant

import (
	"fmt"
	"math"
)

// TensorInfo describes a tensor of a weight file.
type TensorInfo struct {
	Name  string
	Type  Type
	Shape []int // outermost first, as in PyTorch: a linear layer's weight is [out, in]; rows are contiguous
	Bytes int64 // size of the stored data
}

// Values is the number of values of the tensor.
func (t TensorInfo) Values() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Size computes the stored bytes of a tensor of that type and shape (outermost first) with every product checked: the
// numbers come from a file. The innermost dimension must consist of whole blocks.
func Size(t Type, shape []int) (int64, error) {
	if !t.Valid() {
		return 0, fmt.Errorf("%v", t)
	}
	row := 1
	if len(shape) > 0 {
		row = shape[len(shape)-1]
	}
	rowBytes, err := t.RowBytes(row)
	if err != nil {
		return 0, err
	}
	total := int64(rowBytes)
	values := int64(row)
	for i := range len(shape) - 1 {
		d := int64(shape[i])
		if d < 0 {
			return 0, fmt.Errorf("dimension %d is negative", d)
		}
		if d > 0 && (total > math.MaxInt64/d || values > math.MaxInt/d) {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		total *= d
		values *= d
	}
	return total, nil
}

// FileError says what is wrong with a weight file, and where.
type FileError struct {
	File   string // name or URL of the file
	Tensor string // name of the tensor concerned; "" where the file's head is
	Offset int64  // byte offset in the file; -1 where there is none
	// Unsupported: the file may be in order, but holds something that is not supported. Otherwise it is damaged.
	Unsupported bool
	Err         error
}

func (e *FileError) Error() string {
	s := e.File
	if e.Tensor != "" {
		s += fmt.Sprintf(": tensor %q", e.Tensor)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(": at byte %d", e.Offset)
	}
	return s + ": " + e.Err.Error()
}

func (e *FileError) Unwrap() error { return e.Err }
