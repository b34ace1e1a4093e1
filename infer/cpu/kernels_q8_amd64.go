package cpu

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/batchmill/batchmill/infer/quant"
)

var qVNNI = qKernels{
	name: "avx512-vnni", strip: 14, block8: 32 * 14, block16: 64 * 14, rowStep: 4,
	expandCodes4: expandCodes4AVX512, expandCodes5: expandCodes5AVX512, expandCodes6: expandCodes6AVX512,
	halves: halvesAVX512, brains: brainsAVX512, subScales: subScalesAVX512, subScalesSigned: subScalesSignedAVX512, subMins: subMinsAVX512,
	codeSums: codeSumsAVX512, quant8: quant8AVX512, quant16: quant16AVX512,
	gemm8: gemm8AVX512, gemm8Min: gemm8MinAVX512, gemm8Sub: gemm8SubAVX512,
	gemm16: gemm16AVX512, gemm16Min: gemm16MinAVX512, gemm16Sub: gemm16SubAVX512,
}

var qAVX2 = qKernels{
	name: "avx2", strip: 6, block8: 32 * 6, rowStep: 4, words: 64 * 6,
	expandCodes4: expandCodes4AVX2, expandCodes5: expandCodes5AVX2, expandCodes6: expandCodes6AVX2,
	halves: halvesAVX2, brains: brainsAVX2, subScales: subScalesAVX2, subScalesSigned: subScalesSignedAVX2, subMins: subMinsAVX2,
	widen: widenAVX2, quant8: quant8AVX2, quant16: quant16AVX2,
	gemm8: gemmWordsAVX2, gemm8Min: gemmWordsMinAVX2, gemm8Sub: gemmWordsSubAVX2,
	gemm16: gemmWordsAVX2, gemm16Min: gemmWordsMinAVX2, gemm16Sub: gemmWordsSubAVX2,
	nibbles: gemmNibblesAVX2, nibblesMin: gemmNibblesMinAVX2,
}

var qAMX = qKernels{
	name: "amx", strip: 16, block8: 32 * 16, block16: 64 * 16, rowStep: 32,
	expandCodes4: expandCodes4AVX512, expandCodes5: expandCodes5AVX512, expandCodes6: expandCodes6AVX512,
	halves: halvesAVX512, brains: brainsAVX512, subScales: subScalesAVX512, subScalesSigned: subScalesSignedAVX512, subMins: subMinsAVX512,
	quant8: quant8AMX, quant16: quant16AMX,
	gemm8: gemm8AMX, gemm8Min: gemm8MinAMX, gemm8Sub: gemm8SubAMX,
	gemm16: gemm16AMX, gemm16Min: gemm16MinAMX, gemm16Sub: gemm16SubAMX,
}

// qFew multiplies up to four tokens by stored panels, which are then read from memory and not worth expanding.
var qFew = qKernels{
	name: "avx512-vnni, few tokens", strip: 4, block8: 32 * 4, rowStep: 4, quant8: quant8FewAVX512,
	direct: pickDirect(few8AVX512, few6SuperAVX512, few5MinSuperAVX512, few5MinAVX512, few5AVX512, few4MinSuperAVX512, few4MinAVX512, few4AVX512),
}

// qOne multiplies one token by stored panels.
var qOne = qKernels{
	name: "avx2, one token", strip: 1, block8: 32, rowStep: 32, quant8: quant8FewAVX2,
	direct: pickDirect(few8AVX2, few6SuperAVX2, few5MinSuperAVX2, few5MinAVX2, few5AVX2, few4MinSuperAVX2, few4MinAVX2, few4AVX2),
}

// pickDirect makes a qKernels.direct of the kernels of all forms.
func pickDirect(bits8, bits6, bits5MinSuper, bits5Min, bits5, bits4MinSuper, bits4Min, bits4 func(args *fewArgs)) func(f quant.Form) func(args *fewArgs) {
	return func(f quant.Form) func(args *fewArgs) {
		switch {
		case f.Bits == 8:
			return bits8
		case f.Bits == 6:
			return bits6
		case f.Bits == 5 && f.Super:
			return bits5MinSuper
		case f.Bits == 5 && f.Min:
			return bits5Min
		case f.Bits == 5:
			return bits5
		case f.Super:
			return bits4MinSuper
		case f.Min:
			return bits4Min
		}
		return bits4
	}
}

// kernelsAMX are those of AVX-512, with tiles for integers.
var kernelsAMX = func() kernels {
	k := kernelsAVX512
	k.name, k.q8 = "amx", &qAMX
	return k
}()

