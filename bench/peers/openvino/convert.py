"""Turns a GGUF file into an OpenVINO model with int8 weights.

usage: convert.py MODEL.gguf OUT_DIR

The weights of the file are dequantised to float32, as they are, and then quantised by NNCF (int8, asymmetric, a scale per
output), which is what `optimum-cli export openvino --weight-format int8` does.
"""
import os
import sys
import tempfile

import torch
from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
from transformers import AutoModelForCausalLM, AutoTokenizer


def unpack(gguf, out):
    """Writes a folder in the Hugging Face layout, whose model does not know that it came from a GGUF file."""
    folder, name = os.path.split(os.path.abspath(gguf))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(model)(config)
    plain.load_state_dict(model.state_dict())
    plain.to(torch.float32).save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)


def main():
    gguf, out = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as plain:
        unpack(gguf, plain)
        model = OVModelForCausalLM.from_pretrained(plain, export=True, quantization_config=OVWeightQuantizationConfig(bits=8))
        model.save_pretrained(out)
        AutoTokenizer.from_pretrained(plain).save_pretrained(out)


if __name__ == "__main__":
    main()
