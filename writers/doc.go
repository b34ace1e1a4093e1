// Package writers writes the rows of a job: carried columns first, untouched and in the source's order, then our own.
//
// There are three formats. "jsonl" splices our members into the source's own text, so that the user's part of a line
// keeps every byte. "parquet" passes nested columns of a Parquet source through with their levels, logical types, field
// ids and footer metadata; from JSONL it writes the columns that the plan saw, and everything else into _extra. "openai"
// writes the shape of an OpenAI batch result. Dead letters hold what failed, as valid input of another run.
//
// A writer streams: it holds one row group of Parquet (see RowGroupBytes) or one buffer of JSONL, whatever the size of
// the part. It takes an io.Writer and never closes it: whether the object becomes visible is the caller's decision.
// Writers are not safe for concurrent use. After an error a writer must be thrown away, with what it wrote.
//
//	w, err := writers.New(out, writers.Config{Format: "jsonl", Source: schema})
//	...
//	err = w.Write(record, result) // once for every unit, in the input's order
//	...
//	stats, err := w.Close()
//
// # The result digest
//
// Stats.ResultDigest tells whether two runs came to the same results. It is the SHA-256, in hex, of a canonical form of
// the written result columns: carried columns, and of ours those that Columns marks as Result. Measurements (times,
// attempts, cached tokens) are left out, and so are row groups, pages, buffers and compression. Digest computes it again
// from a written part.
//
// The form is a sequence of fields. A field is a length (8 bytes, little endian) and that many bytes; a number is a
// field of 8 bytes, little endian; null is the length 2^64-1 without bytes.
//
//	header: "batchmill result 1", the family ("json", "parquet" or "openai"), the count and canonical names of our columns
//	row:    the carried part, then one field per column of ours in the table's order: text as UTF-8, json as its text,
//	        a list of ids as 4 bytes each, little endian
//
// The carried part of the family json is the count of members, then for each its name (unescaped) and its value, the
// exact text between the separators. That of the family parquet is, for every leaf column in the schema's order, the
// count of its values in the row, then for each one number (repetition level, definition level shifted by 8) and the
// value's plain bytes, or null. The family openai has none.
package writers