// hasVNNI tells whether the integer kernels of AVX-512 can run.
func hasVNNI() bool {
	x := &cpu.X86
	return x.HasAVX512F && x.HasAVX512BW && x.HasAVX512VL && x.HasAVX512DQ && x.HasAVX512VNNI
}

// hasAMX tells whether tiles can be used. The system has to be asked: their state is 8 KiB for each thread.
var hasAMX = sync.OnceValue(func() bool {
	return cpu.X86.HasAMXTile && cpu.X86.HasAMXInt8 && hasVNNI() && askForTiles()
})

//go:noescape
func expandCodes4AVX512(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func expandCodes5AVX512(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func expandCodes6AVX512(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func halvesAVX512(vectors int, dst, src unsafe.Pointer)

//go:noescape
func subScalesAVX512(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func subScalesSignedAVX512(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func subMinsAVX512(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func codeSumsAVX512(groups, quads int, dst, src unsafe.Pointer, start int32)

//go:noescape
func gemm8AVX512(args *qArgs)

//go:noescape
func gemm8MinAVX512(args *qArgs)

//go:noescape
func gemm8SubAVX512(args *qArgs)

//go:noescape
func gemm16AVX512(args *qArgs)

//go:noescape
func gemm16MinAVX512(args *qArgs)

//go:noescape
func gemm16SubAVX512(args *qArgs)

//go:noescape
func quant8AVX512(args *quantArgs)

//go:noescape
func quant16AVX512(args *quantArgs)

//go:noescape
func expandCodes4AVX2(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func expandCodes5AVX2(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func expandCodes6AVX2(blocks int, dst, low, high unsafe.Pointer, bias int8)

//go:noescape
func halvesAVX2(vectors int, dst, src unsafe.Pointer)

//go:noescape
func subScalesAVX2(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func subScalesSignedAVX2(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func subMinsAVX2(supers, groups int, dst, sub, scale unsafe.Pointer)

//go:noescape
func widenAVX2(quads int, dst, src unsafe.Pointer)

//go:noescape
func gemmNibblesAVX2(args *qArgs)

//go:noescape
func gemmNibblesMinAVX2(args *qArgs)

//go:noescape
func gemmWordsAVX2(args *qArgs)

//go:noescape
func gemmWordsMinAVX2(args *qArgs)

//go:noescape
func gemmWordsSubAVX2(args *qArgs)

//go:noescape
func quant8AVX2(args *quantArgs)

//go:noescape
func quant16AVX2(args *quantArgs)

//go:noescape
func gemm8AMX(args *qArgs)

//go:noescape
func gemm8MinAMX(args *qArgs)

//go:noescape
func gemm8SubAMX(args *qArgs)

//go:noescape
func gemm16AMX(args *qArgs)

//go:noescape
func gemm16MinAMX(args *qArgs)

//go:noescape
func gemm16SubAMX(args *qArgs)

//go:noescape
func quant8AMX(args *quantArgs)

//go:noescape
func quant16AMX(args *quantArgs)

//go:noescape
func few8AVX512(args *fewArgs)

//go:noescape
func few4AVX512(args *fewArgs)

//go:noescape
func few4MinAVX512(args *fewArgs)

//go:noescape
func few5AVX512(args *fewArgs)

//go:noescape
func few5MinAVX512(args *fewArgs)

//go:noescape
func few4MinSuperAVX512(args *fewArgs)

//go:noescape
func few5MinSuperAVX512(args *fewArgs)

//go:noescape
func few6SuperAVX512(args *fewArgs)

//go:noescape
func quant8FewAVX512(args *quantArgs)

//go:noescape
func few8AVX2(args *fewArgs)

//go:noescape
func few4AVX2(args *fewArgs)

//go:noescape
func few4MinAVX2(args *fewArgs)

//go:noescape
func few5AVX2(args *fewArgs)

//go:noescape
func few5MinAVX2(args *fewArgs)

//go:noescape
func few4MinSuperAVX2(args *fewArgs)

//go:noescape
func few5MinSuperAVX2(args *fewArgs)

//go:noescape
func few6SuperAVX2(args *fewArgs)

//go:noescape
func quant8FewAVX2(args *quantArgs)

//go:noescape
func brainsAVX512(vectors int, dst, src unsafe.Pointer)

//go:noescape
func brainsAVX2(vectors int, dst, src unsafe.Pointer)
