// Package tokenizer turns text into token ids and back, exactly as the model's own tokenizer does.
//
// A Tokenizer is built from a Hugging Face tokenizer.json (FromJSON) or from GGUF metadata (FromGGUF) and is immutable
// and safe for concurrent use. Whatever decides ids but is not known here (a model type, a normalizer, a pre-tokenizer
// pattern) is refused by name: a near miss would degrade a model's answers silently.
//
// The way of a text: added tokens are cut out (leftmost, then longest), what lies between them is normalised, split by the
// pre-tokenizer and merged by BPE. Pre-tokenizer patterns are recognised as text and matched by hand-written scanners on
// pinned Unicode 16.0 tables, so a hostile file cannot bring a pattern that backtracks for ever.
//
// Documents are data. Encode tokenises a rendered prompt as ONE string, so that spaces and merges run across the borders
// between template and data; EncodeOptions.Literal says which bytes the template wrote, and a special token is recognised only
// where all of its text lies inside one such span. Elsewhere the same text becomes ordinary tokens.
//
// Decoding concatenates bytes and only then reads UTF-8: a Decoder holds back an incomplete character, and everything it
// returns adds up to what Decode returns.
//
//	tok, err := tokenizer.FromJSON(data)
//	ids, err := tok.Encode("Translate: hello", tokenizer.EncodeOptions{AddSpecial: true})
//	text := tok.Decode(ids, true)
package tokenizer

//go:generate python3 gen/classes.py
//go:generate go run gen/normforms.go
