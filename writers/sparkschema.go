package writers

import (
	"github.com/go-json-experiment/json/jsontext"
)

// sparkSchemaKey is where Spark keeps its own form of the schema. Spark reads a file by it alone, so that columns which
// it does not name do not exist: it has to be extended, or left out.
const sparkSchemaKey = "org.apache.spark.sql.parquet.row.metadata"

// maxSparkField bounds one field of Spark's schema, so that foreign JSON cannot nest without end.
const maxSparkField = 1 << 20

// extendSparkSchema keeps the fields that are carried, byte for byte, and adds ours. It reports false for what does not
// look like Spark's {"type":"struct","fields":[{"name":...},...]}.
func extendSparkSchema(value string, keep func(string) bool, prefix string, own []*Column) (string, bool) {
	text := []byte(value)
	if !jsontext.Value(text).IsValid() {
		return "", false
	}
	members, _, err := scanMembers(text, nil)
	if err != nil {
		return "", false
	}
	out := []byte{'{'}
	found := false
	for i, m := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, text[m.name:m.nameEnd]...), ':')
		v := text[m.value:m.end]
		if string(text[m.name:m.nameEnd]) != `"fields"` || len(v) == 0 || v[0] != '[' {
			out = append(out, v...)
			continue
		}
		found = true
		var fields int
		out = append(out, '[')
		for at := skipSpace(v, 1); at < len(v) && v[at] != ']'; {
			end := skipValue(v, at)
			field := v[at:end]
			name, ok := fieldName(field)
			if !ok || len(field) > maxSparkField {
				return "", false
			}
			if keep(name) {
				if fields++; fields > 1 {
					out = append(out, ',')
				}
				out = append(out, field...)
			}
			if at = skipSpace(v, end); at < len(v) && v[at] == ',' {
				at = skipSpace(v, at+1)
			}
		}
		for _, c := range own {
			if fields++; fields > 1 {
				out = append(out, ',')
			}
			out = appendSparkField(out, prefix, c)
		}
		out = append(out, ']')
	}
	return string(append(out, '}')), found
}

func fieldName(field []byte) (string, bool) {
	members, _, err := scanMembers(field, nil)
	if err != nil {
		return "", false
	}
	for _, m := range members {
		if string(field[m.name:m.nameEnd]) == `"name"` {
			name, err := jsontext.AppendUnquote(nil, field[m.value:m.end])
			return string(name), err == nil
		}
	}
	return "", false
}

func appendSparkField(dst []byte, prefix string, c *Column) []byte {
	types := map[Type]string{String: `"string"`, JSON: `"string"`, Int64: `"long"`, Int32: `"integer"`, Double: `"double"`,
		Int32List: `{"type":"array","elementType":"integer","containsNull":false}`}
	dst = appendString(append(dst, `{"name":`...), prefix+c.Name)
	dst = append(append(dst, `,"type":`...), types[c.Type]...)
	if c.Nullable {
		return append(dst, `,"nullable":true,"metadata":{}}`...)
	}
	return append(dst, `,"nullable":false,"metadata":{}}`...)
}
