"""Small tokenizers of every kind that GGUF files and tokenizer.json know, and what Hugging Face tokenizers make of the
lines with each."""

from __future__ import annotations

import io
import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import SentencePieceExtractor, SpmConverter
from transformers.integrations.gguf import gguf_tokenizer_mapping as mapping

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>"]
USER_DEFINED = ["<think>", "</think>"]
# No merge leads to these: only a tokenizer that ignores merges for whole words finds them.
UNREACHABLE = ["Ġjumps", "Ġlazy", "jumps", "Ġ한국어", "fox", "Ġ1234", "return"]

Pre = pre_tokenizers


def _split(*expressions: str) -> list[Pre.PreTokenizer]:
    return [Pre.Split(Regex(e), behavior="isolated") for e in expressions]


def _bytes(use_regex: bool = False) -> Pre.PreTokenizer:
    return Pre.ByteLevel(add_prefix_space=False, use_regex=use_regex)


@dataclass
class Scheme:
    """What tokenizer.ggml.pre stands for."""

    steps: list[Pre.PreTokenizer]
    nfc: bool = False
    ignore_merges: bool = False
    bos: str | None = None


CJK = "[一-龥ࠀ-一가-\ud7ff]+"
SCHEMES = {
    "gpt-2": Scheme([_bytes(use_regex=True)]),
    "default": Scheme(_split(r"[\p{P}\$\+<=>\^~\|]+") + [_bytes(use_regex=True)]),  # and digits: see below
    "smollm": Scheme([Pre.Digits(individual_digits=True), _bytes(use_regex=True)]),
    "llama-bpe": Scheme(_split(mapping._LLAMA3_SPLIT) + [_bytes()], ignore_merges=True, bos="<|begin_of_text|>"),
    "qwen2": Scheme(_split(mapping._QWEN2_SPLIT) + [_bytes()], nfc=True),
    "qwen35": Scheme(_split(mapping._QWEN35_SPLIT) + [_bytes()], nfc=True),
    "tekken": Scheme(_split(mapping._TEKKEN_SPLIT) + [_bytes()], ignore_merges=True, bos="<|begin_of_text|>"),
    "gpt-4o": Scheme(_split(mapping._GPT4O_SPLIT) + [_bytes()]),
    "deepseek-coder": Scheme(_split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK) + [Pre.Digits(individual_digits=True), _bytes()]),
    "deepseek-v3": Scheme(_split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                                 r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                                 r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""") + [_bytes()]),
}
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
SCHEMES["default"].steps = _split(r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", "[0-9][0-9][0-9]") + [_bytes()]


def _train_bytes(lines: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Merges learned on unsplit text, across words, digits and line ends: a piece that is split wrongly shows in its ids."""
    import json

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _bytes()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=sorted(Pre.ByteLevel.alphabet()), show_progress=False, max_token_length=8)
    tokenizer.train_from_iterator([line for line in lines if len(line) < 400], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def _fnv(data: bytes) -> int:
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return digest >> 32 ^ digest & 0xFFFFFFFF


def _ids(ids: list[int]) -> bytes:
    return struct.pack(f"<{len(ids)}I", *ids)


def digest(tokenizer: Tokenizer, line: str) -> bytes:
    """Eight bytes: of the ids, and of everything else that is made from them."""
    tokenizer.encode_special_tokens = False
    ids = tokenizer.encode(line, add_special_tokens=False).ids
    texts = [tokenizer.decode(ids, skip_special_tokens=skip) for skip in (False, True)]
    tokenizer.encode_special_tokens = True
    literal = tokenizer.encode(line, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    rest = texts[0].encode() + b"\xff" + texts[1].encode() + b"\xff" + _ids(literal)
    return struct.pack("<II", _fnv(_ids(ids)), _fnv(rest))


def random_ids(size: int) -> list[list[int]]:
    """Sequences whose bytes are hardly ever UTF-8."""
    r = random.Random(size)
    return [[r.randrange(size) for _ in range(r.randint(1, 12))] for _ in range(300)]


def write_digests(path: Path, tokenizer: Tokenizer, lines: list[str]) -> None:
    path.write_bytes(b"".join(digest(tokenizer, line) for line in lines))


def write_random(path: Path, tokenizer: Tokenizer) -> None:
    import json

    rows = [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False)} for ids in random_ids(tokenizer.get_vocab_size())]
    path.write_text(json.dumps(rows, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def write_gguf(path: Path, metadata: dict[str, Any]) -> None:
    """A GGUF file that holds a tokenizer and no tensor."""
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture"))
    for key, value in metadata.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _added(tokenizer: Tokenizer, control: list[str], user_defined: list[str]) -> None:
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in control])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False) for t in user_defined])


