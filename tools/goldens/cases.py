"""The tiny random models: which configurations exist and what each of them is there to catch.

Sizes are chosen so that every dimension differs from its neighbours where the family allows it
(width, query width, MLP width, vocabulary, head_dim), so that a swapped axis cannot pass unseen.
RoPE bases are small (100 to 1000) because real ones leave most pairs unrotated over 100 positions.
"""

from __future__ import annotations

import dataclasses

from transformers import Gemma3TextConfig, LlamaConfig, PreTrainedConfig, Qwen2Config, Qwen3Config

from goldens.vocab import VOCAB_SIZE


@dataclasses.dataclass(frozen=True)
class GgufFile:
    suffix: str  # file is <case>.<suffix>.gguf
    block: str  # gguf type of the matrices inside blocks
    embed: str  # gguf type of token_embd.weight
    head: str  # gguf type of output.weight; unused by tied models
    same_weights: bool  # the file decodes to exactly the folder's weights: the folder's golden is its golden


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    covers: str
    config: PreTrainedConfig
    lengths: tuple[int, ...]  # one prompt each, tokens
    dtype: str = "float32"  # of the stored weights
    shard_bytes: int | None = None  # None: one model.safetensors
    old_style: dict | None = None  # also write config.old.json, the same model in the keys of transformers 4
    old_absent: tuple[str, ...] = ()  # keys that real files of that time leave to the family's default
    layers_kept: tuple[int, ...] = ()  # layers whose keys, values and outputs are stored for the first prompt
    tokenizer: bool = False  # the folder carries tokenizer.json and a chat template
    gguf: tuple[GgufFile, ...] = ()


def _gguf(suffix: str, *, same: bool = False, block: str = "", embed: str = "", head: str = "") -> GgufFile:
    base = suffix.upper()
    return GgufFile(suffix, block or base, embed or base, head or base, same)


def _llama(**overrides) -> LlamaConfig:
    fields = dict(
        vocab_size=112,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        bos_token_id=1,
        eos_token_id=2,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    fields.update(overrides)
    return LlamaConfig(**fields)


def _qwen2(**overrides) -> Qwen2Config:
    fields = dict(
        vocab_size=120,
        hidden_size=48,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    )
    fields.update(overrides)
    return Qwen2Config(**fields)


def _qwen3(**overrides) -> Qwen3Config:
    fields = dict(
        vocab_size=136,
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=2,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
    )
    fields.update(overrides)
    return Qwen3Config(**fields)


def _gemma3(**overrides) -> Gemma3TextConfig:
    fields = dict(
        vocab_size=VOCAB_SIZE,
        hidden_size=40,  # sqrt is irrational: an embedding scale rounded to bfloat16 shows
        intermediate_size=56,
        num_hidden_layers=7,  # five local, one global, one local
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        query_pre_attn_scalar=16,
        max_position_embeddings=512,
        sliding_window=16,
        rms_norm_eps=1e-6,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    )
    fields.update(overrides)
    return Gemma3TextConfig(**fields)


def _yarn(**overrides) -> dict:
    return {
        "rope_type": "yarn",
        "rope_theta": 200.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    } | overrides


_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 200.0,
    "short_factor": [1.0, 1.02, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3],
    "long_factor": [1.0, 1.2, 1.5, 2.0, 2.75, 3.5, 4.5, 6.0],
    "original_max_position_embeddings": 40,
}

_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 200.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Wavelengths are 2 pi 200^(i/8): three above the band, two inside it, three below.
    "original_max_position_embeddings": 128,
}

