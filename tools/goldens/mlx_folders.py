"""Folders as mlx-lm quantises them, with goldens of transformers on the dequantised weights. Needs mlx and mlx-lm."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlx.core as mx
import numpy as np
import torch
from mlx_lm.utils import load_model, quantize_model, save_config, save_model

from goldens import models
from goldens.cases import CASES

# Every number of bits, two sizes of groups, a plain matrix between quantised ones, a quantised embedding.
_BITS = {"q_proj": 3, "k_proj": 5, "v_proj": 6, "o_proj": 2, "up_proj": 8, "embed_tokens": 8}


def _mixed(path: str, module) -> bool | dict:
    part = path.split(".")[-1]
    if path == "model.layers.1.self_attn.o_proj" or part == "lm_head":
        return False
    if part in _BITS:
        wide = module.weight.shape[-1] % 64 == 0 and part != "k_proj"
        return {"group_size": 64 if wide else 32, "bits": _BITS[part], "mode": "affine"}
    return True


def _usual(path: str, module) -> bool:
    return True


_FOLDERS = (("llama-base", "mixed", mx.float16, _mixed), ("llama-base", "q4-bf16", mx.bfloat16, _usual))


def _dequantised(folder: Path) -> dict[str, torch.Tensor]:
    """Every weight in float64; codes as scale * code + bias in float32, which is what MLX computes from float32 scales."""
    quantization = json.loads((folder / "config.json").read_text())["quantization"]
    tensors = mx.load(str(folder / "model.safetensors"))
    result = {}
    for name, value in tensors.items():
        path = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if f"{path}.scales" in tensors:
            format = quantization.get(path, quantization)
            scales, biases = (tensors[f"{path}.{part}"].astype(mx.float32) for part in ("scales", "biases"))
            value = mx.dequantize(value, scales, biases, format["group_size"], format["bits"])
        result[name] = torch.from_numpy(np.array(value.astype(mx.float32))).to(torch.float64)
    return result


def make(out: Path) -> list[dict]:
    """Writes <case>-mlx-<kind>/ and returns the entries for models.json."""
    mx.set_default_device(mx.cpu)
    cases = {case.name: case for case in CASES}
    entries = []
    for name, kind, dtype, predicate in _FOLDERS:
        case, source, folder = cases[name], out / name, out / f"{name}-mlx-{kind}"
        shutil.rmtree(folder, ignore_errors=True)
        model, config = load_model(source)
        model.set_dtype(dtype)
        model, config = quantize_model(model, config, 32, 4, quant_predicate=predicate)
        save_model(folder, model)
        save_config(config, folder / "config.json")
        loaded = models.load_double(source)
        missing, unexpected = loaded.load_state_dict(_dequantised(folder), strict=False)
        assert not unexpected and all("lm_head" in key for key in missing), (missing, unexpected)
        golden = f"{folder.name}/golden.safetensors"
        numbers = models.write_golden(case, loaded, out / golden, ())
        entries.append({"model": folder.name, "golden": golden, "covers": f"{name} as MLX quantises it, {kind}"} | numbers)
        print(f"{folder.name}: logit std {numbers['logit_std']}")
    return entries