def make_byte_level(out: Path, lines: list[str]) -> None:
    vocab, merges = _train_bytes(lines)
    for token in UNREACHABLE:
        spelled = token.replace("한국어", "íķľêµŃìĸ´")
        if spelled not in vocab:
            vocab[spelled] = len(vocab)
    for token in CONTROL + USER_DEFINED:
        vocab[token] = len(vocab)
    tokens = sorted(vocab, key=vocab.__getitem__)
    types = [3 if t in CONTROL else 4 if t in USER_DEFINED else 1 for t in tokens]
    for name, scheme in SCHEMES.items():
        tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=scheme.ignore_merges))
        tokenizer.pre_tokenizer = Pre.Sequence(scheme.steps) if len(scheme.steps) > 1 else scheme.steps[0]
        tokenizer.decoder = decoders.ByteLevel()
        if scheme.nfc:
            tokenizer.normalizer = normalizers.NFC()
        if scheme.bos:
            tokenizer.post_processor = processors.TemplateProcessing(single=f"{scheme.bos}:0 $A:0", special_tokens=[(scheme.bos, vocab[scheme.bos])])
        _added(tokenizer, CONTROL, USER_DEFINED)
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
        write_digests(folder / "digests.bin", tokenizer, lines)
        metadata = {"general.architecture": "llama", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name,
                    "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
                    "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
                    "tokenizer.ggml.bos_token_id": vocab["<|begin_of_text|>"], "tokenizer.ggml.eos_token_id": vocab["<|im_end|>"]}
        write_gguf(folder / "tokenizer.gguf", metadata)
        if name == "gpt-2":
            write_random(folder / "random.json", tokenizer)


SP_CONTROL = ["<pad>", "[INST]", "[/INST]"]


def _train_sentence_piece(lines: list[str], **options: Any) -> sentencepiece.SentencePieceProcessor:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in lines if "\n" not in line and "\0" not in line]), model_writer=model, model_type="bpe",
        vocab_size=1800, byte_fallback=True, remove_extra_whitespaces=False, normalization_rule_name="identity", character_coverage=0.98,
        minloglevel=2, num_threads=1, **options)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def _pieces(sp: sentencepiece.SentencePieceProcessor) -> tuple[list[str], list[float], list[int]]:
    user_defined = set(USER_DEFINED)

    def kind(i: int) -> int:
        if sp.is_unknown(i):
            return 2
        if sp.is_control(i):
            return 3
        if sp.is_byte(i):
            return 6
        return 4 if sp.id_to_piece(i) in user_defined else 1

    ids = range(len(sp))
    return [sp.id_to_piece(i) for i in ids], [sp.get_score(i) for i in ids], [kind(i) for i in ids]