CASES: tuple[Case, ...] = (
    Case(
        "llama-base",
        "Llama, untied head, GQA 2, F16, byte-level tokenizer and ChatML template; GGUF Q8_0, Q4_0, Q4_1 "
        "(Q8_0 head; Q4_1 with Q8_0 embedding)",
        _llama(
            vocab_size=VOCAB_SIZE,
            hidden_size=64,
            intermediate_size=96,
            eos_token_id=2,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        ),
        (48,),
        dtype="float16",
        layers_kept=(0, 1),
        tokenizer=True,
        gguf=(
            _gguf("q8_0"),
            _gguf("q4_0", head="Q8_0"),
            _gguf("q4_1", embed="Q8_0", head="Q8_0"),
        ),
    ),
    Case(
        "llama-tied-mha",
        "Llama, tied head, GQA 1, head_dim = width / heads, three layers; GGUF F32",
        _llama(num_key_value_heads=4, head_dim=None, num_hidden_layers=3, tie_word_embeddings=True),
        (48,),
        gguf=(_gguf("f32", same=True),),
    ),
    Case(
        "llama-gqa4-bf16",
        "Llama, GQA 4, head_dim 16 where width / heads is 12, BF16; GGUF BF16",
        _llama(hidden_size=48, num_key_value_heads=1),
        (48,),
        dtype="bfloat16",
        gguf=(_gguf("bf16", same=True),),
    ),
    Case(
        "llama-bias-sharded",
        "Llama with attention_bias and mlp_bias, three shards and an index",
        _llama(attention_bias=True, mlp_bias=True),
        (48,),
        shard_bytes=60_000,
    ),
    Case(
        "llama-linear",
        "Llama, linear RoPE scaling (positions divided by 4)",
        _llama(rope_parameters={"rope_type": "linear", "rope_theta": 200.0, "factor": 4.0}),
        (96,),
        old_style={"rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    Case(
        "llama-dynamic",
        "Llama, dynamic NTK: base grows with the length once it exceeds max_position_embeddings (64)",
        _llama(
            max_position_embeddings=64,
            rope_parameters={"rope_type": "dynamic", "rope_theta": 200.0, "factor": 2.0},
        ),
        (48, 64, 65, 144),
        old_style={"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        layers_kept=(0, 1),
    ),
    Case(
        "llama-yarn-f16",
        "Llama, YaRN with defaults (beta 32/1, truncated band, attention factor 0.1 ln 4 + 1), F16; GGUF F16",
        _llama(max_position_embeddings=128, rope_parameters=_yarn()),
        (24, 128),
        dtype="float16",
        old_style={
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        },
        gguf=(_gguf("f16", same=True),),
    ),
    Case(
        "llama-yarn-custom",
        "Llama, YaRN with own betas, band not truncated, attention factor from mscale / mscale_all_dim",
        _llama(
            max_position_embeddings=128,
            rope_parameters=_yarn(beta_fast=4.0, beta_slow=0.5, truncate=False, mscale=1.2, mscale_all_dim=0.7),
        ),
        (96,),
        old_style={
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "beta_fast": 4.0,
                "beta_slow": 0.5,
                "truncate": False,
                "mscale": 1.2,
                "mscale_all_dim": 0.7,
            },
        },
    ),
    Case(
        "llama-llama3",
        "Llama 3.1 RoPE scaling, tied head; GGUF F32 with rope_freqs.weight",
        _llama(tie_word_embeddings=True, rope_parameters=_LLAMA3),
        (48, 160),
        old_style={
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 128,
            },
        },
        layers_kept=(0, 1),
        gguf=(_gguf("f32", same=True),),
    ),
    Case(
        "llama-longrope",
        "Llama, LongRoPE: short factors up to 40 tokens, long factors above, attention factor from 160 / 40",
        _llama(max_position_embeddings=160, rope_parameters=_LONGROPE),
        (24, 40, 41, 120),
        old_style={
            "original_max_position_embeddings": 40,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": _LONGROPE["short_factor"],
                "long_factor": _LONGROPE["long_factor"],
            },
        },
        layers_kept=(0, 1),
    ),
    Case(
        "qwen2",
        "Qwen 2: biases on q, k, v only; tied head; sliding_window stated but switched off; GGUF F32",
        _qwen2(num_hidden_layers=2, use_sliding_window=False, sliding_window=8),
        (48,),
        old_style={"sliding_window": 8, "max_window_layers": 28},
        layers_kept=(0, 1),
        gguf=(_gguf("f32", same=True),),
    ),
    Case(
        "qwen2-window",
        "Qwen 2 with use_sliding_window: layers from max_window_layers (1) on see 24 tokens; untied head, GQA 4",
        _qwen2(
            num_hidden_layers=2,
            num_key_value_heads=1,
            tie_word_embeddings=False,
            use_sliding_window=True,
            sliding_window=24,
            max_window_layers=1,
        ),
        (96,),
        old_style={"max_window_layers": 1},
    ),
    Case(
        "qwen3",
        "Qwen 3: qk-norm before RoPE, head_dim 16 where width / heads is 10, tied head, GQA 2; GGUF F16",
        _qwen3(num_hidden_layers=2),
        (48,),
        dtype="float16",
        old_style={},
        layers_kept=(0, 1),
        gguf=(_gguf("f16", same=True),),
    ),
    Case(
        "qwen3-yarn",
        "Qwen 3 untied, GQA 1, attention_bias, YaRN (as its long-context recipe), BF16",
        _qwen3(
            num_key_value_heads=4,
            tie_word_embeddings=False,
            attention_bias=True,
            num_hidden_layers=2,
            max_position_embeddings=128,
            rope_parameters=_yarn(rope_theta=1000.0),
        ),
        (96,),
        dtype="bfloat16",
        old_style={
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
        },
    ),
    Case(
        "gemma3",
        "Gemma 3 text: pattern of six, window 16, two RoPE bases, linear scaling on the global layer only, "
        "tied head, BF16; GGUF BF16 with a SentencePiece-style vocabulary",
        _gemma3(),
        (96,),
        dtype="bfloat16",
        old_style={
            "rope_theta": 1000.0,
            "rope_local_base_freq": 100.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window_pattern": 6,
            "cache_implementation": "hybrid",
        },
        old_absent=("_sliding_window_pattern", "tie_word_embeddings", "use_bidirectional_attention"),
        layers_kept=(0, 5),
        gguf=(_gguf("bf16", same=True),),
    ),
    Case(
        "gemma3-scalar",
        "Gemma 3 text: query_pre_attn_scalar 24 with head_dim 8, explicit layer_types starting with a global layer, "
        "final_logit_softcapping 6, window 7, GQA 2, BF16",
        _gemma3(
            vocab_size=104,
            num_hidden_layers=4,
            num_key_value_heads=2,
            head_dim=8,
            query_pre_attn_scalar=24,
            sliding_window=7,
            final_logit_softcapping=6.0,
            layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        ),
        (64,),
        dtype="bfloat16",
    ),
)
