// Package ordered holds JSON-like values whose objects keep their key order and whose integers keep all their digits:
// nil, bool, int64, *big.Int (integers beyond int64), float64, string, []any and *Map. Rows, chat messages, tokenizer
// files and templates all speak these types, so that what a user wrote is what a template sees.
package ordered

// Map is an object that remembers the order in which its keys were first set. The zero value is ready to use.
type Map struct {
	keys   []string
	values []any
	index  map[string]int // built lazily above smallMap keys
}

// smallMap is the size up to which a linear scan beats a hash map.
const smallMap = 8

// MapOf builds a Map from alternating keys (strings) and values. It panics on an odd count or a key of another type:
// it is for literals in code.
func MapOf(pairs ...any) *Map {
	if len(pairs)%2 != 0 {
		panic("ordered.MapOf: odd number of arguments")
	}
	m := &Map{}
	for i := 0; i < len(pairs); i += 2 {
		m.Set(pairs[i].(string), pairs[i+1])
	}
	return m
}

// Len is the number of keys; a nil Map has none.
func (m *Map) Len() int {
	if m == nil {
		return 0
	}
	return len(m.keys)
}

// At returns the i-th key and its value.
func (m *Map) At(i int) (string, any) { return m.keys[i], m.values[i] }

// Keys returns the keys in order. The slice must not be changed.
func (m *Map) Keys() []string {
	if m == nil {
		return nil
	}
	return m.keys
}

// Get returns the value of a key.
func (m *Map) Get(key string) (any, bool) {
	if i := m.find(key); i >= 0 {
		return m.values[i], true
	}
	return nil, false
}

// Set puts a value; a new key goes to the end, a known one keeps its place.
func (m *Map) Set(key string, value any) {
	if i := m.find(key); i >= 0 {
		m.values[i] = value
		return
	}
	m.keys = append(m.keys, key)
	m.values = append(m.values, value)
	if m.index != nil {
		m.index[key] = len(m.keys) - 1
	} else if len(m.keys) > smallMap {
		m.index = make(map[string]int, 2*len(m.keys))
		for i, k := range m.keys {
			m.index[k] = i
		}
	}
}

func (m *Map) find(key string) int {
	if m == nil {
		return -1
	}
	if m.index != nil {
		if i, ok := m.index[key]; ok {
			return i
		}
		return -1
	}
	for i, k := range m.keys {
		if k == key {
			return i
		}
	}
	return -1
}
