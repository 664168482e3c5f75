"""Programs for the interpreter's tests, made with coremltools, and what they must compute.

    cases.py ops FOLDER            one program with a case for every op: coremltools' own numpy inference, or numpy, gives the results
    cases.py state FOLDER          a cache that is updated in place over several runs, in two functions
    cases.py weights FOLDER        every compressed form of weights of iOS 18
    cases.py weights_ios16 FOLDER  those of iOS 16
    cases.py prefill FOLDER        two functions of a small Llama, in the form of our exports
    cases.py converted FOLDER      a program with an fp32 interface, as ct.convert leaves it

Writes FOLDER/NAME.mlpackage, and NAME.json and NAME.bin: a list of runs; each has tensors by name (type, shape, place of the data in the .bin;
results as float64) and the tolerance of each result."""
import contextlib, io, json, logging, os, sys

logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import coremltools as ct
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.converter import mil_convert
    from coremltools.converters.mil.mil import Function, Program, types

from op_cases import DTYPES, IOS16, IOS18, elementwise, erf, half, movement, np_softmax, positive, products, reductions, rng


def save(program, path, version=9):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        mil_convert(program, convert_from="milinternal", convert_to="mlprogram", specification_version=version, compute_units=ct.ComputeUnit.CPU_ONLY, skip_model_load=True,
                    pass_pipeline=ct.PassPipeline.EMPTY).save(path)


class Data:
    """What goes in and comes out, for the C++ side."""

    def __init__(self): self.bytes, self.runs = bytearray(), []

    def tensor(self, array, **more):
        array = np.ascontiguousarray(array)
        entry = {"type": str(array.dtype), "shape": list(array.shape), "offset": len(self.bytes), **more}
        self.bytes += array.tobytes()
        self.bytes += bytes(-len(self.bytes) % 8)
        return entry

    def run(self, inputs, results, function="main"):
        self.runs.append({"function": function, "inputs": {k: self.tensor(v) for k, v in inputs.items()},
                          "results": {k: self.tensor(v.astype(np.float64), rtol=rtol, atol=atol) for k, (v, rtol, atol) in results.items()}})

    def write(self, folder, name):
        with open(os.path.join(folder, name + ".bin"), "wb") as file: file.write(self.bytes)
        with open(os.path.join(folder, name + ".json"), "w") as file: json.dump({"runs": self.runs}, file)


def returned(var, name):
    """As an output of a model: bool and small integers are none."""
    if var.dtype in (types.bool, types.int8, types.uint8, types.int16, types.uint16): var = mb.cast(x=var, dtype="int32")
    if var.rank == 0: var = mb.reshape(x=var, shape=[1])
    return mb.identity(x=var, name=name)


def ops(folder):
    cases = [*elementwise(), *reductions(), *movement(), *products()]
    data, inputs, results = Data(), {}, {}
    for case in cases:
        inputs |= {f"{case.name}_{k}": v for k, v in case.arrays.items()}
    program = Program()
    with Function({n: mb.placeholder(shape=v.shape, dtype=DTYPES[v.dtype]) for n, v in inputs.items()}, opset_version=IOS18) as function:
        outputs = []
        for case in cases:
            out = case.fn(**{k: function.inputs[f"{case.name}_{k}"] for k in case.arrays})
            for i, (var, value) in enumerate(zip(out if isinstance(out, (tuple, list)) else (out,), case.expected())):
                name = f"out_{case.name}_{i}"
                outputs.append(returned(var, name))
                half_result = var.dtype == types.fp16
                if half_result: value = np.where(np.isfinite(value) & (np.abs(value) >= 65520), np.sign(value) * np.inf, value)
                results[name] = (value, case.rtol, case.atol)
        function.set_outputs(outputs)
    program.add_function("main", function)
    save(program, os.path.join(folder, "ops.mlpackage"))
    data.run(inputs, results)
    data.write(folder, "ops")


