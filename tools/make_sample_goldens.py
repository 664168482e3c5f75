#!/usr/bin/env python3
"""Writes tests/data/sample/goldens.json: what sampling means, from Hugging Face's logits processors.

Each case is a row of logits with settings; expected are the adjusted log-probabilities, the greedy token, the tokens
that the filters leave, and the tokens that given (seed, draw) choose. Presence and frequency penalties, which
transformers does not have, follow the formula in OpenAI's API reference. The uniform number of a draw is Philox4x32-10
as its authors define it. Needs torch and transformers.

  tools/make_sample_goldens.py          write the file
"""

import json
import pathlib

import numpy as np
import torch
from transformers.generation import logits_process as hf

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/sample/goldens.json"
VOCAB = 40
DRAWS = 40
# Draws this close to the border between two tokens are left out: there the last bit of a sum decides.
MARGIN = 1e-5


def uniform(seed, draw):
    mask = 0xFFFFFFFF
    counter = [draw & mask, draw >> 32, 0, 0]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return ((counter[1] << 32 | counter[0]) >> 11) * 2.0**-53


def adjust(logits, case):
    context = case["context"]
    scores = logits.clone()[None]
    ids = torch.tensor([context], dtype=torch.long)
    if case["repetition"] != 1:
        scores = hf.RepetitionPenaltyLogitsProcessor(case["repetition"])(ids, scores)
    for token in set(context[case["prompt_tokens"] :]):
        count = context[case["prompt_tokens"] :].count(token)
        scores[0, token] -= case["presence"] + case["frequency"] * count
    if case["bias"]:
        bias = {(token,): value for token, value in case["bias"]}
        scores = hf.SequenceBiasLogitsProcessor(bias)(ids, scores)
    return scores


def warp(scores, case):
    scores = hf.TemperatureLogitsWarper(case["temperature"])(None, scores)
    if case["top_k"]:
        scores = hf.TopKLogitsWarper(case["top_k"])(None, scores)
    if case["top_p"] < 1:
        scores = hf.TopPLogitsWarper(case["top_p"])(None, scores)
    if case["min_p"]:
        scores = hf.MinPLogitsWarper(case["min_p"])(None, scores)
    return torch.softmax(scores[0].double(), -1).numpy()


def expect(logits, case):
    adjusted = adjust(logits, case)
    probability = warp(adjusted, case)
    borders = np.cumsum(probability)
    draws = []
    for draw in range(DRAWS):
        u = uniform(case["seed"], draw)
        if np.abs(borders - u).min() > MARGIN:
            draws.append([draw, int(np.searchsorted(borders, u, side="right"))])
    return {
        "logprobs": [round(x, 5) for x in torch.log_softmax(adjusted[0].double(), -1).tolist()],
        "greedy": int(adjusted[0].argmax()),
        "kept": [int(i) for i in np.flatnonzero(probability > 0)],
        "draws": draws,
    }


def main():
    rng = np.random.default_rng(7)
    base = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition=1.0, presence=0.0, frequency=0.0,
                prompt_tokens=0, context=[], bias=[])
    repeated = dict(context=[3, 5, 3, 8, 3, 8, 21, 39, 0, 0, 0], prompt_tokens=4)
    settings = [
        dict(),
        dict(temperature=0.3),
        dict(temperature=2.5),
        dict(top_k=1),
        dict(top_k=5),
        dict(top_k=VOCAB),
        dict(top_p=0.9),
        dict(top_p=0.3),
        dict(top_p=1e-6),
        dict(min_p=0.1),
        dict(min_p=1.0),
        dict(temperature=1.7, top_k=12, top_p=0.8, min_p=0.05),
        dict(temperature=0.6, top_k=20, top_p=0.95),
        dict(repetition=1.3, **repeated),
        dict(repetition=0.7, **repeated),
        dict(presence=1.5, **repeated),
        dict(frequency=0.75, **repeated),
        dict(repetition=1.1, presence=-0.5, frequency=1.25, **repeated),
        dict(bias=[[0, -2.5], [17, 4.0]]),
        dict(temperature=0.8, top_k=10, top_p=0.9, repetition=1.2, bias=[[3, 3.0]], **repeated),
    ]
    cases = []
    for i, change in enumerate(settings):
        case = {**base, **change, "seed": 1000 + i if i % 2 else (i << 40) + 99}
        logits = torch.tensor(np.round(rng.normal(0, 3, VOCAB), 3), dtype=torch.float32)
        cases.append({**case, "logits": [round(float(x), 3) for x in logits], "expected": expect(logits, case)})
    OUT.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    OUT.write_text(f'{{"cases": [\n{lines}\n]}}\n')
    print(f"{OUT}: {len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
