"""A one-shot prefill program as a converter that traces PyTorch makes it, token-major and with everything inside: token ids (1, T) in; keys, not rotated,
and values out, each (1, layers * T, kv_heads, head_dim), layer after layer.

    origins.py MODEL.json OUT.mlpackage     MODEL.json: heads, kv_heads, head_dim, theta, eps, tokens, and tensors by name: shape, float32 values"""
import contextlib, io, json, logging, sys

logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import coremltools as ct
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

with open(sys.argv[1]) as file: model = json.load(file)
H, K, D, T = model["heads"], model["kv_heads"], model["head_dim"], model["tokens"]
weights = {name: np.array(t["values"], np.float32).reshape(t["shape"]).astype(np.float16) for name, t in model["tensors"].items()}
layers = 1 + max(int(n.split(".")[1]) for n in weights if n.startswith("layers."))
angles = np.arange(T)[:, None] / model["theta"] ** (np.arange(0, D, 2)[None] / D)
cos, sin = (np.tile(g(angles), (1, 2)).astype(np.float16) for g in (np.cos, np.sin))


def norm(x, name):
    mean = mb.reduce_mean(x=mb.square(x=x), axes=[-1], keep_dims=True)
    return mb.mul(x=mb.mul(x=x, y=mb.rsqrt(x=mb.add(x=mean, y=np.float16(model["eps"])), epsilon=np.float16(0))), y=weights[name])


def heads(x, count): return mb.transpose(x=mb.reshape(x=x, shape=[1, T, count, D]), perm=[0, 2, 1, 3])


def rotate(x, count):
    first = mb.slice_by_index(x=x, begin=[0, 0, 0, 0], end=[1, count, T, D // 2])
    second = mb.slice_by_index(x=x, begin=[0, 0, 0, D // 2], end=[1, count, T, D])
    turned = mb.concat(values=(mb.mul(x=second, y=np.float16(-1)), first), axis=-1)
    return mb.add(x=mb.mul(x=x, y=cos), y=mb.mul(x=turned, y=sin))


@mb.program(input_specs=[mb.TensorSpec((1, T), types.int32)], opset_version=ct.target.iOS16)
def program(input_ids):
    x = mb.gather(x=weights["embed"], indices=input_ids, axis=0)
    mask = np.triu(np.full((T, T), -10000, np.float16), 1)
    all_keys, all_values = [], []
    for i in range(layers):
        prefix = f"layers.{i}."
        project = lambda x, name: mb.linear(x=x, weight=weights[prefix + name])
        h = norm(x, prefix + "pre_attn")
        q, k, v = (project(h, n) for n in "qkv")
        all_keys.append(mb.reshape(x=k, shape=[1, T, K, D]))
        all_values.append(mb.reshape(x=v, shape=[1, T, K, D]))
        q, k, v = rotate(heads(q, H), H), rotate(heads(k, K), K), heads(v, K)
        repeat = lambda t: mb.reshape(x=mb.tile(x=mb.expand_dims(x=t, axes=[2]), reps=[1, 1, H // K, 1, 1]), shape=[1, H, T, D])
        scores = mb.mul(x=mb.matmul(x=q, y=repeat(k), transpose_y=True), y=np.float16(1 / np.sqrt(D)))
        out = mb.matmul(x=mb.softmax(x=mb.add(x=scores, y=mask), axis=-1), y=repeat(v))
        out = mb.reshape(x=mb.transpose(x=out, perm=[0, 2, 1, 3]), shape=[1, T, H * D])
        x = mb.add(x=x, y=project(out, "o"))
        h = norm(x, prefix + "pre_mlp")
        x = mb.add(x=x, y=project(mb.mul(x=mb.silu(x=project(h, "gate")), y=project(h, "up")), "down"))
    return mb.concat(values=all_keys, axis=1, name="keys"), mb.concat(values=all_values, axis=1, name="values")


with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    ct.convert(program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS16, compute_precision=ct.precision.FLOAT16, skip_model_load=True).save(sys.argv[2])