def add_cases(data, folder, name, opset, version, make):
    """A program whose results are constants that make() gives as (name, var), each added to an input that is zero; what they must be, unless make() gives
    that too, is what coremltools decompresses."""
    program, results = Program(), {}
    with Function({"zero": mb.placeholder(shape=(1,), dtype=types.fp16)}, opset_version=opset) as function:
        outputs = []
        for case, var, *value in make():
            if var.dtype != types.fp16: raise SystemExit(f"{case} is no fp16 tensor")
            outputs.append(mb.add(x=var, y=function.inputs["zero"], name=case))
            results[case] = (np.asarray(value[0] if value else var.op.materialized_val_inference()).astype(np.float64), 2.0 ** -11, 2.0 ** -20)
        function.set_outputs(outputs)
    program.add_function("main", function)
    save(program, os.path.join(folder, name + ".mlpackage"), version)
    data.run({"zero": np.zeros(1, np.float16)}, results)
    data.write(folder, name)


def unsigned(bits, *shape): return rng.integers(0, 2 ** bits, shape).astype(types.nptype_from_builtin(types.string_to_builtin(f"uint{bits}")))


def small(dtype, *shape):
    low, high = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[dtype]
    return rng.integers(low, high, shape).astype(types.nptype_from_builtin(types.string_to_builtin(dtype)))


def weights18():
    for bits in (1, 2, 3, 4, 6, 8):
        yield f"lut{bits}", mb.constexpr_lut_to_dense(indices=unsigned(bits, 6, 5, 1, 3), lut=half(1, 1, 1, 1, 2 ** bits, 1))
    yield "lut_grouped", mb.constexpr_lut_to_dense(indices=unsigned(4, 64, 10, 1, 1), lut=half(4, 1, 1, 1, 16, 1))
    yield "lut_blocks", mb.constexpr_lut_to_dense(indices=unsigned(2, 6, 8), lut=half(2, 4, 4, 1))
    yield "lut_vectors", mb.constexpr_lut_to_dense(indices=unsigned(3, 4, 6), lut=half(2, 1, 8, 2), vector_axis=0)
    yield "lut_vectors_last", mb.constexpr_lut_to_dense(indices=unsigned(3, 4, 6), lut=half(1, 3, 8, 4), vector_axis=1)
    for dtype in ("int4", "uint4", "int8", "uint8"):
        yield f"channel_{dtype}", mb.constexpr_blockwise_shift_scale(data=small(dtype, 7, 9, 1, 1), scale=positive(7, 1, 1, 1))
        yield f"block_{dtype}", mb.constexpr_blockwise_shift_scale(data=small(dtype, 6, 12), scale=positive(6, 3), offset=small(dtype, 6, 3))
    yield "block_2d", mb.constexpr_blockwise_shift_scale(data=small("int8", 8, 6, 2), scale=positive(4, 1, 2), offset=small("int8", 4, 1, 2))
    mask = rng.integers(0, 2, (5, 7)).astype(types.nptype_from_builtin(types.string_to_builtin("uint1")))
    ones = int(mask.astype(int).sum())
    yield "sparse", mb.constexpr_sparse_to_dense(nonzero_data=half(ones), mask=mask)
    m, d = mb.constexpr_lut_to_sparse(indices_mask=mask, indices_nonzero_data=unsigned(4, ones), lut=half(1, 1, 16, 1))
    yield "sparse_lut", mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)
    m, d = mb.constexpr_sparse_blockwise_shift_scale(data_mask=mask, nonzero_data=small("int8", ones), scale=positive(5, 1), offset=small("int8", 5, 1))
    yield "sparse_blockwise", mb.constexpr_sparse_to_dense(nonzero_data=d, mask=m)


