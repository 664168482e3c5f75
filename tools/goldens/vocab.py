"""Two small vocabularies of the same size: byte-level BPE, and SentencePiece-style with byte fallback."""

from __future__ import annotations

import dataclasses
from collections import Counter

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCAB_SIZE = 320

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>")

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Only the frequencies matter: the merges are learned from it.
_CORPUS = (
    "the engine reads the prompt on one device and writes the answer on the other device . "
    "the keys and the values are handed over in memory , and the answer is the same as on one device . "
    "a test that cannot fail is not a test , and a number that cannot be true is not printed . "
    "the reader of the file checks the bounds before it trusts the length in the header . "
)


@dataclasses.dataclass(frozen=True)
class BpeVocab:
    tokens: tuple[str, ...]  # index is the token id
    merges: tuple[tuple[str, str], ...]


def byte_level_vocab(size: int = VOCAB_SIZE) -> BpeVocab:
    """Specials, the 256 byte letters, and merges learned greedily (ties: the smallest pair). A smaller vocabulary
    has the letters of the corpus only, and cannot spell other text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet() if size == VOCAB_SIZE else {*_CORPUS, "Ġ", "Ċ"} - {" "})
    words = Counter(tuple("Ġ" + word) for word in _CORPUS.split())
    merges: list[tuple[str, str]] = []
    tokens = [*SPECIALS, *alphabet]
    while len(tokens) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:], strict=False):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
        words = Counter({_merge(word, best): count for word, count in words.items()})
    return BpeVocab(tuple(tokens), tuple(merges))


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for symbol in word:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


def byte_level_tokenizer(
    tokens: list[str] | tuple[str, ...], merges, specials: list[str] | tuple[str, ...]
) -> Tokenizer:
    """What GGUF calls model "gpt2" with pre-tokenizer "smollm": single digits, then the GPT-2 pattern."""
    ids = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[tuple(merge) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


@dataclasses.dataclass(frozen=True)
class SpmVocab:
    tokens: tuple[str, ...]
    scores: tuple[float, ...]
    types: tuple[int, ...]  # gguf.TokenType


def sentencepiece_vocab() -> SpmVocab:
    """Four control tokens, 256 byte tokens, then pieces whose scores fall with their index."""
    normal, unknown, control, byte = 1, 2, 3, 6
    entries: list[tuple[str, float, int]] = [
        ("<pad>", 0.0, control),
        ("<eos>", 0.0, control),
        ("<bos>", 0.0, control),
        ("<unk>", 0.0, unknown),
    ]
    entries += [(f"<0x{value:02X}>", 0.0, byte) for value in range(256)]
    multi = ["▁t", "he", "▁the", "in", "▁a", "er", "▁in", "on", "re", "▁o", "nd", "at", "es", "▁and", "en"]
    multi += ["▁of", "is", "it", "ing", "▁s", "▁w", "ou", "or", "▁is", "▁to"]
    letters = ["▁", *"etaoinshrdlucmfwypvbgkjqxz", *".,'-?!:;"]
    pieces = (multi + letters)[: VOCAB_SIZE - len(entries)]
    entries += [(piece, -float(rank), normal) for rank, piece in enumerate(pieces)]
    assert len(entries) == VOCAB_SIZE, len(entries)
    tokens, scores, types = zip(*entries, strict=True)
    return SpmVocab(tokens, scores, types)
