#!/usr/bin/env bash
# Builds llama.cpp for this machine from the llama-cpp-python source package (which carries it), and writes the F16 form
# of a GGUF model. Needs Python with pip, CMake and a C++ compiler. Everything lands in PEERS_DIR, and nothing is done
# twice. usage: build.sh MODEL.gguf
set -euo pipefail

# The peer is part of the figure: change the version and say so in docs/BENCHMARKS.md.
VERSION=${LLAMA_CPP_PYTHON_VERSION:-0.3.36}
PEERS_DIR=${PEERS_DIR:-.cache/peers}
PYTHON=${PYTHON:-python3}
JOBS=${JOBS:-2}

model=${1:?usage: build.sh MODEL.gguf}
mkdir -p "$PEERS_DIR"
dir=$(cd "$PEERS_DIR" && pwd)
source_dir=$dir/llama_cpp_python-$VERSION
build_dir=$dir/build-$VERSION

if [ ! -d "$source_dir/vendor/llama.cpp" ]; then
  archive=$dir/llama_cpp_python-$VERSION.tar.gz
  [ -f "$archive" ] || "$PYTHON" -m pip download --quiet --no-deps --no-binary llama-cpp-python -d "$dir" "llama-cpp-python==$VERSION" >&2
  tar -xzf "$archive" -C "$dir"
fi

if [ ! -x "$build_dir/bin/llama-bench" ] || [ ! -x "$build_dir/bin/llama-batched-bench" ] || [ ! -x "$build_dir/bin/llama-quantize" ]; then
  cmake -S "$source_dir/vendor/llama.cpp" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >&2
  cmake --build "$build_dir" -j "$JOBS" --target llama-bench llama-batched-bench llama-quantize >&2
fi

# The same dequantised weights, as F16: the arithmetic then differs, not the model.
f16=$dir/$(basename "$model" .gguf).f16.gguf
if [ ! -f "$f16" ]; then
  "$build_dir/bin/llama-quantize" --allow-requantize "$model" "$f16.tmp" F16 2 >&2
  mv "$f16.tmp" "$f16"
fi

# Read by bench/peers: one name=value a line.
printf 'bin=%s\nf16=%s\nversion=llama-cpp-python %s\n' "$build_dir/bin" "$f16" "$VERSION"
