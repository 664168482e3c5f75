#!/usr/bin/env python3
"""Times llama.cpp on a GGUF file: decode of one stream, decode of many streams, prefill. Prints one JSON object.

    python3 -m venv peer
    CC=clang-19 CXX=clang++-19 CMAKE_ARGS=-DGGML_NATIVE=ON peer/bin/pip install --no-binary llama-cpp-python \
        llama-cpp-python==0.3.36
    peer/bin/python tools/llama_cpp_peer.py MODEL.gguf --threads 2 --golden tests/data/smollm2/golden.safetensors

Tokens are fixed and pseudo-random and nothing is sampled, so that only the model is timed (llama-bench does the
same). With --golden the run first compares llama.cpp's logits with that file and refuses to time a model whose
answers are wrong. Build with clang: GCC 12 drops the stores to the tile configuration that its own
_tile_loadconfig reads, so a native build crashes in the first matmul of a CPU with AMX (add -mno-amx-int8 to
CMAKE_C_FLAGS and CMAKE_CXX_FLAGS to build without AMX).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import re
import statistics
import struct
import sys
import time
from pathlib import Path

import llama_cpp
import numpy as np

_LEAST_AGREEMENT = 0.9  # of greedy tokens; llama.cpp quantises activations, so close calls may fall either way


class Session:
    """One model and one context. Positions start at 0 after clear()."""

    def __init__(self, path: Path, threads: int, context: int, streams: int) -> None:
        parameters = llama_cpp.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
        if not self._model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = context * streams
        options.n_batch = options.n_ubatch = 512
        options.n_seq_max = streams
        options.n_threads = options.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise SystemExit(f"{path}: llama.cpp gives no context of {options.n_ctx} tokens")
        self._batch = llama_cpp.llama_batch_init(512, 0, 1)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def feed(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """rows: (token, position, stream, logits wanted). Returns when the result is there."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, (token, position, stream, wanted) in enumerate(rows):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = stream
            batch.logits[index] = wanted
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise SystemExit(f"llama_decode failed with {status}")
        llama_cpp.llama_synchronize(self._context)

    def logits(self, row: int) -> np.ndarray:
        pointer = llama_cpp.llama_get_logits_ith(self._context, row)
        return np.ctypeslib.as_array(pointer, (self.vocab,)).copy()


def rates(session: Session, streams: int, steps: int, depth: int, repetitions: int) -> list[float]:
    """Total tokens per second of `steps` steps with one token for each stream, after a prompt of `depth` tokens."""
    tokens = _tokens(session.vocab, depth + steps)
    results = []
    for _ in range(repetitions + 1):  # the first is warm-up
        session.clear()
        for stream in range(streams):
            session.feed([(tokens[i], i, stream, i == depth - 1) for i in range(depth)])
        start = time.perf_counter()
        for step in range(depth, depth + steps):
            session.feed([(tokens[step], step, stream, True) for stream in range(streams)])
        results.append(streams * steps / (time.perf_counter() - start))
    return results[1:]


def prefill_rates(session: Session, length: int, repetitions: int) -> list[float]:
    rows = [(token, index, 0, index == length - 1) for index, token in enumerate(_tokens(session.vocab, length))]
    results = []
    for _ in range(repetitions + 1):
        session.clear()
        start = time.perf_counter()
        session.feed(rows)
        results.append(length / (time.perf_counter() - start))
    return results[1:]


def _tokens(vocab: int, count: int) -> list[int]:
    return [int(token) for token in np.random.Generator(np.random.PCG64(1)).integers(0, vocab, count)]


def summary(values: list[float]) -> dict:
    return {
        "median": round(statistics.median(values), 1),
        "min": round(min(values), 1),
        "max": round(max(values), 1),
        "repetitions": len(values),
    }


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    types = {"F32": np.float32, "I32": np.int32}
    return {
        name: np.frombuffer(
            data, types[entry["dtype"]], int(np.prod(entry["shape"])), 8 + length + entry["data_offsets"][0]
        ).reshape(entry["shape"])
        for name, entry in json.loads(data[8 : 8 + length]).items()
        if name != "__metadata__"
    }


def compare(session: Session, golden: Path) -> dict:
    """Greedy agreement and largest logit difference over every prompt of a golden file."""
    tensors = read_safetensors(golden)
    same, positions, worst = 0, 0, 0.0
    for key in sorted(tensors):
        name, kind = key.rsplit(".", 1)
        full, top = f"{name}.logits", f"{name}.top_ids"
        if kind != "ids" or not (full in tensors or top in tensors):
            continue
        ids = tensors[key]
        session.clear()
        session.feed([(int(token), index, 0, True) for index, token in enumerate(ids)])
        for row in range(len(ids)):
            logits = session.logits(row)
            if full in tensors:
                best, difference = tensors[full][row].argmax(), np.abs(logits - tensors[full][row]).max()
            else:
                best = tensors[top][row][0]
                difference = np.abs(logits[tensors[top][row]] - tensors[f"{name}.top_logits"][row]).max()
            same += int(logits.argmax() == best)
            positions += 1
            worst = max(worst, float(difference))
    return {
        "positions": positions,
        "greedy_agreement": round(same / positions, 4),
        "largest_difference": float(f"{worst:.3g}"),
    }


def features() -> list[str]:
    info = llama_cpp.llama_print_system_info().decode()
    return re.findall(r"(\w+) = 1\b", info)


def cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor()


@contextlib.contextmanager
def quiet_stderr():
    """llama.cpp logs a page for each load; its callback needs an object that outlives it."""
    callback = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(callback, ctypes.c_void_p(0))
    yield
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(), ctypes.c_void_p(0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--steps", type=int, default=64, help="decode steps in a repetition")
    parser.add_argument("--depth", type=int, default=32, help="tokens of context before the timed steps")
    parser.add_argument("--prefill", type=int, default=512, help="tokens, at most 512")
    parser.add_argument("--golden", type=Path, help="compare with this file first")
    parser.add_argument("--only-compare", action="store_true")
    args = parser.parse_args()
    if args.repetitions < 5:
        parser.error("--repetitions must be at least 5")
    if args.only_compare and not args.golden:
        parser.error("--only-compare needs --golden")

    with quiet_stderr():
        llama_cpp.llama_backend_init()
        session = Session(args.model, args.threads, 512, args.streams)
        report = {
            "model": args.model.name,
            "llama_cpp_python": llama_cpp.__version__,
            "cpu": cpu_name(),
            "features": features(),
            "threads": args.threads,
        }
        if args.golden:
            report["golden"] = compare(session, args.golden)
            if report["golden"]["greedy_agreement"] < _LEAST_AGREEMENT:
                print(json.dumps(report, indent=1))
                print("llama.cpp disagrees with the golden file: nothing timed", file=sys.stderr)
                return 1
        if not args.only_compare:
            report["decode_tokens_per_s"] = summary(rates(session, 1, args.steps, args.depth, args.repetitions))
            many = rates(session, args.streams, args.steps, args.depth, args.repetitions)
            report[f"decode_{args.streams}_streams_tokens_per_s"] = summary(many)
            report[f"prefill_{args.prefill}_tokens_per_s"] = summary(
                prefill_rates(session, args.prefill, args.repetitions)
            )
    print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
