"""mlx-lm on the shapes of mlx_bench: mlx_lm_peer.py tiny|7b q4|f16. One JSON object a line."""
import json
import statistics
import sys
import time

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.generate import generate_step
from mlx_lm.models import llama
from mlx_lm.models.cache import make_prompt_cache

SHAPES = {
    "tiny": dict(hidden_size=2048, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, intermediate_size=5632),
    "7b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336),
}
CONTEXT, TOKENS, REPEAT = 512, 128, 5


def build(shape, weights):
    mx.random.seed(0)
    args = llama.ModelArgs(model_type="llama", vocab_size=32000, rms_norm_eps=1e-5, max_position_embeddings=32768,
                           tie_word_embeddings=False, **SHAPES[shape])
    model = llama.Model(args)
    model.set_dtype(mx.float16)
    if weights == "q4":
        nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    model.eval()
    return model


def report(what, rates, **more):
    print(json.dumps(dict(model=" ".join(sys.argv[1:3]), what="mlx-lm " + what, tokens_per_s=round(statistics.median(rates), 1),
                          lowest=round(min(rates), 1), highest=round(max(rates), 1), **more)), flush=True)


def decode_alone(model):
    """generate_step, as mlx_lm.generate calls it: its own pipeline."""
    rates = []
    for _ in range(REPEAT + 1):
        prompt = mx.random.randint(0, 32000, (CONTEXT,))
        mx.eval(prompt)
        count = 0
        for _ in generate_step(prompt, model, max_tokens=TOKENS + 1):
            if count == 0:
                start = time.perf_counter()
            count += 1
        rates.append((count - 1) / (time.perf_counter() - start))
    report("decode", rates[1:], batch=1)


def decode_together(model, batch):
    """A loop that submits each step before the last one is read."""
    rates = []
    for _ in range(REPEAT + 1):
        cache = make_prompt_cache(model)
        token = mx.argmax(model(mx.random.randint(0, 32000, (batch, CONTEXT)), cache=cache)[:, -1], axis=-1)
        mx.eval(token)
        start = time.perf_counter()
        for _ in range(TOKENS):
            token = mx.argmax(model(token[:, None], cache=cache)[:, -1], axis=-1)
            mx.async_eval(token)
        mx.eval(token)
        rates.append(batch * TOKENS / (time.perf_counter() - start))
    report("decode", rates[1:], batch=batch)


def prefill(model, tokens):
    """The plain forward of a prompt into a cache, and all of generate_step up to its first token."""
    prompt = mx.random.randint(0, 32000, (tokens,))
    mx.eval(prompt)
    plain, stepped = [], []
    for _ in range(REPEAT + 1):
        cache = make_prompt_cache(model)
        start = time.perf_counter()
        mx.eval(model(prompt[None], cache=cache)[:, -1])
        plain.append(tokens / (time.perf_counter() - start))
        start = time.perf_counter()
        next(generate_step(prompt, model, max_tokens=1))
        stepped.append(tokens / (time.perf_counter() - start))
    report("plain forward", plain[1:], tokens=tokens)
    report("prefill", stepped[1:], tokens=tokens)


def main():
    model = build(*sys.argv[1:3])
    decode_alone(model)
    for batch in (8, 32):
        decode_together(model, batch)
    for tokens in (512, 4096):
        prefill(model, tokens)
    print(json.dumps(dict(what="mlx-lm memory", peak_gb=round(mx.get_peak_memory() / 1e9, 2))))


if __name__ == "__main__":
    main()
