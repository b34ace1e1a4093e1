#!/usr/bin/env bash
# Builds llama.cpp for this machine from the llama-cpp-python source package (which carries it), and writes the forms of a
# GGUF model that are compared. Needs Python with pip, CMake, and a C++ compiler. Everything lands in PEERS_DIR, and nothing
# is done twice. usage: build.sh MODEL.gguf [ISA]
#
# On processors with AMX there are two builds. llama.cpp's kernels for AMX are used wherever the compiler offers them, and
# are not always the faster ones: its kernels for AVX-512, with repacked weights, may be. Figures are compared with the
# better of the two. ISA avx512 or avx2 asks for a build with no more than these instructions.
set -euo pipefail

# The peer is part of the figure: a change of version belongs into docs/PERFORMANCE.md.
VERSION=${LLAMA_CPP_PYTHON_VERSION:-0.3.36}
PEERS_DIR=${PEERS_DIR:-$(cd "$(dirname "$0")/../.." && pwd)/.cache/peers}
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-2}
TARGETS=(llama-bench llama-batched-bench llama-quantize llama-server llama-perplexity)

model=${1:?usage: build.sh MODEL.gguf [ISA]}
isa=${2:-auto}
mkdir -p "$PEERS_DIR"
dir=$(cd "$PEERS_DIR" && pwd)
source_dir=$dir/llama_cpp_python-$VERSION/vendor/llama.cpp

if [ ! -d "$source_dir" ]; then
  archive=$dir/llama_cpp_python-$VERSION.tar.gz
  [ -f "$archive" ] || "$PYTHON" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$dir" "llama-cpp-python==$VERSION" >&2
  tar -xzf "$archive" -C "$dir"
fi

# gcc's header says that loading a tile configuration reads 8 bytes of the 64, so the compiler drops the stores to the rest
# and the program dies (llama.cpp issue 20824). This line in front of it tells that all of it is read.
barrier='    __asm__ volatile("" : : "r"(\&tc) : "memory");'
amx_source=$source_dir/ggml/src/ggml-cpu/amx/mmq.cpp
grep -q '"r"(&tc)' "$amx_source" || sed -i "s|^    _tile_loadconfig(&tc);|$barrier\n&|" "$amx_source"

# build NAME COMPILER_FLAGS [OPTIONS]
build() {
  local to=$dir/build-$VERSION-$1 flags=$2 missing=
  shift 2
  for t in "${TARGETS[@]}"; do [ -x "$to/bin/$t" ] || missing=1; done
  [ -n "$missing" ] || return 0
  local generator=()
  command -v ninja > /dev/null && generator=(-G Ninja)
  cmake -S "$source_dir" -B "$to" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" "$@" >&2
  cmake --build "$to" -j "$JOBS" --target "${TARGETS[@]}" >&2
}

no_amx="-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
builds=(native)
if grep -qw amx_int8 /proc/cpuinfo 2> /dev/null; then builds=(amx avx512); fi
if [ "$isa" != auto ]; then builds=("$isa"); fi
# Read by bench/peers: one name=value a line. build:NAME is a folder of programs.
for b in "${builds[@]}"; do
  case $b in
    native | amx) build "$b" "" ;;
    avx512) build avx512 "$no_amx" ;;
    avx2) build avx2 "" -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON ;;
    *) echo "build.sh: unknown ISA $b; known: auto, avx512, avx2" >&2; exit 64 ;;
  esac
  quantize=$dir/build-$VERSION-$b/bin/llama-quantize
  printf 'build:%s=%s\n' "$b" "$dir/build-$VERSION-$b/bin"
done

# The weights of the model, dequantised to F16 and quantised anew; its own type is the file as it is.
models=$dir/models
mkdir -p "$models"
name=$(basename "$model" .gguf)
own=${name##*.}
stem=${name%.*}
for type in F16 Q8_0 Q4_0 Q4_K_M Q4_1; do
  file=$models/$stem.$type.gguf
  if [ "$type" = "$own" ]; then
    file=$(cd "$(dirname "$model")" && pwd)/$(basename "$model")
  elif [ ! -f "$file" ]; then
    from=$models/$stem.F16.gguf
    [ "$type" = F16 ] && from=$model
    "$quantize" --allow-requantize "$from" "$file.tmp" "$type" "$JOBS" >&2
    mv "$file.tmp" "$file"
  fi
  printf 'model:%s=%s\n' "$type" "$file"
done
printf 'version=llama.cpp of llama-cpp-python %s, %s\n' "$VERSION" "$(${CXX:-c++} --version | head -1)"
