#!/usr/bin/env bash
# Installs OpenVINO GenAI in a virtual environment of its own and converts a GGUF model to its format with int8 weights.
# Downloads some gigabytes (the conversion needs PyTorch); nothing is done twice. usage: setup.sh MODEL.gguf
set -euo pipefail

PEERS_DIR=${PEERS_DIR:-$(cd "$(dirname "$0")/../../.." && pwd)/.cache/peers}
PYTHON=${PYTHON:-python3}
model=${1:?usage: setup.sh MODEL.gguf}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$PEERS_DIR/openvino"
dir=$(cd "$PEERS_DIR/openvino" && pwd)
python=$dir/venv/bin/python

if ! cmp -s "$here/requirements.txt" "$dir/installed.txt"; then
  [ -x "$python" ] || "$PYTHON" -m venv "$dir/venv"
  "$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" >&2
  cp "$here/requirements.txt" "$dir/installed.txt"
fi
int8=$dir/$(basename "$model" .gguf).int8
if [ ! -d "$int8" ]; then
  rm -rf "$int8.tmp"
  HF_HUB_OFFLINE=1 "$python" "$here/convert.py" "$model" "$int8.tmp" >&2
  mv "$int8.tmp" "$int8"
fi

# Read by bench/peers: one name=value a line.
printf 'python=%s\nmodel=%s\nrun=%s\n' "$python" "$int8" "$here/run.py"
"$python" - <<'END'
from importlib.metadata import version
print("version=" + ", ".join(f"{p} {version(p)}" for p in ("openvino", "openvino-genai", "optimum-intel", "nncf", "torch")))
END
