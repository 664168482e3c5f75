#!/usr/bin/env python3
"""Makes the files llama_cpp.bin in tests/data/text: digests of llama.cpp's ids for every line, from llama.cpp itself.

    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36 && tar xf llama_cpp_python-0.3.36.tar.gz
    tools/make_llama_cpp_goldens.py llama_cpp_python-0.3.36/vendor/llama.cpp --smollm2 FILE.gguf --gemma3 FILE.gguf

Only the vocabulary is compiled, a minute's work. Also makes the tokenizer "tied", whose pieces have equal scores.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY / "tests" / "data" / "text"
SOURCES = [
    *("src/llama-" + name for name in ("vocab.cpp", "model-loader.cpp", "mmap.cpp", "arch.cpp", "hparams.cpp", "impl.cpp")),
    *("src/unicode.cpp", "src/unicode-data.cpp"),
    *("ggml/src/" + name for name in ("ggml.c", "ggml-alloc.c", "ggml-quants.c", "ggml.cpp", "ggml-backend.cpp",
                                      "ggml-threading.cpp", "gguf.cpp")),
]


def build(llama_cpp: Path, folder: Path) -> Path:
    (folder / "ggml-version.h").write_text('#pragma once\n#define GGML_VERSION "0"\n#define GGML_COMMIT "0"\n')
    includes = [f"-I{folder}", *(f"-I{llama_cpp / part}" for part in ("include", "src", "ggml/include", "ggml/src", "vendor"))]
    sources = [*(llama_cpp / source for source in SOURCES), REPOSITORY / "tools" / "goldens" / "llama_cpp_vocab.cc"]

    def compile_one(source: Path) -> Path:
        target = folder / (source.name + ".o")
        compiler = ["cc"] if source.suffix == ".c" else ["c++", "-std=c++17"]
        subprocess.run([*compiler, "-O1", "-w", "-D_GNU_SOURCE", *includes, "-c", source, "-o", target], check=True)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile_one, sources))
    program = folder / "llama_cpp_vocab"
    subprocess.run(["c++", *objects, "-o", program, "-lpthread", "-ldl"], check=True)
    return program


def digests(program: Path, model: Path, lines: list[str]) -> bytes:
    """Two for each line, each of four bytes: of the ids, and of those that read no special token."""
    from goldens.text_tokenizers import _fnv

    with tempfile.TemporaryDirectory() as scratch:
        texts, ids = Path(scratch) / "lines", Path(scratch) / "ids"
        texts.write_bytes(b"".join(struct.pack("<I", len(line.encode())) + line.encode() for line in lines))
        subprocess.run([program, model, texts, ids], check=True)
        data, at, out = ids.read_bytes(), 0, b""
        for _ in range(2 * len(lines)):
            (count,) = struct.unpack_from("<I", data, at)
            out += struct.pack("<I", _fnv(data[at + 4 : at + 4 + 4 * count]))
            at += 4 + 4 * count
        assert at == len(data)
    return out


def make_tied(folder: Path) -> None:
    """The pieces of "sentence_piece" with coarse integer scores, and pieces to be matched whole that run into each other, of
    spaces, of line ends, and spelled with U+2581."""
    import gguf
    from goldens.text_tokenizers import write_gguf

    fields = gguf.GGUFReader(DATA / "sentence_piece" / "tokenizer.gguf").fields
    read = {key: fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "scores")}
    whole = [" " * n for n in (2, 3, 5, 8)] + ["\n" * n for n in (2, 4)] + ["the q", "quick f", "▁▁a", " <b>", "<b> "]
    control = ["<c d>", "▁<e>"]
    folder.mkdir(exist_ok=True)
    write_gguf(folder / "tokenizer.gguf", {
        "general.architecture": "llama", "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": read["tokens"] + whole + control,
        "tokenizer.ggml.token_type": read["token_type"] + [4] * len(whole) + [3] * len(control),
        "tokenizer.ggml.scores": [int(score) // 200 for score in read["scores"]] + [0] * (len(whole) + len(control)),
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--smollm2", type=Path, required=True)
    parser.add_argument("--gemma3", type=Path, required=True)
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.path.insert(0, str(REPOSITORY / "tools"))
    lines = json.loads((DATA / "lines.json").read_text(encoding="utf-8"))
    make_tied(DATA / "tied")
    models = {name: DATA / name / "tokenizer.gguf" for name in ("sentence_piece", "gemma", "tied")}
    models |= {"smollm2": args.smollm2, "gemma3": args.gemma3}
    with tempfile.TemporaryDirectory() as scratch:
        program = build(args.llama_cpp.resolve(), Path(scratch))
        for name, model in models.items():
            (DATA / name).mkdir(exist_ok=True)
            (DATA / name / "llama_cpp.bin").write_bytes(digests(program, model, lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
