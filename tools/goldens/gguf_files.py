"""GGUF files as llama.cpp's converter lays them out, and the way back into a transformers model."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as QType
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from goldens import vocab
from goldens.cases import Case, GgufFile
from goldens.models import float64_throughout

_ARCH = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}

_BLOCK_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Gemma norms before and after each half; Llama and Qwen only before.
_PLAIN_NORMS = {"post_attention_layernorm": "ffn_norm"}
_GEMMA_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_OUTER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def gguf_name(name: str, arch: str) -> str:
    """model.layers.3.self_attn.q_proj.bias -> blk.3.attn_q.bias"""
    if name in _OUTER_NAMES:
        return _OUTER_NAMES[name]
    layer, part, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)", name).groups()
    names = _BLOCK_NAMES | (_GEMMA_NORMS if arch == "gemma3" else _PLAIN_NORMS)
    return f"blk.{layer}.{names[part]}.{kind}"


def interleave_rows(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Canonical halves (x0..xn/2, xn/2..xn) of each head to the pairs (x0, xn/2, x1, ...) that llama files hold."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def deinterleave_rows(rows: torch.Tensor, heads: int) -> torch.Tensor:
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def _permuted_heads(name: str, config: PreTrainedConfig) -> int | None:
    if config.model_type != "llama":
        return None
    if "q_proj" in name:
        return config.num_attention_heads
    return config.num_key_value_heads if "k_proj" in name else None


def write(case: Case, file: GgufFile, model: PreTrainedModel, path: Path) -> None:
    config = model.config
    arch = _ARCH[config.model_type]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(case.name)
    _add_parameters(writer, config, arch)
    writer.add_file_type(gguf.LlamaFileType[_file_type(file)])
    _add_vocabulary(writer, config, arch)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)

    rope = config.rope_parameters
    if arch == "llama" and rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_factors(config))
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        tensor = tensor.to(torch.float32)
        if arch == "gemma3" and name.endswith("norm.weight"):
            tensor = tensor + 1.0
        if heads := _permuted_heads(name, config):
            tensor = interleave_rows(tensor, heads)
        new_name = gguf_name(name, arch)
        qtype = {"token_embd.weight": file.embed, "output.weight": file.head}.get(new_name, file.block)
        if tensor.dim() == 1:
            qtype = "F32"
        qtype = QType[qtype]
        writer.add_tensor(new_name, gguf.quantize(tensor.contiguous().numpy(), qtype), raw_dtype=qtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _file_type(file: GgufFile) -> str:
    return "ALL_F32" if file.block == "F32" else f"MOSTLY_{file.block}"


def _add_parameters(writer: gguf.GGUFWriter, config: PreTrainedConfig, arch: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if arch != "qwen2":  # its config has no head_dim: the converter writes none
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    rope = config.rope_parameters
    if arch == "gemma3":
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        writer.add_sliding_window(config.sliding_window)
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    else:
        assert rope["rope_type"] in ("default", "llama3"), rope
    if arch == "llama":
        writer.add_vocab_size(config.vocab_size)
        writer.add_rope_dimension_count(config.head_dim)


def _add_vocabulary(writer: gguf.GGUFWriter, config: PreTrainedConfig, arch: str) -> None:
    if arch == "gemma3":
        spm = vocab.sentencepiece_vocab()
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(list(spm.tokens))
        writer.add_token_scores(list(spm.scores))
        writer.add_token_types(list(spm.types))
        writer.add_bos_token_id(config.bos_token_id)
        writer.add_eos_token_id(config.eos_token_id)
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(config.pad_token_id)
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
        return
    bpe = vocab.byte_level_vocab(config.vocab_size)
    specials = len(vocab.SPECIALS)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre({"llama": "smollm"}.get(arch, "qwen2"))
    writer.add_token_list(list(bpe.tokens))
    writer.add_token_types([gguf.TokenType.CONTROL] * specials + [gguf.TokenType.NORMAL] * (len(bpe.tokens) - specials))
    writer.add_token_merges([f"{left} {right}" for left, right in bpe.merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(3)
    writer.add_add_bos_token(False)
    writer.add_chat_template(vocab.CHAT_TEMPLATE)


def _llama3_factors(config: PreTrainedConfig) -> np.ndarray:
    """What the plain inverse frequencies are divided by. llama.cpp stores this instead of the scaling's parameters."""
    with float64_throughout():
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config)
        plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    return (plain / scaled).to(torch.float32).numpy()


def decoded_state(path: Path, config: PreTrainedConfig) -> dict[str, torch.Tensor]:
    """The file's weights in float32 under transformers' names: rows in canonical order, gains as it keeps them."""
    arch = _ARCH[config.model_type]
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    model = AutoModelForCausalLM.from_config(config)
    state = {}
    for name in model.state_dict():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        tensor = stored.pop(gguf_name(name, arch))
        values = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=True))
        values = values.reshape(model.state_dict()[name].shape)
        if heads := _permuted_heads(name, config):
            values = deinterleave_rows(values, heads)
        if arch == "gemma3" and name.endswith("norm.weight"):
            values = values - 1.0
        state[name] = values
    stored.pop("rope_freqs.weight", None)
    assert not stored, f"{path}: tensors nobody asked for: {sorted(stored)}"
    return state


def load_double(path: Path, config: PreTrainedConfig) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation="eager")
    missing, unexpected = model.load_state_dict(decoded_state(path, config), strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model.eval()


def llama_config(path: Path) -> LlamaConfig:
    """The config of a llama GGUF without RoPE scaling, from its metadata alone."""
    fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
    heads = fields["llama.attention.head_count"]
    width = fields["llama.embedding_length"]
    names = {tensor.name for tensor in gguf.GGUFReader(path).tensors}
    assert fields["general.architecture"] == "llama" and "llama.rope.scaling.type" not in fields
    return LlamaConfig(
        vocab_size=fields["llama.vocab_size"],
        hidden_size=width,
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        head_dim=fields.get("llama.attention.key_length", width // heads),
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        tie_word_embeddings="output.weight" not in names,
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
    )
