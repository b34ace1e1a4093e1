package infer

// Tokenizer is what the engine needs to turn ids into text. FromTokenizer makes one from infer/tokenizer.
type Tokenizer interface {
	// NewDecoder starts a streaming decoder that leaves out special tokens.
	NewDecoder() Decoder
	// Token is the token's own text, as in the vocabulary.
	Token(id int32) (string, bool)
	// Bytes is what the token decodes to in the middle of a text; nil for ids without text.
	Bytes(id int32) []byte
}

// Decoder turns ids into text as they come. It holds back bytes that do not yet make a whole character; all its pieces
// together are the decoding of all ids.
type Decoder interface {
	Push(id int32) string
	Flush() string
}

// FromTokenizer adapts a tokenizer whose NewDecoder takes skipSpecial and returns its own type of decoder, as
// infer/tokenizer's does.
func FromTokenizer[D Decoder](t interface {
	NewDecoder(skipSpecial bool) D
	Token(id int32) (string, bool)
	Bytes(id int32) []byte
}) Tokenizer {
	return adaptedTokenizer[D]{t}
}

type adaptedTokenizer[D Decoder] struct {
	t interface {
		NewDecoder(skipSpecial bool) D
		Token(id int32) (string, bool)
		Bytes(id int32) []byte
	}
}

func (a adaptedTokenizer[D]) NewDecoder() Decoder           { return a.t.NewDecoder(true) }
func (a adaptedTokenizer[D]) Token(id int32) (string, bool) { return a.t.Token(id) }
func (a adaptedTokenizer[D]) Bytes(id int32) []byte         { return a.t.Bytes(id) }
