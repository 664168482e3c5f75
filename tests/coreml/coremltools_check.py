"""What the C++ tests ask of coremltools.

    coremltools_check.py make FOLDER           packages made by coremltools' own builder, for our reader
    coremltools_check.py same A.mlpackage B.mlpackage   exit 1 unless both hold the same program, description and constants
    coremltools_check.py resave A.mlpackage B.mlpackage [FUNCTION]   rebuilds a function from A and saves it as coremltools would
"""
import contextlib, io, logging, os, sys

logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import coremltools as ct
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

FP16, IOS18 = ct.precision.FLOAT16, ct.target.iOS18


def convert(program, path):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ct.convert(program, convert_to="mlprogram", minimum_deployment_target=IOS18, compute_precision=FP16,
                   skip_model_load=True).save(path)


def attention(T, S, weights):
    """One layer of heads on axis 1; S past keys."""
    C, H, D = 64, 4, 16
    specs = [mb.TensorSpec((1, C, 1, T), types.fp16), mb.TensorSpec((1, 1, T, S + T), types.fp16)]
    if S: specs.append(mb.TensorSpec((1, C, 1, S), types.fp16))

    def body(x, mask, past=None):
        conv = lambda name: mb.conv(x=x, weight=weights[name], pad_type="valid", name=name)
        y = mb.layer_norm(x=mb.concat(values=(x, mb.mul(x=x, y=np.float16(-1))), axis=1), axes=[1], epsilon=np.float16(1e-5))
        y = mb.slice_by_size(x=y, begin=[0, 0, 0, 0], size=[1, C, 1, -1])
        q, k, v = (mb.conv(x=y, weight=weights[n], pad_type="valid") for n in "qkv")
        keys = mb.concat(values=(past, k), axis=3) if past is not None else k
        values = mb.concat(values=(past, v), axis=3) if past is not None else v
        q, keys, values = (mb.reshape(x=t, shape=[1, H, D, t.shape[3]]) for t in (q, keys, values))
        p = mb.softmax(x=mb.add(x=mb.matmul(x=q, y=keys, transpose_x=True), y=mask), axis=3)
        o = mb.reshape(x=mb.matmul(x=values, y=p, transpose_y=True), shape=[1, C, 1, T])
        return mb.identity(x=mb.silu(x=o), name="y"), mb.gelu(x=k, mode="TANH_APPROXIMATION", name="z")

    if S:
        @mb.program(input_specs=specs, opset_version=IOS18)
        def program(x, mask, past): return body(x, mask, past)
    else:
        @mb.program(input_specs=specs, opset_version=IOS18)
        def program(x, mask): return body(x, mask)
    return program


def make(folder):
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal((64, 64, 1, 1)).astype(np.float16) for n in "qkv"}
    paths = []
    for T, S in ((32, 0), (32, 64)):
        paths.append(os.path.join(folder, f"single_{S}.mlpackage"))
        convert(attention(T, S, weights), paths[-1])
    d = ct.utils.MultiFunctionDescriptor()
    for i, path in enumerate(paths): d.add_function(path, src_function_name="main", target_function_name=f"f{i}")
    d.default_function_name = "f0"
    ct.utils.save_multifunction(d, os.path.join(folder, "multi.mlpackage"))

    # A state, updated in place at a run-time position.
    @mb.program(input_specs=[mb.TensorSpec((1, 4, 1, 16), types.fp16), mb.TensorSpec((4,), types.int32), mb.TensorSpec((4,), types.int32),
                             mb.StateTensorSpec((1, 4, 8, 16), types.fp16)], opset_version=IOS18)
    def stateful(new, begin, end, cache):
        c = mb.read_state(input=cache)
        n = mb.slice_update(x=c, update=new, begin=begin, end=end)
        r = mb.coreml_update_state(state=cache, value=n)
        return mb.reduce_sum(x=r, axes=[2], keep_dims=False, name="sum")
    convert(stateful, os.path.join(folder, "state.mlpackage"))

    # Compressed weights in every form that iOS 18 programs use.
    @mb.program(input_specs=[mb.TensorSpec((1, 64, 1, 32), types.fp16)], opset_version=IOS18)
    def compressed(x):
        u4 = rng.integers(0, 16, (32, 64, 1, 1)).astype(types.nptype_from_builtin(types.string_to_builtin("uint4")))
        lut = rng.standard_normal((4, 1, 1, 1, 16, 1)).astype(np.float16)
        w0 = mb.constexpr_lut_to_dense(indices=u4, lut=lut)
        w1 = mb.constexpr_blockwise_shift_scale(data=rng.integers(-127, 127, (32, 64, 1, 1)).astype(np.int8),
                                                scale=rng.random((32, 1, 1, 1)).astype(np.float16))
        w2 = mb.constexpr_blockwise_shift_scale(data=u4, scale=rng.random((32, 2, 1, 1)).astype(np.float16),
                                                offset=np.full((32, 2, 1, 1), 8).astype(u4.dtype))
        return tuple(mb.conv(x=x, weight=w, pad_type="valid", name=n) for w, n in ((w0, "a"), (w1, "b"), (w2, "c")))
    convert(compressed, os.path.join(folder, "compressed.mlpackage"))

    # fp32 interface, casts, reductions, a flexible shape.
    @mb.program(input_specs=[mb.TensorSpec((1, 8, 16))], opset_version=ct.target.iOS16)
    def mixed(x):
        y = mb.softmax(x=mb.transpose(x=x, perm=[0, 2, 1]), axis=-1)
        a, b = mb.split(x=y, num_splits=2, axis=1)
        return mb.reduce_mean(x=mb.concat(values=(mb.exp(x=a), b), axis=2), axes=[1], keep_dims=True, name="m")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        ct.convert(mixed, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS16, skip_model_load=True,
                   inputs=[ct.TensorType(name="x", shape=(1, 8, 16))]).save(os.path.join(folder, "mixed.mlpackage"))


