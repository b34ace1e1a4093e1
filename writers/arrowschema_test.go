package writers

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"
)

func arrowValue(t testing.TB, name string) string {
	for _, kv := range openFixture(t, name).schema.Metadata {
		if kv.Key == arrowSchemaKey {
			return kv.Value
		}
	}
	t.Fatalf("%s has no %s", name, arrowSchemaKey)
	return ""
}

func TestArrowSchemaRefused(t *testing.T) {
	good, err := base64.StdEncoding.DecodeString(arrowValue(t, "types.parquet"))
	if err != nil || decodeArrowSchema(base64.StdEncoding.EncodeToString(good)) == nil {
		t.Fatal("the fixture's own schema is refused", err)
	}
	legacy := append(binary.LittleEndian.AppendUint32(nil, uint32(len(good)-8)), good[8:]...)
	if decodeArrowSchema(base64.StdEncoding.EncodeToString(legacy)) == nil {
		t.Error("the length prefix of Arrow before 0.15 is refused")
	}
	huge := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, good[8:]...) // claims 2 GiB
	for name, b := range map[string][]byte{"empty": nil, "short": good[:20], "cut": good[:len(good)/2], "length": huge, "zeros": make([]byte, 64)} {
		if decodeArrowSchema(base64.StdEncoding.EncodeToString(b)) != nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if decodeArrowSchema("not base64!") != nil {
		t.Error("not base64 is accepted")
	}
}

// TestArrowSchemaBomb: tables may be shared, so that a chain of n fields, each with the next one twice as its children,
// stands for 2^n of them.
func TestArrowSchemaBomb(t *testing.T) {
	chain := func(levels int) []byte {
		var b []byte
		u32 := func(list ...uint32) {
			for _, n := range list {
				b = binary.LittleEndian.AppendUint32(b, n)
			}
		}
		u16 := func(list ...uint16) {
			for _, n := range list {
				b = binary.LittleEndian.AppendUint16(b, n)
			}
		}
		u32(20)                      // 0: the root table is at 20
		u16(12, 8, 0, 0, 4, 0)       // 4: Message's vtable: header, slot 2, at +4
		u32(0)                       // 16
		u32(16, 16)                  // 20: Message: vtable at 4; header at 40
		u16(8, 8, 0, 4)              // 28: Schema's vtable: fields, slot 1, at +4
		u32(0)                       // 36
		u32(12, 4)                   // 40: Schema: vtable at 28; fields at 48
		u32(1, 20)                   // 48: one field, at 72
		u16(16, 8, 0, 0, 0, 0, 0, 4) // 56: Field's vtable: children, slot 5, at +4
		for i := range levels {
			u32(uint32(len(b)-56), 4) // vtable at 56; the vector follows
			if i == levels-1 {
				u32(0)
				break
			}
			u32(2, 8, 4) // two offsets to the table behind the vector
		}
		return append(binary.LittleEndian.AppendUint32([]byte{0xff, 0xff, 0xff, 0xff}, uint32(len(b))), b...)
	}
	if err := checkSchemaMessage(chain(10)); err != nil {
		t.Errorf("1,023 fields: %v", err)
	}
	if checkSchemaMessage(chain(40)) == nil {
		t.Error("2^40 fields are accepted")
	}
}

func FuzzArrowSchema(f *testing.F) {
	for _, name := range []string{"types.parquet", "field_ids.parquet", "pandas.parquet"} {
		raw, err := base64.StdEncoding.DecodeString(arrowValue(f, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := decodeArrowSchema(base64.StdEncoding.EncodeToString(raw))
		if s == nil {
			return
		}
		value, err := s.extend(func(string) bool { return true }, "", []*Column{&columnTable[0]})
		if err != nil {
			return
		}
		if again := decodeArrowSchema(value); again != nil && again.NumFields() != s.NumFields()+1 {
			t.Errorf("%d fields, then %d", s.NumFields(), again.NumFields())
		}
	})
}

func TestSparkSchema(t *testing.T) {
	own := []*Column{&columnTable[0], &columnTable[5]}
	const ours = `{"name":"b_source_file","type":"string","nullable":false,"metadata":{}},{"name":"b_completion","type":"string","nullable":true,"metadata":{}}`
	in := `{"type":"struct", "fields":[ {"name":"a","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{"x":"]"}} , {"name":"\u0062","type":"string"}]}`
	got, ok := extendSparkSchema(in, func(name string) bool { return name != "b" }, "b_", own)
	if want := `{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{"x":"]"}},` + ours + `]}`; !ok || got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	got, ok = extendSparkSchema(`{"fields":[]}`, func(string) bool { return true }, "b_", own)
	if !ok || got != `{"fields":[`+ours+`]}` {
		t.Errorf("got %s", got)
	}
	for _, bad := range []string{"", "{}", "[]", `{"fields":1}`, `{"fields":[1]}`, `{"fields":[{"name":1}]}`, `{"fields":[`, strings.Repeat("[", 100000)} {
		if _, ok := extendSparkSchema(bad, func(string) bool { return true }, "", own); ok {
			t.Errorf("took %.40q", bad)
		}
	}
}