def make_sentence_piece(out: Path, lines: list[str]) -> None:
    """Llama 2's form: a space before the text, and before what follows a special token."""
    sp = _train_sentence_piece(lines, control_symbols=SP_CONTROL, user_defined_symbols=USER_DEFINED)
    tokens, scores, types = _pieces(sp)
    folder = out / "sentence_piece"
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "scratch.model"
    model.write_bytes(sp.serialized_model_proto())
    extractor = SentencePieceExtractor(str(model))
    model.unlink()
    extracted = extractor.extract(models.BPE)
    tokenizer = SpmConverter.build_tokenizer_from_spm_proto(extractor.proto, vocab=extracted["vocab"], legacy=True)
    _added(tokenizer, ["<unk>", "<s>", "</s>", *SP_CONTROL], USER_DEFINED)
    plain = [line for line in lines if "<" not in line and "[" not in line and "\0" not in line]
    for line in plain:  # two libraries agree before either is called the truth
        assert tokenizer.encode(line, add_special_tokens=False).ids == sp.encode(line), line
    # What is published for models of this form: normalizers instead of Metaspace.
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    for line in plain:
        assert tokenizer.encode(line, add_special_tokens=False).ids == sp.encode(line), line
    tokenizer.post_processor = processors.TemplateProcessing(single="<s>:0 $A:0", special_tokens=[("<s>", sp.bos_id())])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    write_digests(folder / "digests.bin", tokenizer, lines)
    write_random(folder / "random.json", tokenizer)
    write_gguf(folder / "tokenizer.gguf", {
        "general.architecture": "llama", "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": sp.bos_id(),
        "tokenizer.ggml.eos_token_id": sp.eos_id(), "tokenizer.ggml.unknown_token_id": sp.unk_id()})


def make_gemma(out: Path, lines: list[str]) -> None:
    """Gemma's form: no space before the text, merges in the order of the pieces, runs of spaces stored as spaces."""
    sp = _train_sentence_piece([*lines, *["a" + " " * n + "b" for n in range(2, 9)] * 40], add_dummy_prefix=False,
                               control_symbols=["<mask>", "<start_of_turn>", "<end_of_turn>"], user_defined_symbols=USER_DEFINED,
                               pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
                               allow_whitespace_only_pieces=True)
    tokens, scores, types = _pieces(sp)
    runs = [i for i, t in enumerate(tokens) if len(t) > 1 and set(t) == {"▁"}]
    assert runs
    for i in runs:
        tokens[i] = " " * len(tokens[i])
    source = {"tokenizer_type": "llama", "tokens": tokens, "scores": scores, "token_type": types}
    tokenizer, _ = mapping.convert_gguf_tokenizer("gemma3", source)
    folder = out / "gemma"
    folder.mkdir(parents=True, exist_ok=True)
    write_digests(folder / "digests.bin", tokenizer, lines)
    (folder / "tokenizer.json").write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    write_gguf(folder / "tokenizer.gguf", {
        "general.architecture": "gemma3", "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores, "tokenizer.ggml.token_type": types, "tokenizer.ggml.bos_token_id": sp.bos_id(),
        "tokenizer.ggml.eos_token_id": sp.eos_id(), "tokenizer.ggml.unknown_token_id": sp.unk_id(), "tokenizer.ggml.add_space_prefix": False})


def make_metaspace(out: Path, lines: list[str]) -> None:
    """The newer form of Llama's tokenizer.json: Metaspace, a space before the first piece only, and its decoder."""
    stock = Tokenizer.from_file(str(out / "sentence_piece" / "tokenizer.json"))
    stock.normalizer = normalizers.Sequence([])
    stock.pre_tokenizer = Pre.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    stock.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="first")
    folder = out / "metaspace"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(stock.to_str(pretty=False), encoding="utf-8")
    write_digests(folder / "digests.bin", stock, lines)


def make_smollm2(out: Path, lines: list[str], model: Path) -> None:
    """The real vocabulary, from the lists of the file. (transformers' own reading of the file does not split digits.)"""
    fields = gguf.GGUFReader(model).fields
    read = {key: fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges")}
    vocab = {token: i for i, token in enumerate(read["tokens"])}
    tokenizer = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in read["merges"]]))
    tokenizer.pre_tokenizer = Pre.Sequence([Pre.Digits(individual_digits=True), _bytes(use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    control = [t for t, kind in zip(read["tokens"], read["token_type"]) if kind == 3]
    _added(tokenizer, control, [t for t, kind in zip(read["tokens"], read["token_type"]) if kind == 4])
    (out / "smollm2").mkdir(parents=True, exist_ok=True)
    write_digests(out / "smollm2" / "digests.bin", tokenizer, lines)
