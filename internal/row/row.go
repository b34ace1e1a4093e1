// Package row holds what every stage of a job says about one row: its identity, its content on the way in, its
// result on the way out, and the ways in which it can fail. It imports nothing of the project, so that readers,
// writers, the engine and the jobs can share it without knowing each other.
package row

// UnitKey identifies one unit of work, everywhere inside a job. A user's own id is carried and checked, never a key:
// two rows may share it.
type UnitKey struct {
	Source string // URL of the source object
	Row    int64  // records of the source, counted from 0
	Sample int32  // 0..n-1 where a row asks for several completions
	Node   int32  // node of a summary's tree; 0 otherwise
}

// Record is one record of a source as a reader found it. It has an identity even where it could not be read: then Err
// says why, and the row becomes an error row.
type Record struct {
	Source string // URL of the source object
	Row    int64  // records of the source, counted from 0
	Line   int64  // 1-based line where the record starts; 0 where the format has no lines
	Offset int64  // byte offset where the record starts, before decompression undone; -1 where unknown

	// Err is set when this record alone is unusable (broken JSON, invalid UTF-8, a line over the limit).
	Err *Error

	// Fields holds the decoded values of the columns that were asked for, in the types of package ordered: nil, bool,
	// int64, *big.Int, float64, string, []any, *ordered.Map; besides them []byte for Parquet binary. A column that the
	// record lacks is absent; a null is present with the value nil.
	Fields map[string]any

	// Cells are the record's carried columns, untouched; nil unless the reader was asked to carry.
	// JSONL: JSON. Parquet: a parquet.Row of leaf values with their levels.
	Cells any

	// Raw is the record's bytes where it could not be parsed (for dead letters), as far as they were kept; else nil.
	Raw []byte
}

// JSON is the exact text of one JSON object, without the line end.
type JSON []byte

// Schema describes what a source's records carry, for the writer of the output.
type Schema struct {
	Format  string   // "jsonl" or "parquet"
	Columns []Column // top-level columns in the source's order; for JSONL those seen in the planner's sample

	// Parquet is the *parquet.Schema of the source, else nil.
	Parquet any
	// ParquetElements is the schema as the source's footer has it, a []format.SchemaElement (the file's
	// Metadata().Schema), else nil: the *parquet.Schema drops annotations that the library does not know, FLOAT16 among
	// them, and the writer puts them back from here.
	ParquetElements any
	// Metadata is the source's footer key-value pairs, in order.
	Metadata []KeyValue
}

// Column is a top-level column of a source. Type is the source's own word for it (for JSONL "string" or "json").
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// KeyValue is one pair of a file's metadata.
type KeyValue struct{ Key, Value string }