def weights16():
    yield "affine_scalar", mb.constexpr_affine_dequantize(quantized_data=small("int8", 5, 6), zero_point=np.int8(3), scale=np.float16(0.25), axis=0)
    yield "affine_axis", mb.constexpr_affine_dequantize(quantized_data=small("uint8", 5, 6, 2), zero_point=small("uint8", 6), scale=positive(6), axis=1)
    for bits in (1, 2, 4, 6, 8):
        count = 5 * 7
        packed = np.packbits(np.unpackbits(rng.integers(0, 2 ** bits, count).astype(np.uint8)[:, None], axis=1, bitorder="little")[:, :bits], bitorder="little")
        yield f"lut{bits}", mb.constexpr_lut_to_dense(indices=packed, lut=half(2 ** bits), shape=np.array([5, 7], np.uint32))
    bits = rng.integers(0, 2, 5 * 7).astype(np.uint8)
    yield "sparse", mb.constexpr_sparse_to_dense(nonzero_data=half(int(bits.sum())), mask=np.packbits(bits, bitorder="little"), shape=np.array([5, 7], np.uint32))


    source = half(3, 4)
    yield "cast", mb.cast(x=mb.constexpr_cast(source_val=source, output_dtype="fp32"), dtype="fp16"), source


def weights(folder):
    add_cases(Data(), folder, "weights", IOS18, 9, weights18)


def weights_ios16(folder):
    add_cases(Data(), folder, "weights_ios16", IOS16, 7, weights16)


def merged(folder, name, functions):
    """One package of several functions, each made by its own maker."""
    descriptor = ct.utils.MultiFunctionDescriptor()
    for function, program in functions.items():
        path = os.path.join(folder, f"{name}_{function}.mlpackage")
        save(program, path)
        descriptor.add_function(path, src_function_name="main", target_function_name=function)
    descriptor.default_function_name = next(iter(functions))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ct.utils.save_multifunction(descriptor, os.path.join(folder, name + ".mlpackage"))


def state(folder):
    shape = (1, 4, 8, 16)

    @mb.program(input_specs=[mb.TensorSpec((1, 4, 1, 16), types.fp16), mb.TensorSpec((4,), types.int32), mb.TensorSpec((4,), types.int32), mb.StateTensorSpec(shape, types.fp16)], opset_version=IOS18)
    def write(new, begin, end, cache):
        before = mb.read_state(input=cache)
        after = mb.coreml_update_state(state=cache, value=mb.slice_update(x=before, update=new, begin=begin, end=end))
        return mb.reduce_sum(x=after, axes=[2], keep_dims=False, name="sum"), mb.sub(x=after, y=before, name="change"), mb.transpose(x=before, perm=[0, 2, 3, 1], name="before")

    @mb.program(input_specs=[mb.TensorSpec((1,), types.fp16), mb.StateTensorSpec(shape, types.fp16)], opset_version=IOS18)
    def swap(factor, cache):
        scaled = mb.mul(x=mb.read_state(input=cache), y=factor)
        turned = mb.coreml_update_state(state=cache, value=mb.reverse(x=scaled, axes=[2]))
        return mb.identity(x=turned, name="turned")

    merged(folder, "state", {"write": write, "swap": swap})
    data, cache = Data(), np.zeros(shape)
    exact = lambda v: (v, 0.0, 0.0)
    for step in range(6):
        new, begin, end = half(1, 4, 1, 16), np.array([0, 0, step, 0], np.int32), np.array([1, 4, step + 1, 16], np.int32)
        before = cache.copy()
        cache[:, :, step:step + 1] = new
        data.run({"new": new, "begin": begin, "end": end},
                 {"sum": (cache.sum(2), 2.0 ** -9, 2.0 ** -8), "change": ((cache - before).astype(np.float16), 2.0 ** -10, 0.0), "before": exact(before.transpose(0, 2, 3, 1))}, "write")
        if step % 2:
            cache = cache[:, :, ::-1] * 0.5
            data.run({"factor": np.array([0.5], np.float16)}, {"turned": exact(cache)}, "swap")
    data.write(folder, "state")


