package gguf

import (
	"fmt"

	"github.com/batchmill/batchmill/infer/quant"
)

// otherTypes names the types of enum ggml_type that package quant does not have, so that a refusal can name them.
var otherTypes = map[uint32]string{
	4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
	19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64",
	28: "F64", 29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0",
	36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4",
}

// unsupportedType makes the error for a type that cannot be read.
func unsupportedType(id uint32) error {
	name, ok := otherTypes[id]
	if !ok {
		name = "unknown"
	}
	supported := ""
	for _, t := range quant.Types() {
		supported += " " + t.String()
	}
	return fmt.Errorf("tensor type %s (number %d) is not supported; supported are%s", name, id, supported)
}