def blob(path, offset):
    """The record at `offset`: type, padding and data."""
    with open(path, "rb") as f:
        f.seek(offset)
        head = f.read(64)
        size = int.from_bytes(head[8:16], "little")
        return head[4:8], head[24:32], f.read(size)


def values_of(message):
    """Every Value in a program, with its weight file reference."""
    if message.DESCRIPTOR.name == "Value" and message.HasField("blobFileValue"): yield message
    for field, value in message.ListFields():
        if field.message_type is None: continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for k in sorted(value): yield from values_of(value[k])
        elif not hasattr(value, "ListFields"):
            for x in value: yield from values_of(x)
        else: yield from values_of(value)


def fail(what):
    print(f"{what} differ")
    sys.exit(1)


def same(a, b):
    specs = [ct.utils.load_spec(p) for p in (a, b)]
    kept = []
    for path, spec in zip((a, b), specs):
        data = []
        for value in values_of(spec.mlProgram):
            ref = value.blobFileValue
            data.append(blob(os.path.join(path, "Data", "com.apple.CoreML", "weights", os.path.basename(ref.fileName)), ref.offset))
            ref.offset = len(data)  # places may differ, what lies there may not
        kept.append(data)
        info = spec.mlProgram.attributes["buildInfo"].immediateValue.dictionary.values
        info.sort(key=lambda pair: pair.key.immediateValue.tensor.strings.values[0])  # a list of pairs that means a map
    if specs[0].mlProgram != specs[1].mlProgram: fail("programs")
    if specs[0].description != specs[1].description: fail("descriptions")
    if specs[0].specificationVersion != specs[1].specificationVersion: fail("versions")
    if kept[0] != kept[1]: fail("constants")


def resave(source, target, function="main"):
    from coremltools.converters.mil.converter import mil_convert
    from coremltools.converters.mil.frontend.milproto import load as milproto
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        spec = ct.utils.load_spec(source)
        model = ct.models.MLModel(source, skip_model_load=True)
        program = milproto.load(model_spec=spec, specification_version=spec.specificationVersion, file_weights_dir=model.weights_dir)
        for name in [n for n in program.functions if n != function]: del program.functions[name]
        if function != "main": program.functions["main"] = program.functions.pop(function)
        program.default_function_name = "main"
        out = mil_convert(program, convert_from="milinternal", convert_to="mlprogram", specification_version=spec.specificationVersion,
                          compute_units=ct.ComputeUnit.CPU_ONLY, skip_model_load=True, pass_pipeline=ct.PassPipeline.EMPTY)
        out.save(target)


if __name__ == "__main__":
    {"make": make, "same": same, "resave": resave}[sys.argv[1]](*sys.argv[2:])
