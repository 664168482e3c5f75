"""SmolLM2-135M-Instruct from its GGUF file: greedy continuations, top logits, keys and values, perplexity.

The weights are dequantised by the gguf package and run by transformers in float64, so the goldens answer
"what does this file say", not "what did the model say before it was quantised".
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel, PreTrainedTokenizerFast

from goldens import gguf_files, models, vocab
from goldens.smollm2_text import CHATS, PERPLEXITY_TEXT, PLAIN

_NEW_TOKENS = 64
_TOP = 8
_KV_TOKENS = 64
_KV_LAYERS = (0, 15, 29)
_FULL_LOGITS = ("capital", "chat")  # their last prompt position is stored whole


def make(file: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    model = gguf_files.load_double(file, gguf_files.llama_config(file))
    _check_against_transformers_loader(file, model)
    tokenizer = _tokenizer(file)
    tensors: dict[str, torch.Tensor] = {}
    entries = []
    for name, text in _prompts(tokenizer):
        prompt = torch.tensor(tokenizer.encode(text))
        ids, logits = _continue_greedily(model, prompt)
        tensors |= {f"{name}.{key}": value for key, value in _summary(ids, logits).items()}
        if name in _FULL_LOGITS:
            tensors[f"{name}.last_prompt_logits"] = logits[len(prompt) - 1].float()
        gaps = logits.topk(2).values.diff().abs()
        entries.append(
            {
                "name": name,
                "text": text,
                "prompt_tokens": len(prompt),
                "continuation": tokenizer.decode(ids[len(prompt) :]),
                "smallest_gap": float(f"{gaps.min():.3g}"),  # between the two best logits, over all positions
            }
        )
        print(f"{name}: {len(prompt)} + {_NEW_TOKENS} tokens, smallest gap {entries[-1]['smallest_gap']}", flush=True)
    tensors |= _keys_and_values(model, tensors["passage.ids"][:_KV_TOKENS].long())
    ids = torch.tensor(tokenizer.encode(PERPLEXITY_TEXT))
    nll = _negative_log_likelihood(model, ids)
    tensors |= {"perplexity.ids": ids.to(torch.int32), "perplexity.nll": nll.float()}
    mean = float(nll.mean())
    print(f"perplexity: {len(ids)} tokens, mean NLL {mean:.6f}")
    save_file({name: value.contiguous() for name, value in tensors.items()}, out / "golden.safetensors")
    listing = {
        "source": file.name,
        "new_tokens": _NEW_TOKENS,
        "prompts": entries,
        "perplexity": {"text": PERPLEXITY_TEXT, "mean_nll": mean},
    }
    (out / "prompts.json").write_text(json.dumps(listing, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _check_against_transformers_loader(file: Path, model: PreTrainedModel) -> None:
    """Two readers of the file, written by different people, must give the same weights."""
    other = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name].double(), value), name


def _tokenizer(file: Path) -> PreTrainedTokenizerFast:
    fields = {key: field for key, field in gguf.GGUFReader(file).fields.items() if key.startswith("tokenizer.")}
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [merge.split(" ") for merge in fields["tokenizer.ggml.merges"].contents()]
    assert fields["tokenizer.ggml.pre"].contents() == "smollm"
    specials = [token for token, kind in zip(tokens, types, strict=True) if kind == gguf.TokenType.CONTROL]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=vocab.byte_level_tokenizer(tokens, merges, specials))
    tokenizer.chat_template = fields["tokenizer.chat_template"].contents()
    return tokenizer


def _prompts(tokenizer: PreTrainedTokenizerFast) -> list[tuple[str, str]]:
    chats = [
        (name, tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        for name, messages in CHATS
    ]
    return [*PLAIN, *chats]


def _continue_greedily(model: PreTrainedModel, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns ids [P + new], and the logits of every position [P + new, V] from one call over all of them."""
    ids = prompt
    cache = DynamicCache()
    step = prompt
    with torch.no_grad(), models.float64_throughout():
        for _ in range(_NEW_TOKENS):
            last = model(step[None], cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
            step = last.argmax()[None]
            ids = torch.cat([ids, step])
    logits = models.run(model, ids)["logits"]
    forced = logits[len(prompt) - 1 : -1].argmax(-1)
    assert torch.equal(forced, ids[len(prompt) :]), "step by step and at once disagree"
    return ids, logits


def _summary(ids: torch.Tensor, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    top = logits.topk(_TOP)
    return {
        "ids": ids.to(torch.int32),
        "top_ids": top.indices.to(torch.int32),
        "top_logits": top.values.float(),
        "logsumexp": logits.logsumexp(-1).float(),
    }


def _keys_and_values(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    result = models.run(model, ids, _KV_LAYERS)
    tensors = {"kv.ids": ids.to(torch.int32)}
    for layer in _KV_LAYERS:
        for part in ("k", "v"):
            tensors[f"kv.layer.{layer}.{part}"] = result[f"layer.{layer}.{part}"].float()
    return tensors


def _negative_log_likelihood(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Of tokens 1.. given all before them, in nats."""
    logits = models.run(model, ids)["logits"]
    return torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="none")
