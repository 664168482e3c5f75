#!/usr/bin/env python3
"""Writes the seeds of the format fuzzers: a whole model of each family, as small as it can be.

    tools/make_fuzz_seeds.py [OUT]        OUT: fuzz/corpus
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

WIDTH, VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 4, 3, 2, 2, 1, 2
F32 = 0  # the tensor type


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, value: object) -> bytes:
    if isinstance(value, bool):
        return text(key) + struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    assert isinstance(value, list) and all(isinstance(item, str) for item in value)
    return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))


def gguf(arch: str, extra: dict[str, object], tensors: dict[str, list[int]]) -> bytes:
    keys: dict[str, object] = {
        "block_count": 1,
        "context_length": 16,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 10000.0,
    } | extra
    entries = [entry("general.architecture", arch), entry("tokenizer.ggml.tokens", ["a", "b", "c"])]
    entries += [entry(f"{arch}.{key}", value) for key, value in keys.items()]
    records, data = b"", b""
    for name, shape in tensors.items():
        size = 4
        for dimension in shape:
            size *= dimension
        data += bytes(-len(data) % 32)
        records += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        records += struct.pack("<IQ", F32, len(data))
        data += struct.pack("<f", 1.0) * (size // 4)
    file = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries) + records
    return file + bytes(-len(file) % 32) + data


def layer_tensors(norms: list[str], biases: bool) -> dict[str, list[int]]:
    matrices = {
        "attn_q": [HEADS * HEAD_DIM, WIDTH],
        "attn_k": [KV_HEADS * HEAD_DIM, WIDTH],
        "attn_v": [KV_HEADS * HEAD_DIM, WIDTH],
        "attn_output": [WIDTH, HEADS * HEAD_DIM],
        "ffn_gate": [HIDDEN, WIDTH],
        "ffn_up": [HIDDEN, WIDTH],
        "ffn_down": [WIDTH, HIDDEN],
    }
    tensors = {"token_embd.weight": [VOCAB, WIDTH], "output_norm.weight": [WIDTH]}
    tensors |= {f"blk.0.{name}.weight": shape for name, shape in matrices.items()}
    tensors |= {f"blk.0.{name}.weight": [HEAD_DIM if name.endswith(("q_norm", "k_norm")) else WIDTH] for name in norms}
    if biases:
        tensors |= {f"blk.0.{name}.bias": [matrices[name][0]] for name in ("attn_q", "attn_k", "attn_v")}
    return tensors


def gguf_seeds() -> dict[str, bytes]:
    plain = ["attn_norm", "ffn_norm"]
    normed = plain + ["attn_q_norm", "attn_k_norm"]
    head = {"output.weight": [VOCAB, WIDTH]}
    yarn = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 8}
    gemma = {"attention.sliding_window": 4, "final_logit_softcapping": 30.0}
    factors = {"rope_freqs.weight": [HEAD_DIM // 2]}
    output_bias = {"blk.0.attn_output.bias": [WIDTH]}
    return {
        "llama.gguf": gguf("llama", {"vocab_size": VOCAB}, layer_tensors(plain, False) | head | factors),
        "llama-bias.gguf": gguf("llama", {}, layer_tensors(plain, True) | output_bias),
        "qwen2.gguf": gguf("qwen2", yarn, layer_tensors(plain, True)),
        "qwen3.gguf": gguf("qwen3", {}, layer_tensors(normed, False) | head),
        "gemma3.gguf": gguf("gemma3", gemma, layer_tensors(normed + ["post_attention_norm", "post_ffw_norm"], False)),
    }


def safetensors_seeds() -> dict[str, bytes]:
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
        "none": {"dtype": "F16", "shape": [0, 7], "data_offsets": [22, 22]},
    }
    data = json.dumps(header).encode()
    return {"three.safetensors": struct.pack("<Q", len(data)) + data + bytes(22), "none.safetensors": b"\2" + bytes(7) + b"{}"}


def config_seeds() -> dict[str, bytes]:
    sizes = {
        "vocab_size": VOCAB,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": 4,
        "max_position_embeddings": 64,
    }
    ropes: dict[str, dict[str, object]] = {
        "linear": {"type": "linear", "factor": 2.0},
        "dynamic": {"rope_type": "dynamic", "factor": 2.0},
        "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 16, "truncate": False},
        "yarn-mscale": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.0, "mscale_all_dim": 0.7, "attention_factor": None},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "longrope": {"rope_type": "longrope", "short_factor": [1, 1], "long_factor": [2, 3], "original_max_position_embeddings": 16},
        "factors": {"rope_type": "factors", "factors": [1, 2]},
    }
    seeds = {f"llama-{name}": sizes | {"model_type": "llama", "rope_scaling": rope} for name, rope in ropes.items()}
    seeds["llama-new"] = sizes | {"model_type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    seeds["mistral"] = sizes | {"model_type": "mistral", "sliding_window": 8}
    seeds["qwen2"] = sizes | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    seeds["qwen3"] = sizes | {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 8} | {
        "layer_types": ["full_attention", "sliding_attention"]
    }
    gemma = {"model_type": "gemma3_text", "sliding_window": 8, "query_pre_attn_scalar": 4, "final_logit_softcapping": 30.0}
    seeds["gemma3-old"] = sizes | gemma | {"rope_scaling": ropes["linear"], "rope_local_base_freq": 1e4, "sliding_window_pattern": 2}
    seeds["gemma3-new"] = sizes | gemma | {
        "rope_parameters": {"full_attention": ropes["linear"] | {"rope_theta": 1e6}, "sliding_attention": {"rope_type": "default"}}
    }
    seeds["gemma3-seeing"] = {"model_type": "gemma3", "text_config": {"sliding_window": 8}, "vision_config": {}}
    return {f"{name}.json": json.dumps(config).encode() for name, config in seeds.items()}


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent / "fuzz" / "corpus"
    for name, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()), ("config", config_seeds())):
        folder = out / f"formats_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in seeds.items():
            (folder / file).write_bytes(data)


if __name__ == "__main__":
    main()