class Mil:
    """The steps of a prefill program as ops; Numpy has the same in float64."""

    def conv(self, x, w): return mb.conv(x=x, weight=w, pad_type="valid")
    def norm(self, x, axis, size, gain):
        y = mb.layer_norm(x=mb.concat(values=(x, mb.mul(x=x, y=np.float16(-1))), axis=axis), axes=[axis], epsilon=np.float16(1e-5))
        return mb.mul(x=self.slice(y, axis, 0, size), y=gain)
    def slice(self, x, axis, first, count): return mb.slice_by_size(x=x, begin=[first if a == axis else 0 for a in range(4)], size=[count if a == axis else d for a, d in enumerate(x.shape)])
    def concat(self, values, axis): return mb.concat(values=values, axis=axis)
    def reshape(self, x, shape): return mb.reshape(x=x, shape=shape)
    def add(self, x, y): return mb.add(x=x, y=y)
    def mul(self, x, y): return mb.mul(x=x, y=y)
    def matmul(self, x, y, tx, ty): return mb.matmul(x=x, y=y, transpose_x=tx, transpose_y=ty)
    def softmax(self, x, axis): return mb.softmax(x=x, axis=axis)
    def silu(self, x): return mb.silu(x=x)


class Numpy:
    def conv(self, x, w): return np.einsum("oi,bihw->bohw", w[:, :, 0, 0].astype(np.float64), x)
    def norm(self, x, axis, size, gain): return x / np.sqrt((x * x).mean(axis, keepdims=True) + 1e-5) * gain
    def slice(self, x, axis, first, count): return np.take(x, range(first, first + count), axis)
    def concat(self, values, axis): return np.concatenate(values, axis)
    def reshape(self, x, shape): return x.reshape(shape)
    def add(self, x, y): return x + y
    def mul(self, x, y): return x * y
    def matmul(self, x, y, tx, ty): return np.matmul(np.swapaxes(x, -1, -2) if tx else x, np.swapaxes(y, -1, -2) if ty else y)
    def softmax(self, x, axis): return np_softmax(x, axis)
    def silu(self, x): return x / (1 + np.exp(-x))


