#!/usr/bin/env python3
"""Writes tests/data/models/parameter_counts.json: how many parameters transformers gives models of families whose mixers and
feed-forwards are described in model/spec.h, at sizes that differ from each other. tests/model/specs_test.cc writes the same models as
specs and counts.

usage: tools/make_parameter_counts.py      in an environment of tools/requirements-goldens.txt and peft
"""
from __future__ import annotations

import json
import pathlib

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/models/parameter_counts.json"

ROPE = {"rope_theta": 10000.0, "rope_type": "default"}
QWEN35 = {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "full_attention_interval": 4, "max_position_embeddings": 256, "tie_word_embeddings": False,
          "layer_types": ["linear_attention"] * 3 + ["full_attention"]}
CONFIGS = {
    "qwen3_5": ("qwen3_5_text", {**QWEN35, "intermediate_size": 56}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**QWEN35, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
                                         "shared_expert_intermediate_size": 20}),
    "gpt_oss": ("gpt_oss", {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 24, "num_local_experts": 6,
                            "num_experts_per_tok": 2, "sliding_window": 8, "max_position_embeddings": 256,
                            "tie_word_embeddings": False}),
    "lfm2": ("lfm2", {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
                      "intermediate_size": 56, "block_auto_adjust_ff_dim": False, "conv_L_cache": 3, "conv_bias": False,
                      "layer_types": ["conv", "full_attention", "conv"], "max_position_embeddings": 256}),
    "gemma4": ("gemma4_text", {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 6, "num_attention_heads": 4,
                               "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16, "num_global_key_value_heads": 1,
                               "attention_k_eq_v": True, "intermediate_size": 56, "hidden_size_per_layer_input": 12,
                               "vocab_size_per_layer_input": 96, "num_kv_shared_layers": 0, "enable_moe_block": True,
                               "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 24, "sliding_window": 8,
                               "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2, "max_position_embeddings": 256}),
    "nemotron_h": ("nemotron_h", {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 4, "hybrid_override_pattern": "M*-M",
                                  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 56,
                                  "mamba_num_heads": 6, "mamba_head_dim": 8, "n_groups": 2, "ssm_state_size": 16, "conv_kernel": 4,
                                  "max_position_embeddings": 256, "tie_word_embeddings": False}),
    "llama": ("llama", {"vocab_size": 96, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                        "intermediate_size": 56, "max_position_embeddings": 256, "tie_word_embeddings": False}),
}


def count(model: torch.nn.Module) -> int:
    """Parameters, and the buffers that a checkpoint holds too (Gemma 4's layer scalars)."""
    saved = model.state_dict()
    return sum(p.numel() for p in model.parameters()) + sum(b.numel() for n, b in model.named_buffers() if n in saved)


def main() -> None:
    counts = {}
    for name, (model_type, values) in CONFIGS.items():
        config = AutoConfig.for_model(model_type, **values)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        counts[name] = count(model)
        if name == "llama":
            from peft import LoraConfig, get_peft_model
            lora = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"))
            counts["llama_lora"] = count(lora)
    OUT.write_text(json.dumps({"transformers": transformers.__version__, "counts": counts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
