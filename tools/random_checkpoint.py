#!/usr/bin/env python3
"""Writes a Llama-shaped Hugging Face folder with random weights, for measurements that need a model of some size and
no text: how fast and in how much memory it is exported, loaded, decoded.

    tools/random_checkpoint.py FOLDER                 TinyLlama's shape: 1.1 B parameters, 2.2 GB in f16
    tools/random_checkpoint.py FOLDER --layers 2      the same with fewer layers

The same arguments give the same bytes. Values are normal with each matrix's usual deviation; they repeat after 64 Ki,
which no export notices.
"""
import argparse, json, pathlib, random, struct

SHAPE = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
         "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048}


def tensors(c):
    width, hidden = c["hidden_size"], c["intermediate_size"]
    kv = width // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", [c["vocab_size"], width]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", [width]
        for name, out in (("q", width), ("k", kv), ("v", kv), ("o", width)):
            yield f"{layer}self_attn.{name}_proj.weight", [out, width]
        yield layer + "post_attention_layernorm.weight", [width]
        for name, out, inputs in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
            yield f"{layer}mlp.{name}_proj.weight", [out, inputs]
    yield "model.norm.weight", [width]
    yield "lm_head.weight", [c["vocab_size"], width]


def halves(deviation, mean):
    rng = random.Random(1)
    count = 1 << 16
    return struct.pack(f"<{count}e", *(rng.gauss(mean, deviation) for _ in range(count)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    args = parser.parse_args()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float16", **SHAPE,
              "num_hidden_layers": args.layers}
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    header, end = {}, 0
    for name, shape in tensors(config):
        size = 2 * shape[0] * (shape[1] if len(shape) == 2 else 1)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    blocks = {}
    with open(args.folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors(config):
            matrix = len(shape) == 2
            key = shape[1] if matrix else 0
            if key not in blocks:
                blocks[key] = halves(shape[1] ** -0.5, 0) if matrix else halves(0.1, 1)
            left = 2 * shape[0] * (shape[1] if matrix else 1)
            while left > 0:
                out.write(blocks[key][:left])
                left -= len(blocks[key])


if __name__ == "__main__":
    main()
