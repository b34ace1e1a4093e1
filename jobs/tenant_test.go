package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/batchmill/batchmill/internal/row"
)

func TestATenantColumnOfListsIsRefusedWhereTheSchemaTells(t *testing.T) {
	for kind, refused := range map[string]bool{
		"string": false, "bool": false, "int64": false, "double": false, "decimal(9, 2)": false, "timestamp(us, UTC)": false, "binary": false,
		"list<string>": true, "map<string, int64>": true, "struct<a: string>": true,
	} {
		p := &planner{spec: &Spec{TenantColumn: "who"}, schema: &row.Schema{Format: "parquet", Columns: []row.Column{{Name: "text", Type: "list<string>"}, {Name: "who", Type: kind}}}}
		err := p.checkTenant()
		if (err != nil) != refused || refused && (KindOf(err) != Usage || !strings.Contains(err.Error(), "--tenant-column") || !strings.Contains(err.Error(), kind)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestTenantsByKindOfValue: rows of equal booleans and numbers share, rows of lists do not, and one warning says so.
func TestTenantsByKindOfValue(t *testing.T) {
	for name, c := range map[string]struct {
		values         []string
		copies, warned int
	}{
		"booleans": {[]string{"true", "false"}, 6, 0},
		"floats":   {[]string{"0.5", "5e-1"}, 7, 0},
		"numbers":  {[]string{"1", "1.0"}, 7, 0},
		"nothing":  {[]string{"null", ""}, 7, 0},
		"lists":    {[]string{"[1]", "[1]"}, 0, 1},
	} {
		dir := t.TempDir()
		var b strings.Builder
		for i := range 8 {
			if v := c.values[i%2]; v != "" {
				fmt.Fprintf(&b, `{"text": "one question", "who": %s}`+"\n", v)
			} else {
				b.WriteString(`{"text": "one question"}` + "\n")
			}
		}
		s := testSpec(writeFile(t, dir+"/in.jsonl", []byte(b.String())), dir+"/out/")
		s.TenantColumn = "who"
		var warned []string
		sum, err := runJob(t, context.Background(), s, Events{Warn: func(m string) { warned = append(warned, m) }})
		if err != nil || sum.Sharing.Copies != int64(c.copies) || len(warned) != c.warned {
			t.Errorf("%s: %v, %d copies, want %d; warned %q", name, err, sum.Sharing.Copies, c.copies, warned)
		}
		for _, m := range warned {
			if !strings.Contains(m, "--tenant-column") || !strings.Contains(m, "line 1") {
				t.Errorf("warned %q", m)
			}
		}
	}
}
