#!/usr/bin/env python3
"""Makes the folders sp_* in tests/data/text, which have a tokenizer.model and no tokenizer.json: small SentencePiece models, and in
transformers.bin two digests for each golden line, of AutoTokenizer's ids with special tokens and without."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "text"
# "fi" for its ligature, "A" for the wide letter, nothing for a soft hyphen: a normaliser's map of a few hundred bytes.
RULES = "FB01\t66 69\nFF21\t41\nAD\t\n2026\t2E 2E 2E\n"
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}

# name: (training, tokenizer_config.json)
MODELS = {
    "sp_llama": ({"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False, "normalization_rule_name": "identity",
                  "control_symbols": ["[INST]", "[/INST]"], "user_defined_symbols": ["<think>"]}, LLAMA),
    "sp_llama_legacy": ("sp_llama", {**LLAMA, "legacy": True, "add_eos_token": True, "additional_special_tokens": ["<x>"],
                                     "added_tokens_decoder": {"1": {"content": "<s>", "special": True}}}),
    "sp_bpe": ({"model_type": "bpe", "byte_fallback": True, "normalization_rule_tsv": RULES, "user_defined_symbols": ["<think>", "the q"]}, {}),
    "sp_bpe_bare": ({"model_type": "bpe", "byte_fallback": False, "add_dummy_prefix": False, "remove_extra_whitespaces": False,
                     "normalization_rule_name": "identity"}, {"tokenizer_class": "PreTrainedTokenizerFast", "add_eos_token": True,
                                                              "added_tokens_decoder": {"5": {"content": "<renamed>", "special": True}}}),
    "sp_unigram": ({"model_type": "unigram", "normalization_rule_tsv": RULES, "control_symbols": ["[INST]"]}, {"legacy": False}),
    "sp_unigram_bytes": ({"model_type": "unigram", "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                          "user_defined_symbols": ["<think>"]},
                         {"extra_special_tokens": ["<x>"]}),
}


def train(lines: list[str], options: dict) -> bytes:
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch:
        if "normalization_rule_tsv" in options:
            rules = Path(scratch) / "rules.tsv"
            rules.write_text(options["normalization_rule_tsv"])
            options = {**options, "normalization_rule_tsv": str(rules)}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([line for line in lines if "\n" not in line and "\0" not in line]), model_writer=model, vocab_size=1800,
            character_coverage=0.98, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # the scratch folder's name
    return proto.SerializeToString()


def main() -> int:
    import transformers
    from goldens.text_tokenizers import _fnv

    transformers.logging.set_verbosity_error()
    lines = json.loads((DATA / "lines.json").read_text(encoding="utf-8"))
    for name, (options, config) in MODELS.items():
        folder = DATA / name
        folder.mkdir(exist_ok=True)
        model = (DATA / options / "tokenizer.model").read_bytes() if isinstance(options, str) else train(lines, options)
        (folder / "tokenizer.model").write_bytes(model)
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        (folder / "config.json").write_text('{"model_type": "llama"}\n')
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        digests = b""
        sp, same = sentencepiece.SentencePieceProcessor(model_proto=model), 0
        for line in lines:
            ids = [tokenizer.encode(line, add_special_tokens=special) for special in (True, False)]
            digests += b"".join(struct.pack("<I", _fnv(struct.pack(f"<{len(one)}I", *one))) for one in ids)
            same += ids[1] == sp.encode(line)
        (folder / "transformers.bin").write_bytes(digests)
        print(name, type(tokenizer).__name__, len(tokenizer), len(model), f"sentencepiece itself gives the same ids on {same} of {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
