package gguf

import "slices"

// Keys lists all metadata keys in the file's order; of a split file, those of its first part.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Value gives a metadata value as it stands in the file: uint8 to uint64, int8 to int64, float32, float64, bool, string,
// or a slice of one of them, which the caller must not change.
func (f *File) Value(key string) (any, bool) {
	v, ok := f.values[key]
	return v, ok
}

// String gives a string; false where the key is absent or of another type.
func (f *File) String(key string) (string, bool) {
	v, ok := f.values[key].(string)
	return v, ok
}

// Bool gives a boolean; false where the key is absent or of another type.
func (f *File) Bool(key string) (value, ok bool) {
	value, ok = f.values[key].(bool)
	return value, ok
}

// Uint gives an integer of any width; false where the key is absent, of another type or negative.
func (f *File) Uint(key string) (uint64, bool) { return asUint(f.values[key]) }

// Float gives a number of any kind; false where the key is absent or of another type.
func (f *File) Float(key string) (float64, bool) {
	switch v := f.values[key].(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	case int8:
		return float64(v), true
	case int16:
		return float64(v), true
	case int32:
		return float64(v), true
	case int64:
		return float64(v), true
	}
	u, ok := f.Uint(key)
	return float64(u), ok
}

// Strings gives an array of strings, which the caller must not change.
func (f *File) Strings(key string) ([]string, bool) {
	v, ok := f.values[key].([]string)
	return v, ok
}

// Int32s gives an array of integers of any width; false where the key is absent, of another type, or a value does not
// fit.
func (f *File) Int32s(key string) ([]int32, bool) {
	switch v := f.values[key].(type) {
	case []int32:
		return v, true
	case []int8:
		return narrow(v)
	case []int16:
		return narrow(v)
	case []int64:
		return narrow(v)
	case []uint8:
		return narrow(v)
	case []uint16:
		return narrow(v)
	case []uint32:
		return narrow(v)
	case []uint64:
		return narrow(v)
	}
	return nil, false
}

// Float32s gives an array of float32 or float64 numbers, the latter rounded.
func (f *File) Float32s(key string) ([]float32, bool) {
	switch v := f.values[key].(type) {
	case []float32:
		return v, true
	case []float64:
		out := make([]float32, len(v))
		for i, x := range v {
			out[i] = float32(x)
		}
		return out, true
	}
	return nil, false
}

// Bools gives an array of booleans.
func (f *File) Bools(key string) ([]bool, bool) {
	v, ok := f.values[key].([]bool)
	return v, ok
}

func narrow[T int8 | int16 | int64 | uint8 | uint16 | uint32 | uint64](in []T) ([]int32, bool) {
	out := make([]int32, len(in))
	for i, x := range in {
		out[i] = int32(x)
		if T(out[i]) != x || (out[i] < 0) != (x < 0) {
			return nil, false
		}
	}
	return out, true
}

func asUint(v any) (uint64, bool) {
	signed := int64(-1)
	switch v := v.(type) {
	case uint8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	case int8:
		signed = int64(v)
	case int16:
		signed = int64(v)
	case int32:
		signed = int64(v)
	case int64:
		signed = v
	}
	return uint64(signed), signed >= 0
}
