"""Writes a tiny random model as a Hugging Face folder and runs transformers over it."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import zlib
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel

from goldens import vocab
from goldens.cases import Case


def fill_weights(model: PreTrainedModel, seed: int) -> None:
    """Random weights that make every term count: scores with a spread of about 2, logits of about 1.5.

    A default initialisation gives attention that is close to uniform, gains of one and biases of zero, and
    then an engine may drop RoPE, the scale, the gain or the bias and still agree.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    plus_one = config.model_type.startswith("gemma")
    tied = config.tie_word_embeddings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            if "norm" in name:
                value = 0.3 * noise + (0.0 if plus_one else 1.0)
                if "q_norm" in name or "k_norm" in name:
                    value = value + 0.3
            elif name.endswith(".bias"):
                value = 0.4 * noise
            elif "embed_tokens" in name:
                value = noise * (1.5 / math.sqrt(config.hidden_size) if tied else 1.0)
            else:
                gain = 1.5 if "q_proj" in name or "k_proj" in name or "lm_head" in name else 1.0
                value = noise * (gain / math.sqrt(parameter.shape[1]))
            parameter.copy_(value)


def build(case: Case) -> PreTrainedModel:
    torch.manual_seed(0)  # the initialisation is overwritten; seeded so that nothing here depends on chance
    model = AutoModelForCausalLM.from_config(case.config, dtype=torch.float32)
    fill_weights(model, seed=zlib.crc32(case.name.encode()))
    return model.to(getattr(torch, case.dtype))


def save_folder(case: Case, model: PreTrainedModel, folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    model.save_pretrained(folder, max_shard_size=case.shard_bytes or 1 << 30)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if case.old_style is not None:
        _write_old_config(folder, case)
    if case.tokenizer:
        _write_tokenizer(folder)


def _write_old_config(folder: Path, case: Case) -> None:
    """The same model in the keys of transformers 4: rope_theta beside rope_scaling, torch_dtype, no layer_types."""
    overrides = case.old_style
    config = json.loads((folder / "config.json").read_text())
    for key in case.old_absent:
        del config[key]
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    if "rope_theta" not in overrides:
        config["rope_theta"] = rope["rope_theta"]
    config["transformers_version"] = "4.46.0"
    config |= {"rope_scaling": None} | overrides
    (folder / "config.old.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _write_tokenizer(folder: Path) -> None:
    bpe = vocab.byte_level_vocab()
    vocab.byte_level_tokenizer(bpe.tokens, bpe.merges, vocab.SPECIALS).save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "add_bos_token": False,
        "bos_token": "<|im_start|>",
        "chat_template": vocab.CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "pad_token": "<|pad|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<|endoftext|>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config, indent=2, sort_keys=True) + "\n")
    # A second end-of-sequence id that only this file names.
    generation = {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 3}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2, sort_keys=True) + "\n")


def load_double(folder: Path, **kwargs) -> PreTrainedModel:
    """dtype is given at load, not by .double(): Gemma rounds its embedding scale to the dtype it is built in."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", **kwargs)
    return model.eval()


class _Recorder(DynamicCache):
    """Keeps the keys and values of a call as they come in; a window layer's cache would drop the oldest."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        self.seen[layer_idx] = (key_states[0], value_states[0])
        return super().update(key_states, value_states, layer_idx, *args, **kwargs)


class _WideCasts(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wide = lambda value: torch.float64 if value is torch.float32 else value  # noqa: E731
        return func(*map(wide, args), **{key: wide(value) for key, value in (kwargs or {}).items()})


@contextlib.contextmanager
def float64_throughout():
    """Turns the casts to float32 that transformers makes even in a float64 model (RoPE frequencies and angles,
    norms, softmax) into casts to float64, so that a golden carries no rounding to speak of: the plain float64
    model is up to 1e-4 away from it, which would hide a wrong epsilon."""
    torch.set_default_dtype(torch.float64)
    try:
        with _WideCasts():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def _reset_rope(model: PreTrainedModel) -> None:
    """Dynamic NTK and LongRoPE remember the longest call; every golden is one call of a fresh model."""
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)


def run(model: PreTrainedModel, ids: torch.Tensor, layers: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """One call over the whole prompt, float64 throughout. ids: [T]. Returns logits [T, V], and for each of
    `layers` k and v [kv_heads, T, head_dim] as cached, k_raw (after any qk-norm, before RoPE), out [T, width]."""
    with float64_throughout():
        return _run(model, ids, layers)


def _run(model: PreTrainedModel, ids: torch.Tensor, layers: tuple[int, ...]) -> dict[str, torch.Tensor]:
    out: dict[str, torch.Tensor] = {}
    hooks = []

    def keep_raw(layer: int):
        def hook(module, inputs, result):
            # k_proj gives [T, heads * dim], Qwen's k_norm [T, heads, dim], Gemma's [heads, T, dim].
            keys = result[0]
            if keys.shape[0] == len(ids):
                keys = keys.view(len(ids), -1, model.model.layers[layer].self_attn.head_dim).transpose(0, 1)
            out[f"layer.{layer}.k_raw"] = keys

        return hook

    def keep_output(layer: int):
        def hook(module, inputs, result):
            out[f"layer.{layer}.out"] = (result[0] if isinstance(result, tuple) else result)[0]

        return hook

    for layer in layers:
        block = model.model.layers[layer]
        source = getattr(block.self_attn, "k_norm", block.self_attn.k_proj)
        hooks += [source.register_forward_hook(keep_raw(layer)), block.register_forward_hook(keep_output(layer))]
    _reset_rope(model)
    cache = _Recorder()
    with torch.no_grad():
        logits = model(ids[None], cache=cache, use_cache=True).logits[0]
    for hook in hooks:
        hook.remove()
    out["logits"] = logits
    for layer in layers:
        out[f"layer.{layer}.k"], out[f"layer.{layer}.v"] = cache.seen[layer]
    return out


def rounding(model: PreTrainedModel, ids: torch.Tensor, logits: torch.Tensor) -> float:
    """Largest distance of a logit from what the unmodified transformers gives for a float64 model."""
    return float((_run(model, ids, ())["logits"] - logits).abs().max())


def prompts(case: Case) -> list[torch.Tensor]:
    """Random ids, the shorter prompts being prefixes of the longest: what differs is only the length."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name} prompt".encode()))
    longest = torch.randint(0, case.config.vocab_size, (max(case.lengths),), generator=generator)
    return [longest[:length] for length in case.lengths]


def write_golden(case: Case, model: PreTrainedModel, path: Path, layers: tuple[int, ...]) -> dict:
    """Writes prompt.<i>.{ids,logits,...}; returns the entry for models.json."""
    tensors: dict[str, torch.Tensor] = {}
    rounding_error = 0.0
    spread = []
    for index, ids in enumerate(prompts(case)):
        result = run(model, ids, layers if index == 0 else ())
        rounding_error = max(rounding_error, rounding(model, ids, result["logits"]))
        spread.append(float(result["logits"].std()))
        tensors[f"prompt.{index}.ids"] = ids.to(torch.int32)
        for name, value in result.items():
            tensors[f"prompt.{index}.{name}"] = value.to(torch.float32).contiguous()
    save_file(tensors, path)
    return {
        "prompt_lengths": list(case.lengths),
        "logit_std": round(sum(spread) / len(spread), 3),
        "rounding": float(f"{rounding_error:.2e}"),
    }
