"""Raw blocks of every weight format and the float32 values the gguf package decodes them to."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as QType
from safetensors.torch import save_file

_BLOCKS = 192
_LARGE_BLOCKS = 48  # of 256 values
_BLOCK_BYTES = {
    QType.Q8_0: 2 + 32,
    QType.Q4_0: 2 + 16,
    QType.Q4_1: 2 + 2 + 16,
    QType.Q5_0: 2 + 4 + 16,
    QType.Q5_1: 2 + 2 + 4 + 16,
    QType.Q4_K: 2 + 2 + 12 + 128,
    QType.Q5_K: 2 + 2 + 12 + 32 + 128,
    QType.Q6_K: 128 + 64 + 16 + 2,
}
_LARGE = {QType.Q4_K, QType.Q5_K, QType.Q6_K}
_ADDED_LATER = {QType.Q5_0, QType.Q5_1} | _LARGE  # drawn last, so that the bytes before them stay
_HAS_OFFSET = {QType.Q4_1, QType.Q5_1, QType.Q4_K, QType.Q5_K}

# Halves worth meeting as a scale or an offset: zeros, the smallest and largest subnormal, the smallest normal,
# ordinary values of both signs, and the largest finite values (which overflow a half but not a float32).
_SPECIAL_HALVES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x3C00, 0xBC00, 0x2E66, 0xAE66, 0x7BFF, 0xFBFF],
    dtype="<u2",
)


def _halves(rng: np.random.Generator, count: int) -> np.ndarray:
    """The special halves first, then finite ones with random bits."""
    bits = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0x83FF, bits).astype("<u2")  # no infinities, no NaNs
    bits[: len(_SPECIAL_HALVES)] = _SPECIAL_HALVES[:count]
    return bits


def _blocks(rng: np.random.Generator, qtype: QType) -> np.ndarray:
    count = _LARGE_BLOCKS if qtype in _LARGE else _BLOCKS
    raw = rng.integers(0, 256, (count, _BLOCK_BYTES[qtype]), dtype=np.uint8)
    scale = 208 if qtype is QType.Q6_K else 0
    raw[:, scale : scale + 2] = _halves(rng, count).view(np.uint8).reshape(count, 2)
    if qtype in _HAS_OFFSET:
        # Every special offset meets every special scale over the file, not only its own twin.
        raw[:, 2:4] = np.roll(_halves(rng, count), 3).view(np.uint8).reshape(count, 2)
    return raw


def make(path: Path) -> None:
    """<type>.raw: U8 [rows, bytes]; <type>.expected: F32 [rows, values]."""
    rng = np.random.Generator(np.random.PCG64(20))
    tensors: dict[str, torch.Tensor] = {}

    def add(name: str, raw: np.ndarray, qtype: QType) -> None:
        expected = gguf.dequantize(raw, qtype).astype(np.float32)
        assert np.isfinite(expected).all(), name
        tensors[f"{name}.raw"] = torch.from_numpy(raw.copy())
        tensors[f"{name}.expected"] = torch.from_numpy(expected.copy())

    for qtype in _BLOCK_BYTES:
        if qtype not in _ADDED_LATER:
            add(qtype.name, _blocks(rng, qtype), qtype)
    halves = _halves(rng, 1024).reshape(32, 32)
    tensors["F16.raw"] = torch.from_numpy(halves.view(np.uint8).copy())
    tensors["F16.expected"] = torch.from_numpy(gguf.dequantize(halves.view(np.float16), QType.F16).astype(np.float32))
    bits = rng.integers(0, 1 << 16, 1024, dtype=np.uint16)
    bits = np.where((bits & 0x7F80) == 0x7F80, bits & 0x807F, bits).astype("<u2").reshape(32, 32)
    add("BF16", bits.view(np.uint8), QType.BF16)
    for qtype in _BLOCK_BYTES:
        if qtype in _ADDED_LATER:
            add(qtype.name, _blocks(rng, qtype), qtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path)
    print(f"quants: {path.stat().st_size} bytes")
