package writers_test

import (
	"fmt"
	"os"

	"github.com/batchmill/batchmill/internal/row"
	"github.com/batchmill/batchmill/writers"
)

func Example() {
	w, err := writers.New(os.Stdout, writers.Config{
		Format: writers.JSONL,
		Source: &row.Schema{Format: "jsonl", Columns: []row.Column{{Name: "text", Type: "string"}}},
		Own:    []string{"row_index", "status", "completion"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	answer := "Bonjour"
	record := &row.Record{Cells: row.JSON(`{ "text": "Hello", "big": 12345678901234567890 }`)}
	result := &row.Result{Key: row.UnitKey{Source: "file:///in.jsonl"}, Status: row.OK, Completion: &answer}
	if err := w.Write(record, result); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := w.Close()
	fmt.Println(stats.Rows, stats.OK, err)
	// Output:
	// { "text": "Hello", "big": 12345678901234567890 ,"row_index":0,"status":"ok","completion":"Bonjour"}
	// 1 1 <nil>
}
