#!/usr/bin/env python3
"""Makes tests/data/text/folders: what transformers' AutoTokenizer makes of folders that differ in class, flags, post-processor and
in where their special tokens are named. matrix.json holds the parts, digests.bin two numbers of four bytes for each combination:
of the ids of all texts, with special tokens and without, and the vocabulary's size. Both zero: transformers cannot load that
folder, or cannot encode with it.

    tools/make_folder_goldens.py [--show BASE CLASS FLAGS POST PLACE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "text"

# $BOS, $EOS and $PAD stand for a base's own tokens, "$NEXT" for the first id after its vocabulary.
BASES = {
    "gpt-2": {"BOS": "<|im_start|>", "EOS": "<|im_end|>", "PAD": "<|endoftext|>"},
    "llama-bpe": {"BOS": "<|begin_of_text|>", "EOS": "<|eot_id|>", "PAD": "<|endoftext|>"},
    "sentence_piece": {"BOS": "<s>", "EOS": "</s>", "PAD": "<pad>"},
    "gemma": {"BOS": "<bos>", "EOS": "<eos>", "PAD": "<pad>"},
}
CLASSES = {
    **{name: {"tokenizer_config": {"tokenizer_class": name}, "config": {"model_type": "llama"}}
       for name in ("PreTrainedTokenizerFast", "LlamaTokenizerFast", "GemmaTokenizer", "Qwen2Tokenizer", "GPT2TokenizerFast")},
    **{f"none_{model}": {"config": {"model_type": model}} for model in ("llama", "qwen2", "qwen3", "gemma3_text")},
    "qwen2_Fast": {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}, "config": {"model_type": "qwen2"}},
    "qwen3_Fast": {"tokenizer_config": {"tokenizer_class": "PreTrainedTokenizerFast"}, "config": {"model_type": "qwen3"}},
    "config_Llama": {"config": {"model_type": "llama", "tokenizer_class": "LlamaTokenizer"}},
}
FLAGS = {
    "none": {},
    "bos": {"add_bos_token": True},
    "bos_eos": {"add_bos_token": True, "add_eos_token": True},
    "no_bos": {"add_bos_token": False},
    "prefix_legacy": {"add_prefix_space": True, "legacy": True},
    "no_prefix": {"add_prefix_space": False, "legacy": False},
}
POSTS = {"file": None, "nothing": [[], []], "bos": [["$BOS"], []], "bos_eos": [["$BOS"], ["$EOS"]], "two": [["$PAD", "$BOS"], []]}
PLACES = {
    "nowhere": {},
    "strings": {"tokenizer_config": {"bos_token": "$BOS", "eos_token": "$EOS", "pad_token": "$PAD"}},
    "objects": {"tokenizer_config": {"bos_token": {"__type": "AddedToken", "content": "<o>", "lstrip": True, "rstrip": True},
                                     "eos_token": {"__type": "AddedToken", "content": "$EOS", "lstrip": True}}},
    "decoder": {"tokenizer_config": {"bos_token": "$BOS", "added_tokens_decoder": {
        "$NEXT": {"content": "<new>", "special": True, "lstrip": True, "rstrip": False, "normalized": False, "single_word": False}}}},
    "empty_decoder": {"tokenizer_config": {"added_tokens_decoder": {}}, "special_tokens_map": {"bos_token": "<map>"}, "added_tokens": {"<x>": "$NEXT"}},
    "map": {"special_tokens_map": {"bos_token": {"content": "<map>", "lstrip": False, "rstrip": True, "normalized": False, "single_word": False},
                                   "pad_token": "$PAD", "additional_special_tokens": ["<ex>"]}},
    "map_over_config": {"tokenizer_config": {"bos_token": "<old>", "sep_token": "<sep>"}, "special_tokens_map": {"bos_token": "$BOS", "sep_token": "<new>"}},
    "added_tokens": {"tokenizer_config": {"eos_token": "<new>"}, "added_tokens": {"<new>": "$NEXT"}},
    "added_tokens_plain": {"added_tokens": {"quick <new>": "$NEXT"}},
    "additional": {"tokenizer_config": {"additional_special_tokens": ["<ex>", "the"]}},
    "extra": {"tokenizer_config": {"extra_special_tokens": ["<new>", {"__type": "AddedToken", "content": "<ex>", "rstrip": True}],
                                   "additional_special_tokens": ["<x>"]}},
    "extra_named": {"tokenizer_config": {"extra_special_tokens": {"image_token": "<img>"}}},
    "own_name": {"tokenizer_config": {"image_token": "<img>", "bos_token": "$BOS"}},
    "named_only": {"tokenizer_config": {"eos_token": "$EOS", "pad_token": "<new>"}, "drop": ["$EOS"]},
    "null": {"tokenizer_config": {"bos_token": None, "eos_token": None, "unk_token": None, "pad_token": None}},
}
TEXTS = [
    "", "Hello", " Hello  world", "the quick fox", "   ", "a\nb\n\n", "$BOS", "$BOSHi$EOS", "x $BOS y", "x $EOS y $PAD z", "<new>", "a <new> b", "a<new>b",
    "<ex>", "x <ex>  y", "the <ex> the", "<o> b", "a <o>  b", "<map>  c", "<img>the<img>", "<x><sep><old>", "quick <new>", "▁▁a ▁", "é ñ 한국어 🙂",
    "1234 56", "don't we'll", "<think>a</think>", "<|endoftext|></s>", "\t x \r\n y",
]


def filled(value, tokens: dict[str, str], following: int):
    text = json.dumps(value, ensure_ascii=False)
    for name, token in tokens.items():
        text = text.replace("$" + name, token)
    return json.loads(text.replace('": "$NEXT"', f'": {following}').replace("$NEXT", str(following)))


def write_folder(folder: Path, base: str, cls: str, flags: str, post: str, place: str) -> None:
    tokenizer = json.loads((DATA / base / "tokenizer.json").read_text(encoding="utf-8"))
    ids = {**tokenizer["model"]["vocab"], **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
    fill = lambda value: filled(value, BASES[base], max(ids.values()) + 1)
    where = fill(PLACES[place])
    tokenizer["added_tokens"] = [t for t in tokenizer["added_tokens"] if t["content"] not in where.get("drop", [])]
    around = fill(POSTS[post])
    if around is not None:
        special = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
        single = [*map(special, around[0]), {"Sequence": {"id": "A", "type_id": 0}}, *map(special, around[1])]
        tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": single, "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
                                       "special_tokens": {t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in around[0] + around[1]}}
        if around == [[], []]:
            tokenizer["post_processor"] = None
    files = {"tokenizer.json": tokenizer, "config.json": CLASSES[cls]["config"],
             "tokenizer_config.json": {**CLASSES[cls].get("tokenizer_config", {}), **FLAGS[flags], **where.get("tokenizer_config", {})}}
    files |= {f"{name}.json": where[name] for name in ("special_tokens_map", "added_tokens") if name in where}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def read(folder: Path, base: str):
    """The ids of all texts, with special tokens and without, or None."""
    from transformers import AutoTokenizer

    texts = filled(TEXTS, BASES[base], 0)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return tokenizer, [[tokenizer.encode(text, add_special_tokens=special) for text in texts] for special in (True, False)]
    except Exception as error:  # whatever it is: this folder does not load, or is of no use
        return str(error), None


def digest(tokenizer, ids) -> bytes:
    from goldens.text_tokenizers import _fnv

    if ids is None:
        return bytes(8)
    each = [_fnv(b"".join(struct.pack(f"<{len(one) + 1}i", *one, -1) for one in lists)) for lists in ids]
    return struct.pack("<II", _fnv(struct.pack("<II", *each)), len(tokenizer))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", nargs=5)
    args = parser.parse_args()
    import transformers

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        if args.show:
            folder = Path(scratch)
            write_folder(folder, *args.show)
            tokenizer, ids = read(folder, args.show[0])
            print(type(tokenizer).__name__, tokenizer)
            for text, full, bare in zip(filled(TEXTS, BASES[args.show[0]], 0), *(ids or [[], []]), strict=False):
                print(repr(text), full, bare)
            return 0
        out = DATA / "folders"
        out.mkdir(exist_ok=True)
        matrix = {"bases": BASES, "classes": CLASSES, "flags": FLAGS, "posts": POSTS, "places": PLACES, "texts": TEXTS}
        (out / "matrix.json").write_text(json.dumps(matrix, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        digests = b""
        for number, parts in enumerate(itertools.product(BASES, CLASSES, FLAGS, POSTS, PLACES)):
            folder = Path(scratch) / str(number)
            folder.mkdir()
            write_folder(folder, *parts)
            digests += digest(*read(folder, parts[0]))
            for file in folder.iterdir():
                file.unlink()
        (out / "digests.bin").write_bytes(digests)
        print(f"{len(digests) // 8} folders, {sum(digests[i : i + 8] == bytes(8) for i in range(0, len(digests), 8))} that do not load")
    return 0


if __name__ == "__main__":
    sys.exit(main())
