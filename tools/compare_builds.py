#!/usr/bin/env python3
"""Shows whether two builds of pd-engine compute the same bits, and how fast each is.

usage: tools/compare_builds.py OLD NEW [--model FILE] [--speed]

OLD and NEW are two pd-engine programs. Prints, for each check, the digest that each of them gives, and "same" or "DIFFERENT": logits of
the small models in tests/data/models and of the default model, twelve greedy texts, and the files of exported packages (all but
bundle.json, which holds digests of the model's description). --speed adds decode, prefill, load and export, the two programs in turn,
with the median of the ratio NEW/OLD of times. Exit code 0: all the same; 1: some differ; 2: a program failed.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ["llama-base", "llama-bias-sharded", "llama-yarn-f16.f16.gguf", "qwen2-window", "qwen3", "gemma3"]
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):", "1, 2, 3, 5, 8,", "The opposite of hot is",
           "Dear Sir or Madam,", "Water boils at", "In 1969 the first", "A recipe for bread:", "To be or not to be,", "SELECT name FROM",
           "The quick brown fox"]
FORMATS = ["fp16", "int8", "lut4"]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class Build:
    def __init__(self, program: str, folder: pathlib.Path, cache: pathlib.Path):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = folder
        self.environment = {**os.environ, "PD_ENGINE_CACHE": str(cache)}
        folder.mkdir(parents=True)

    def run(self, *arguments: str) -> bytes:
        result = subprocess.run([self.program, *arguments], cwd=ROOT, env=self.environment, capture_output=True)
        if result.returncode:
            sys.exit(f"{self.program} {' '.join(arguments)}: exit code {result.returncode}: {result.stderr.decode()[-400:]}")
        return result.stdout

    def logits(self, model: str, tokens: int) -> str:
        out = self.folder / "logits.safetensors"
        ids = ",".join(str(7 + 13 * i % 50) for i in range(tokens))
        self.run("logits", "-m", model, "-i", ids, "-o", str(out))
        return digest(out.read_bytes())

    def text(self, model: str, prompt: str) -> str:
        answer = json.loads(self.run("run", "-m", model, "--raw", "-p", prompt, "-n", "24", "--temp", "0", "--json", "-q"))
        return digest(json.dumps(answer["token_ids"]).encode())

    def export(self, model: str, weights: str, *flags: str) -> str:
        out = self.folder / f"{pathlib.Path(model).name}-{weights}"
        self.run("export", model, "-o", str(out), "--weights", weights, *flags)
        total = hashlib.sha256()
        for file in sorted(p for p in out.rglob("*") if p.is_file() and p.name != "bundle.json"):
            total.update(str(file.relative_to(out)).encode() + b"\0" + file.read_bytes())
        return total.hexdigest()[:16]


def compare(name: str, old: str, new: str) -> bool:
    print(f"{name:<44}{old}  {new}  {'same' if old == new else 'DIFFERENT'}", flush=True)
    return old == new


def timed(build: Build, *arguments: str) -> float:
    start = time.perf_counter()
    build.run(*arguments)
    return time.perf_counter() - start


def speeds(old: Build, new: Build, model: str, rounds: int = 7) -> None:
    prompt = "word " * 400
    tasks = {
        "decode, 128 tokens": ["run", "-m", model, "--raw", "-p", "Once", "-n", "128", "--temp", "0", "--json", "-q"],
        "prefill, 400 tokens": ["run", "-m", model, "--raw", "-p", prompt, "-n", "1", "--temp", "0", "--json", "-q"],
    }
    phases = {"decode, 128 tokens": "decode", "prefill, 400 tokens": "prefill"}
    ratios: dict[str, list[float]] = {}
    for round_ in range(rounds + 1):  # the first does not count
        for name, arguments in tasks.items():
            reports = [json.loads(build.run(*arguments)) for build in (old, new)]
            if round_ == 0:
                continue
            ms = [report[phases[name]]["ms"] for report in reports]
            ratios.setdefault(name, []).append(ms[1] / ms[0])
            ratios.setdefault("load", []).append(reports[1]["load"]["ms"] / reports[0]["load"]["ms"])
        if round_ < 3:
            out = [["export", str(ROOT / "tests/data/models/llama-base"), "-o", str(b.folder / f"speed-{round_}")] for b in (old, new)]
            ratios.setdefault("export, small", []).append(timed(new, *out[1]) / timed(old, *out[0]))
    for name, values in ratios.items():
        print(f"{name:<44}new/old {statistics.median(values):.3f}  ({min(values):.3f} to {max(values):.3f})")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--model", help="default: the default model in pd-engine's cache")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "pd-engine"
    model = options.model or str(cache / "SmolLM2-135M-Instruct.Q4_1.gguf")
    same = True
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder)
        old = Build(options.old, base / "old", base / "cache-old")
        new = Build(options.new, base / "new", base / "cache-new")
        for name in MODELS:
            path = str(ROOT / "tests/data/models" / name)
            same &= compare(f"logits {name}", old.logits(path, 40), new.logits(path, 40))
        same &= compare("logits of the default model", old.logits(model, 64), new.logits(model, 64))
        for prompt in PROMPTS:
            same &= compare(f"text {prompt!r}", old.text(model, prompt), new.text(model, prompt))
        for name in MODELS:
            path = str(ROOT / "tests/data/models" / name)
            for weights in FORMATS:
                digests = [build.export(path, weights, "--check", "none") for build in (old, new)]
                same &= compare(f"export {name} {weights}", *digests)
        for weights in FORMATS:  # with a pass over sample text, which decides scales and what errors matter
            same &= compare(f"export of the default model {weights}", old.export(model, weights), new.export(model, weights))
        if options.speed:
            speeds(old, new, model)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
