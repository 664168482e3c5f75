"""RoPE frequencies of published configurations as transformers computes them, and a partial rotation."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, Phi3Config
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding, apply_rotary_pos_emb

from goldens.models import float64_throughout

_PHI3_SHORT = [1.0 + 0.01 * i for i in range(48)]
_PHI3_LONG = [1.08 + 0.03 * i * i for i in range(48)]

# (name, head_dim, max_position_embeddings, sequence lengths, rope_parameters). Lengths matter to dynamic and longrope.
_CASES = [
    ("default", 64, 8192, [1], {"rope_type": "default", "rope_theta": 100000.0}),
    ("default-big-theta", 128, 40960, [1], {"rope_type": "default", "rope_theta": 1000000.0}),
    ("linear-gemma3", 256, 131072, [1], {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}),
    ("dynamic", 128, 2048, [100, 2048, 2049, 8192], {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    (
        "yarn-qwen",
        128,
        131072,
        [1],
        {"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    (
        "yarn-attention-factor",
        64,
        65536,
        [1],
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "attention_factor": 1.5,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
        },
    ),
    (
        "yarn-mscale-untruncated",
        64,
        163840,
        [1],
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 1.0,
            "mscale_all_dim": 0.707,
            "truncate": False,
        },
    ),
    (
        "llama3-8b",
        128,
        131072,
        [1],
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        "llama3-1b",
        64,
        131072,
        [1],
        {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    (
        "longrope-phi3",
        96,
        131072,
        [1, 4096, 4097],
        {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": _PHI3_SHORT,
            "long_factor": _PHI3_LONG,
            "original_max_position_embeddings": 4096,
        },
    ),
    (
        "linear-partial",
        64,
        4096,
        [1],
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0, "partial_rotary_factor": 0.5},
    ),
    (
        "yarn-partial",
        80,
        32768,
        [1],
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 4096,
            "partial_rotary_factor": 0.4,
        },
    ),
]


def make(out: Path) -> None:
    """rope.json lists the cases; rope.safetensors holds <case>.<length>.inv_freq F64 [dims / 2], which transformers
    would round to float32, and one partial rotation: partial.{q,k,q_rotated,k_rotated} F32 [heads, T, 64]."""
    out.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    entries = []
    for name, head_dim, context, lengths, parameters in _CASES:
        config = LlamaConfig(
            hidden_size=4 * head_dim,
            num_attention_heads=4,
            max_position_embeddings=context,
            rope_parameters=dict(parameters),
        )
        scaling = parameters["rope_type"]
        for length in lengths:
            compute = ROPE_INIT_FUNCTIONS.get(scaling, LlamaRotaryEmbedding.compute_default_rope_parameters)
            with float64_throughout():
                frequencies, factor = compute(config, seq_len=length)
            tensors[f"{name}.{length}.inv_freq"] = frequencies
        entries.append(
            {
                "name": name,
                "head_dim": head_dim,
                "max_position_embeddings": context,
                "rope_parameters": parameters,
                "lengths": lengths,
                "attention_factor": float(factor),
            }
        )
    tensors |= _partial()
    save_file(tensors, out / "rope.safetensors")
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    (out / "rope.json").write_text(f"[\n  {lines}\n]\n")
    print(f"rope: {len(entries)} cases")


def _partial() -> dict[str, torch.Tensor]:
    """Phi-3's rotation of the first 48 of 64 channels (partial_rotary_factor 0.75, base 10000), positions 0..11."""
    config = Phi3Config(
        hidden_size=256,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75},
    )
    generator = torch.Generator().manual_seed(5)
    q = torch.randn((1, 4, 12, 64), generator=generator).double()
    k = torch.randn((1, 2, 12, 64), generator=generator).double()
    with float64_throughout():
        cos, sin = Phi3RotaryEmbedding(config)(q, torch.arange(12)[None])
        q_rotated, k_rotated = apply_rotary_pos_emb(q, k, cos, sin)
    assert cos.shape[-1] == 48
    named = {"q": q, "k": k, "q_rotated": q_rotated, "k_rotated": k_rotated}
    return {f"partial.{name}": value[0].float().contiguous() for name, value in named.items()}