def prefill(folder):
    """Two functions, without history and with 64 past tokens, over one weight file: two layers of a Llama with heads on axis 1, as our own exports have them."""
    C, H, K, D, F, L, T = 64, 4, 2, 16, 96, 2, 32
    shapes = {"q": (H * D, C), "k": (K * D, C), "v": (K * D, C), "o": (C, H * D), "gate": (F, C), "up": (F, C), "down": (C, F)}
    weights = [{n: half(*s, 1, 1, scale=s[1] ** -0.5) for n, s in shapes.items()} | {n: positive(1, C, 1, 1) + np.float16(0.5) for n in ("pre_attn", "pre_mlp")} | {"q_gain": positive(1, 1, D, 1)} for _ in range(L)]

    def body(o, S, env):
        x, results, n = env["x"], {}, S + T
        def rope(x, heads):
            return o.add(o.mul(x, env["cos"]), o.mul(o.concat((o.slice(x, 2, D // 2, D // 2), o.slice(x, 2, 0, D // 2)), 2), env["sin"]))
        for l, w in enumerate(weights):
            h = o.norm(x, 1, C, w["pre_attn"])
            k = o.reshape(rope(o.reshape(o.conv(h, w["k"]), [1, K, D, T]), K), [1, K * D, 1, T])
            v = o.conv(h, w["v"])
            results |= {f"new_k_{l}": k, f"new_v_{l}": v}
            if l == L - 1: return results
            q = rope(o.norm(o.reshape(o.conv(h, w["q"]), [1, H, D, T]), 2, D, w["q_gain"]), H)
            keys, values = (o.reshape(o.concat((env[f"past_{c}_{l}"], t), 3) if S else t, [1, K, D, n]) for c, t in (("k", k), ("v", v)))
            groups = []
            for j in range(K):
                scores = o.matmul(o.slice(q, 1, j * H // K, H // K), o.slice(keys, 1, j, 1), True, False)
                groups.append(o.matmul(o.slice(values, 1, j, 1), o.softmax(o.add(scores, env["mask"]), 3), False, True))
            x = o.add(x, o.conv(o.reshape(o.concat(groups, 1), [1, H * D, 1, T]), w["o"]))
            h = o.norm(x, 1, C, w["pre_mlp"])
            x = o.add(x, o.conv(o.mul(o.silu(o.conv(h, w["gate"])), o.conv(h, w["up"])), w["down"]))

    data, functions = Data(), {}
    for S in (0, 64):
        angles = (np.arange(D // 2) + 1)[:, None] * (S + np.arange(T))[None] * 0.01
        inputs = {"x": half(1, C, 1, T), "cos": np.tile(np.cos(angles), (2, 1)).astype(np.float16)[None, None], "sin": (np.repeat([[-1], [1]], D // 2, 0) * np.tile(np.sin(angles), (2, 1))).astype(np.float16)[None, None],
                  "mask": (np.triu(np.ones((T, S + T)), S + 1) * -30000).astype(np.float16)[None, None]}
        if S: inputs |= {f"past_{c}_0": half(1, K * D, 1, S) for c in "kv"}
        program = Program()
        with Function({n: mb.placeholder(shape=v.shape, dtype=types.fp16) for n, v in inputs.items()}, opset_version=IOS18) as function:
            function.set_outputs([mb.identity(x=v, name=n) for n, v in body(Mil(), S, function.inputs).items()])
        program.add_function("main", function)
        functions[f"s{S}"] = program
        results = body(Numpy(), S, {n: v.astype(np.float64) for n, v in inputs.items()})
        data.run(inputs, {n: (v, 2.0 ** -8, 2.0 ** -6) for n, v in results.items()}, f"s{S}")
    merged(folder, "prefill", functions)
    data.write(folder, "prefill")


def converted(folder):
    """What ct.convert makes of a program with all its passes: an fp32 interface, fp16 inside, casts between them."""
    w = half(24, 16, scale=0.3).astype(np.float32)

    @mb.program(input_specs=[mb.TensorSpec((1, 8, 16))], opset_version=IOS16)
    def program(x):
        a, b = mb.split(x=mb.softmax(x=mb.transpose(x=x, perm=[0, 2, 1]), axis=-1), num_splits=2, axis=1)
        y = mb.linear(x=mb.transpose(x=mb.concat(values=(mb.exp(x=a), b), axis=1), perm=[0, 2, 1]), weight=w)
        return mb.reduce_mean(x=mb.gelu(x=y), axes=[1], keep_dims=True, name="mean"), mb.identity(x=y, name="y")

    x = half(1, 8, 16).astype(np.float32)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ct.convert(program, convert_to="mlprogram", minimum_deployment_target=IOS16, skip_model_load=True).save(os.path.join(folder, "converted.mlpackage"))
    p = np_softmax(np.swapaxes(x.astype(np.float64), 1, 2), -1)
    y = np.swapaxes(np.concatenate((np.exp(p[:, :8]), p[:, 8:]), 1), 1, 2) @ w.astype(np.float64).T
    data = Data()
    data.run({"x": x}, {"mean": ((0.5 * y * (1 + erf(y / np.sqrt(2)))).mean(1, keepdims=True), 2.0 ** -9, 2.0 ** -9), "y": (y, 2.0 ** -9, 2.0 ** -9)})
    data.write(folder, "converted")


if __name__ == "__main__":
    with np.errstate(all="ignore"): {f.__name__: f for f in (ops, state, weights, weights_ios16, prefill, converted)}[sys.argv[1]](sys.argv[2])
