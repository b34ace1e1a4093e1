package ordered

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeJSONKeepsOrderAndDigits(t *testing.T) {
	v, err := DecodeJSON([]byte(` {"z": 1, "a": [true, null, "x\u00e9", {}], "big": 123456789012345678901, "f": 1.50, "e": 1e3, "z2": -9223372036854775808} `))
	if err != nil {
		t.Fatal(err)
	}
	m := v.(*Map)
	if got := strings.Join(m.Keys(), ","); got != "z,a,big,f,e,z2" {
		t.Errorf("keys %s", got)
	}
	n, _ := new(big.Int).SetString("123456789012345678901", 10)
	for key, want := range map[string]any{"z": int64(1), "big": n, "f": 1.5, "e": 1000.0, "z2": int64(math.MinInt64)} {
		if got, _ := m.Get(key); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v (%T), want %v", key, got, got, want)
		}
	}
	list, _ := m.Get("a")
	if l := list.([]any); l[0] != true || l[1] != nil || l[2] != "xé" || l[3].(*Map).Len() != 0 {
		t.Errorf("list %v", l)
	}
}

func TestDecodeJSONDuplicatesAndSurrogates(t *testing.T) {
	v, err := DecodeJSON([]byte(`{"a": 1, "b": 2, "a": 3}`))
	if err != nil {
		t.Fatal(err)
	}
	if k, got := v.(*Map).At(0); k != "a" || got != int64(3) {
		t.Errorf("of two values of a key the last wins, in the first's place: %s %v", k, got)
	}
	for in, want := range map[string]string{
		`"\ud800"`: "\ufffd", `"a\udc00b"`: "a\ufffdb", `"\ud83d\ude42"`: "🙂", `"\\ud800"`: `\ud800`, `"\ud800\ud83d\ude42"`: "\ufffd🙂", `"\ud800\n"`: "\ufffd\n",
	} {
		if got, err := DecodeJSON([]byte(in)); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", in, got, err, want)
		}
	}
	if got, err := DecodeJSON([]byte(`1e400`)); err != nil || !math.IsInf(got.(float64), 1) {
		t.Errorf("1e400 is %v, %v", got, err)
	}
}

func TestDecodeJSONRefuses(t *testing.T) {
	for _, in := range []string{"", " ", "01", "{", `{"a"}`, "[1,]", "nul", "\"\xff\"", "NaN", `"\ud8"`, "[" + strings.Repeat("[", 100000)} {
		if v, err := DecodeJSON([]byte(in)); err == nil {
			t.Errorf("%.20q was read as %v", in, v)
		}
	}
	if _, err := DecodeJSON([]byte("1 2")); !errors.Is(err, ErrTrailing) {
		t.Errorf("two values: %v", err)
	}
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	if _, err := DecodeJSON([]byte(deep)); err != nil {
		t.Errorf("at the limit of nesting: %v", err)
	}
	if _, err := DecodeJSON([]byte("[[" + deep + "]]")); err == nil {
		t.Error("nesting beyond the limit was accepted")
	}
}

func TestMapBeyondTheLinearScan(t *testing.T) {
	m := &Map{}
	for i := range 50 {
		m.Set(fmt.Sprint(i), i)
	}
	m.Set("7", "seven")
	for i := range 50 {
		want := any(i)
		if i == 7 {
			want = "seven"
		}
		if got, ok := m.Get(fmt.Sprint(i)); !ok || got != want {
			t.Errorf("key %d is %v", i, got)
		}
		if k, _ := m.At(i); k != fmt.Sprint(i) {
			t.Errorf("place %d is %s", i, k)
		}
	}
	if _, ok := m.Get("50"); ok {
		t.Error("a key that was never set was found")
	}
	var none *Map
	if _, ok := none.Get("a"); ok || none.Len() != 0 || none.Keys() != nil {
		t.Error("a nil map holds something")
	}
}

func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"\ud800"]}`, `123456789012345678901234567890`, `"\\u"`, `[[[]]]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeJSON(data)
		if err != nil {
			return
		}
		b, err := DecodeJSON(append([]byte(" "), data...))
		if err != nil || !reflect.DeepEqual(a, b) && !strings.Contains(fmt.Sprint(a), "NaN") {
			t.Fatalf("%q was read as %v, with a space before it as %v, %v", data, a, b, err)
		}
	})
}
