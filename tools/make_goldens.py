#!/usr/bin/env python3
"""Makes the golden files under tests/data with Hugging Face transformers and the gguf package, on the CPU.

    tools/make_goldens.py models quants rope
    tools/make_goldens.py smollm2 --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

The same versions (tools/requirements-goldens.txt) on the same machine give the same bytes; --check compares a
fresh run with what is there and changes nothing. On another CPU the last bits of float32 values may differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch  # noqa: E402
import transformers  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent


def make(parts: list[str], out: Path, smollm2: Path | None) -> None:
    if "models" in parts:
        from goldens import all_models

        all_models.make(out / "models")
    if "quants" in parts:
        from goldens import quants

        quants.make(out / "models" / "quants.safetensors")
    if "rope" in parts:
        from goldens import rope

        rope.make(out / "models")
    if "smollm2" in parts:
        from goldens import smollm2 as smollm2_goldens

        smollm2_goldens.make(smollm2, out / "smollm2")


def digests(root: Path) -> dict[str, str]:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def differing(fresh: Path, kept: Path) -> list[str]:
    made, have = digests(fresh), digests(kept)
    return sorted(name for name, digest in made.items() if have.get(name) != digest)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["models", "quants", "rope", "smollm2"])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "tests" / "data")
    parser.add_argument("--smollm2", type=Path, metavar="GGUF", help="the default model, needed for smollm2")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; affects smollm2's last bits only")
    parser.add_argument("--check", action="store_true", help="compare a fresh run with --out, write nothing there")
    args = parser.parse_args()
    if "smollm2" in args.parts and args.smollm2 is None:
        parser.error("smollm2 needs --smollm2 GGUF")

    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if not args.check:
        make(args.parts, args.out, args.smollm2)
        return 0
    with tempfile.TemporaryDirectory() as fresh:
        make(args.parts, Path(fresh), args.smollm2)
        different = differing(Path(fresh), args.out)
    for name in different:
        print(f"differs: {name}")
    print(f"{len(different)} files differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
