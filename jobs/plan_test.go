package jobs

import (
	"reflect"
	"strings"
	"testing"
)

func TestComparePlansNamesWhatDiffers(t *testing.T) {
	base := func() *Plan {
		return &Plan{Decides: Decides{ModelDigest: "m", Prompt: "p", Seed: 1}, Inputs: []Input{{URL: "file:///a", Size: 3, ETag: "e"}}}
	}
	cases := []struct {
		name   string
		change func(*Plan)
		want   string // in the message; "" = accepted
	}{
		{"nothing", func(*Plan) {}, ""},
		{"a new input", func(p *Plan) { p.Inputs = append(p.Inputs, Input{URL: "file:///b"}) }, ""},
		{"model", func(p *Plan) { p.Decides.ModelDigest = "n" }, "model_digest"},
		{"prompt", func(p *Plan) { p.Decides.Prompt = "q" }, `"prompt" is "p" in its plan, and "q" is asked for`},
		{"temperature", func(p *Plan) { p.Decides.Params.Temperature = 0.5 }, "params.temperature"},
		{"stop strings", func(p *Plan) { p.Decides.Params.Stop = []string{"x"} }, "params.stop"},
		{"columns", func(p *Plan) { p.Decides.Columns = []string{} }, "columns"},
		{"input changed", func(p *Plan) { p.Inputs[0].ETag = "f" }, "has changed"},
		{"input gone", func(p *Plan) { p.Inputs = nil }, "not matched any more"},
	}
	for _, c := range cases {
		now := base()
		c.change(now)
		err := base().compare(now)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: refused: %v", c.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || KindOf(err) != BadInput {
			t.Errorf("%s: got %v, want a message with %q", c.name, err, c.want)
		}
	}
}

// TestEveryDecidingFieldEntersTheDigest changes each field of Decides by reflection.
func TestEveryDecidingFieldEntersTheDigest(t *testing.T) {
	plan := &Plan{}
	if err := plan.seal(); err != nil {
		t.Fatal(err)
	}
	typ := reflect.TypeFor[Decides]()
	for i := range typ.NumField() {
		changed := &Plan{}
		f := reflect.ValueOf(&changed.Decides).Elem().Field(i)
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int32, reflect.Int64:
			f.SetInt(99)
		case reflect.Slice:
			if f.Type().Elem().Kind() == reflect.Uint8 {
				f.SetBytes([]byte(`{"a":1}`))
			} else {
				f.Set(reflect.ValueOf([]string{"x"}))
			}
		case reflect.Struct:
			f.FieldByName("MinP").SetFloat(0.5)
		default:
			t.Fatalf("%s: kind %s is not covered", typ.Field(i).Name, f.Kind())
		}
		if err := changed.seal(); err != nil {
			t.Fatal(err)
		}
		if changed.Digest == plan.Digest {
			t.Errorf("%s does not enter the digest", typ.Field(i).Name)
		}
	}
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"0/1": {0, 1}, "3/4": {3, 4}} {
		if got, err := ParseShard(text); err != nil || got != want {
			t.Errorf("ParseShard(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "1", "4/4", "-1/4", "1/0", "a/b", "1/2/3", " 1/2", "01/2"} {
		if got, err := ParseShard(text); err == nil {
			t.Errorf("ParseShard(%q) = %v, want an error", text, got)
		}
	}
}

func TestShardsPartitionTheWork(t *testing.T) {
	for count := 1; count < 6; count++ {
		for n := range 20 {
			owners := 0
			for i := range count {
				if (Shard{i, count}).Has(n) {
					owners++
				}
			}
			if owners != 1 {
				t.Fatalf("shard %d of a plan has %d owners among %d processes", n, owners, count)
			}
		}
	}
}

func TestExitCodes(t *testing.T) {
	want := map[Kind]int{Internal: 70, Usage: 64, Config: 78, BadInput: 65, NoInput: 66, Unavailable: 69, StorageIO: 74, Interrupted: 75, TooManyErrors: 4, RowErrors: 3, NothingToDo: 99}
	for k, code := range want {
		if got := k.ExitCode(); got != code {
			t.Errorf("kind %d exits with %d, want %d", k, got, code)
		}
	}
}

func TestClosest(t *testing.T) {
	known := []string{"text", "title", "id"}
	for name, want := range map[string]string{"txet": "text", "Title": "title", "zzzzzz": "", "tex": "text"} {
		if got := Closest(name, known); got != want {
			t.Errorf("Closest(%q) = %q, want %q", name, got, want)
		}
	}
}
