"""Cases for every op that the interpreter knows; cases.py puts them into a program."""
import contextlib, io, logging, math

logging.disable(logging.CRITICAL)
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import coremltools as ct
    import numpy as np
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import Function, types

IOS18, IOS16 = ct.target.iOS18, ct.target.iOS16
DTYPES = {np.dtype(np.float16): types.fp16, np.dtype(np.float32): types.fp32, np.dtype(np.int32): types.int32}
rng = np.random.default_rng(7)


def half(*shape, scale=1.0): return (rng.standard_normal(shape) * scale).astype(np.float16)
def positive(*shape): return (rng.random(shape) + 0.05).astype(np.float16)
def ints(low, high, *shape): return rng.integers(low, high, shape).astype(np.int32)


def special(*shape):
    """Halves with NaN, infinities, zeros of both signs, subnormals and the largest ones among them."""
    x = half(*shape, scale=4)
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 6e-8, -6e-8, 65504, -65504, 2.5, 3.5, -2.5, -0.5, 0.5], np.float16)
    flat = x.reshape(-1)
    flat[rng.choice(flat.size, min(flat.size, len(values)), replace=False)] = values[:flat.size]
    return x


class Case:
    """fn is called twice: with the program's inputs, and with constants in fp32, for which coremltools infers the value. `ref` computes it where that is
    not inferred or not wanted, in float64 from the same arrays."""

    def __init__(self, name, fn, ref=None, rtol=2.0 ** -10, atol=2.0 ** -20, **arrays):
        self.name, self.fn, self.ref, self.rtol, self.atol, self.arrays = name, fn, ref, rtol, atol, arrays

    def expected(self):
        if self.ref is not None:
            out = self.ref(*(v.astype(np.float64) if v.dtype.kind == "f" else v for v in self.arrays.values()))
        else:
            consts = {k: v.astype(np.float32) if v.dtype == np.float16 else v for k, v in self.arrays.items()}
            with Function({}, opset_version=IOS18):
                out = self.fn(**{k: mb.const(val=v) for k, v in consts.items()})
                out = [o.val for o in (out if isinstance(out, (tuple, list)) else (out,))]
            if any(o is None for o in out): raise SystemExit(f"{self.name}: coremltools infers no value")
        return [np.atleast_1d(np.asarray(o)).astype(np.float64) for o in (out if isinstance(out, (tuple, list)) else (out,))]


def f(value, x):
    """A scalar of x's type."""
    return (np.float16 if x.dtype == types.fp16 else np.float32)(value)


def as_bool(x): return mb.cast(x=x, dtype="bool")


def np_conv(x, w, bias=None, stride=None, pad=None, dilation=None, groups=1):
    n = x.ndim - 2
    stride, dilation, pad = stride or [1] * n, dilation or [1] * n, pad or [0] * 2 * n
    x = np.pad(x, [(0, 0), (0, 0)] + [(pad[2 * i], pad[2 * i + 1]) for i in range(n)])
    extent = [(w.shape[2 + i] - 1) * dilation[i] + 1 for i in range(n)]
    out = [(x.shape[2 + i] - extent[i]) // stride[i] + 1 for i in range(n)]
    y = np.zeros([x.shape[0], w.shape[0]] + out)
    per = w.shape[0] // groups
    for place in np.ndindex(*out):
        window = x[(slice(None), slice(None)) + tuple(slice(p * s, p * s + e, d) for p, s, e, d in zip(place, stride, extent, dilation))]
        for g in range(groups):
            part = window[:, g * w.shape[1]:(g + 1) * w.shape[1]]
            y[(slice(None), slice(g * per, (g + 1) * per)) + place] = np.tensordot(part, w[g * per:(g + 1) * per], (range(1, x.ndim), range(1, x.ndim)))
    return y if bias is None else y + bias.reshape([1, -1] + [1] * n)


def np_softmax(x, axis):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True)


def np_attention(q, k, v, mask=0.0):
    return np_softmax(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + mask, -1) @ v


erf = np.vectorize(math.erf)
SUM = dict(rtol=2.0 ** -9, atol=2.0 ** -8)  # a sum may cancel


def elementwise():
    with np.errstate(all="ignore"):
        for op in ("add", "sub", "mul", "real_div", "maximum", "minimum", "floor_div", "mod", "greater", "greater_equal", "less", "less_equal", "equal", "not_equal"):
            numpy = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "real_div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
                     "floor_div": np.floor_divide, "mod": np.mod, "greater": np.greater, "greater_equal": np.greater_equal, "less": np.less,
                     "less_equal": np.less_equal, "equal": np.equal, "not_equal": np.not_equal}[op]
            fn = lambda x, y, op=op: getattr(mb, op)(x=x, y=y)
            yield Case(op, fn, x=half(3, 1, 5, 7, scale=3), y=half(2, 1, 7), ref=lambda x, y, g=numpy: g(x, y))
            if op not in ("floor_div", "mod"):  # of infinities: what C and numpy give differs
                yield Case(op + "_special", fn, x=special(17, 40), y=special(40), ref=lambda x, y, g=numpy: g(x, y))
            if op != "real_div":
                yield Case(op + "_int", fn, x=ints(-50, 50, 4, 9), y=ints(1, 9, 4, 1), ref=lambda x, y, g=numpy: g(x, y))
        yield Case("add_same_row", lambda x, y: mb.add(x=x, y=y), x=half(1, 64, 1, 130), y=half(1, 64, 1, 1), ref=np.add)
        yield Case("mul_float", lambda x, y: mb.mul(x=x, y=y), x=half(5, 6).astype(np.float32), y=half(6).astype(np.float32), ref=np.multiply, rtol=1e-6)
        yield Case("int_wraps", lambda x, y: mb.mul(x=x, y=y), x=np.array([2 ** 30, -2 ** 31, 70001], np.int32), y=np.array([4, -1, 70001], np.int32),
                   ref=lambda x, y: (x * y).astype(np.int32))
        yield Case("pow", lambda x, y: mb.pow(x=x, y=y), x=positive(4, 5), y=half(5), ref=np.power)
        yield Case("pow_int", lambda x, y: mb.pow(x=x, y=y), x=ints(-4, 5, 20), y=ints(0, 5, 20), ref=np.power)
        for op, numpy in (("logical_and", np.logical_and), ("logical_or", np.logical_or), ("logical_xor", np.logical_xor)):
            yield Case(op, lambda x, y, op=op: getattr(mb, op)(x=as_bool(x), y=as_bool(y)), x=ints(0, 2, 3, 8), y=ints(0, 2, 8), ref=numpy)
        yield Case("logical_not", lambda x: mb.logical_not(x=as_bool(x)), x=ints(0, 2, 9), ref=np.logical_not)
        sigmoid = lambda x: 1 / (1 + np.exp(-x))
        softplus = lambda x: np.logaddexp(0, x)
        unary = {"exp": np.exp, "exp2": np.exp2, "square": np.square, "tanh": np.tanh, "sigmoid": sigmoid, "silu": lambda x: x * sigmoid(x),
                 "relu": lambda x: np.maximum(x, 0), "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "round": np.round, "sin": np.sin, "cos": np.cos,
                 "tan": np.tan, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "erf": erf, "softsign": lambda x: x / (1 + abs(x)),
                 "relu6": lambda x: np.clip(x, 0, 6), "softplus": softplus}
        for op, numpy in unary.items():
            fn = lambda x, op=op: getattr(mb, op)(x=x)
            yield Case(op, fn, x=half(2, 33, 1, 17, scale=2), ref=numpy)
            wide = special(5, 61)
            if op in ("sin", "cos", "tan", "exp", "exp2", "sinh", "cosh", "silu"): wide[np.isinf(wide)] = 1  # of infinity: an error, or fp16's limits meet libm's
            yield Case(op + "_special", fn, x=wide, ref=numpy)
        yield Case("silu_long", lambda x: mb.silu(x=x), x=half(1, 90, 1, 128, scale=4), ref=unary["silu"])
        for op, numpy in (("sqrt", np.sqrt), ("asin", np.arcsin), ("acos", np.arccos), ("atanh", np.arctanh)):
            yield Case(op, lambda x, op=op: getattr(mb, op)(x=x), x=(positive(4, 7) * np.float16(0.9)), ref=numpy)
        yield Case("abs_int", lambda x: mb.abs(x=x), x=ints(-9, 9, 12), ref=np.abs)
        yield Case("rsqrt", lambda x: mb.rsqrt(x=x, epsilon=f(1e-3, x)), x=positive(6, 5), ref=lambda x: 1 / np.sqrt(x + np.float64(np.float16(1e-3))))
        yield Case("inverse", lambda x: mb.inverse(x=x, epsilon=f(1e-2, x)), x=positive(6, 5), ref=lambda x: 1 / (x + np.float64(np.float16(1e-2))))
        yield Case("log", lambda x: mb.log(x=x, epsilon=f(1e-2, x)), x=positive(6, 5), ref=lambda x: np.log(x + np.float64(np.float16(1e-2))))
        yield Case("clip", lambda x: mb.clip(x=x, alpha=f(-0.5, x), beta=f(0.75, x)), x=special(70), ref=lambda x: np.clip(x, -0.5, 0.75))
        yield Case("leaky_relu", lambda x: mb.leaky_relu(x=x, alpha=f(0.25, x)), x=half(50), ref=lambda x: np.where(x >= 0, x, x / 4))
        yield Case("elu", lambda x: mb.elu(x=x, alpha=f(0.5, x)), x=half(50), ref=lambda x: np.where(x >= 0, x, np.expm1(x) / 2))
        yield Case("linear_activation", lambda x: mb.linear_activation(x=x, alpha=f(0.5, x), beta=f(2, x)), x=half(50), ref=lambda x: x / 2 + 2)
        yield Case("scaled_tanh", lambda x: mb.scaled_tanh(x=x, alpha=f(0.5, x), beta=f(2, x)), x=half(50), ref=lambda x: np.tanh(2 * x) / 2)
        yield Case("sigmoid_hard", lambda x: mb.sigmoid_hard(x=x, alpha=f(0.25, x), beta=f(0.5, x)), x=half(50, scale=3), ref=lambda x: np.clip(x / 4 + 0.5, 0, 1))
        yield Case("thresholded_relu", lambda x: mb.thresholded_relu(x=x, alpha=f(0.5, x)), x=half(50), ref=lambda x: np.where(x >= 0.5, x, 0))
        alpha, beta = positive(3), positive(3)
        cast = lambda v, x: v if x.dtype == types.fp16 else v.astype(np.float32)
        per = lambda v: v.astype(np.float64).reshape(1, 3, 1)
        yield Case("prelu", lambda x: mb.prelu(x=x, alpha=cast(alpha, x)), x=half(2, 3, 7, 2), ref=lambda x: np.where(x >= 0, x, x * per(alpha)[..., None]))
        yield Case("softplus_parametric", lambda x: mb.softplus_parametric(x=x, alpha=cast(alpha, x), beta=cast(beta, x)), x=half(2, 3, 7, 2),
                   ref=lambda x: per(alpha)[..., None] * softplus(per(beta)[..., None] * x))
        tanh_gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))
        for mode, numpy in (("EXACT", lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2)))), ("TANH_APPROXIMATION", tanh_gelu), ("SIGMOID_APPROXIMATION", lambda x: x * sigmoid(1.702 * x))):
            yield Case("gelu_" + mode.lower(), lambda x, mode=mode: mb.gelu(x=x, mode=mode), x=half(3, 100, scale=2), ref=numpy, atol=2.0 ** -16)
        yield Case("cast_to_int", lambda x: mb.cast(x=x, dtype="int32"), x=half(40, scale=9), ref=np.trunc)
        yield Case("cast_to_half", lambda x: mb.cast(x=x, dtype="fp16"), x=np.array([1e-8, 1 / 3, 65519, 65520, -1e9, 2049, 2051], np.float32),
                   ref=lambda x: x.astype(np.float16), rtol=0, atol=0)
        yield Case("cast_to_float", lambda x: mb.cast(x=x, dtype="fp32"), x=special(33), ref=lambda x: x, rtol=0, atol=0)
        for t, d in (("int8", np.int8), ("uint8", np.uint8), ("int16", np.int16), ("uint16", np.uint16)):
            yield Case("cast_" + t, lambda x, t=t: mb.cast(x=mb.cast(x=x, dtype=t), dtype="int32"), x=ints(0, 120, 30), ref=lambda x: x)
        yield Case("select", lambda c, a, b: mb.select(cond=as_bool(c), a=a, b=b), c=ints(0, 2, 5, 1, 4), a=half(5, 3, 4), b=half(5, 3, 4), ref=lambda c, a, b: np.where(c, a, b))
        yield Case("select_int", lambda c, a, b: mb.select(cond=as_bool(c), a=a, b=b), c=ints(0, 2, 6), a=ints(-9, 9, 6), b=ints(-9, 9, 6), ref=lambda c, a, b: np.where(c, a, b))
        yield Case("identity", lambda x: mb.identity(x=x), x=special(31), ref=lambda x: x, rtol=0, atol=0)


def reductions():
    with np.errstate(all="ignore"):
        for op, numpy in (("reduce_sum", np.sum), ("reduce_mean", np.mean), ("reduce_max", np.max), ("reduce_min", np.min), ("reduce_prod", np.prod),
                          ("reduce_sum_square", lambda x, **k: np.sum(x * x, **k)), ("reduce_l1_norm", lambda x, **k: np.sum(abs(x), **k)),
                          ("reduce_l2_norm", lambda x, **k: np.sqrt(np.sum(x * x, **k))), ("reduce_log_sum_exp", lambda x, **k: np.log(np.sum(np.exp(x), **k)))):
            for i, (shape, axes) in enumerate((((2, 37, 1, 19), [1]), ((3, 4, 5), [-1, 0]), ((7, 11), [0]), ((4, 3, 2, 5), [0, 1, 2, 3]))):
                for keep in (True, False):
                    if not keep and len(axes) == len(shape): continue  # a scalar is no output
                    x = (half(*shape) * np.float16(0.5) + np.float16(1)) if op == "reduce_prod" else half(*shape)
                    yield Case(f"{op}_{i}_{keep}", lambda x, op=op, axes=axes, keep=keep: getattr(mb, op)(x=x, axes=axes, keep_dims=keep), x=x,
                               ref=lambda x, g=numpy, axes=axes, keep=keep: g(x, axis=tuple(axes), keepdims=keep), **SUM)
        yield Case("reduce_log_sum", lambda x: mb.reduce_log_sum(x=x, axes=[1], keep_dims=True), x=positive(3, 9), ref=lambda x: np.log(x.sum(1, keepdims=True)), **SUM)
        yield Case("reduce_sum_int", lambda x: mb.reduce_sum(x=x, axes=[1], keep_dims=False), x=ints(-99, 99, 3, 50), ref=lambda x: x.sum(1))
        yield Case("reduce_max_special", lambda x: mb.reduce_max(x=x, axes=[1], keep_dims=False), x=special(9, 20), ref=lambda x: x.max(1))
        for op, numpy in (("reduce_argmax", np.argmax), ("reduce_argmin", np.argmin)):
            for axis in (0, 1, 2):
                yield Case(f"{op}_{axis}", lambda x, op=op, axis=axis: getattr(mb, op)(x=x, axis=axis, keep_dims=False), x=np.round(half(5, 9, 6)), ref=lambda x, g=numpy, axis=axis: g(x, axis=axis))
        for i, (shape, axis) in enumerate((((3, 70), -1), ((1, 2, 33, 95), 3), ((2, 45, 1, 37), 1), ((6, 5), 0), ((1, 1), 1), ((2, 3, 200), 2))):
            yield Case(f"softmax_{i}", lambda x, axis=axis: mb.softmax(x=x, axis=axis), x=half(*shape, scale=4), ref=lambda x, axis=axis: np_softmax(x, axis), atol=2.0 ** -24)
        masked = half(1, 2, 16, 48, scale=3)
        masked[..., 20:] -= 30000
        yield Case("softmax_masked", lambda x: mb.softmax(x=x, axis=3), x=masked, ref=lambda x: np_softmax(x, 3), atol=2.0 ** -24)
        infinite = half(4, 40)
        infinite[0, ::2], infinite[1], infinite[2, 3], infinite[3, 7] = -np.inf, -np.inf, np.inf, np.nan
        yield Case("softmax_infinite", lambda x: mb.softmax(x=x, axis=1), x=infinite[[0, 1, 3]], ref=lambda x: np_softmax(x, 1), atol=2.0 ** -24)
        g, b = half(37), half(37)
        norm = lambda x, axes, eps: (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
        cast = lambda v, x: v if x.dtype == types.fp16 else v.astype(np.float32)
        eps = np.float64(np.float16(1e-3))
        yield Case("layer_norm_channels", lambda x: mb.layer_norm(x=x, axes=[1], epsilon=f(1e-3, x)), x=half(1, 150, 1, 41), ref=lambda x: norm(x, (1,), eps), atol=2.0 ** -10)
        yield Case("layer_norm_last", lambda x: mb.layer_norm(x=x, axes=[-1], gamma=cast(g, x), beta=cast(b, x), epsilon=f(1e-3, x)), x=half(2, 5, 37),
                   ref=lambda x: norm(x, (2,), eps) * g + b, atol=2.0 ** -9)
        g2, b2 = half(5, 6), half(5, 6)
        yield Case("layer_norm_two", lambda x: mb.layer_norm(x=x, axes=[1, 2], gamma=cast(g2, x), beta=cast(b2, x), epsilon=f(1e-3, x)), x=half(3, 5, 6),
                   ref=lambda x: norm(x, (1, 2), eps) * g2 + b2, atol=2.0 ** -9)
        yield Case("layer_norm_apart", lambda x: mb.layer_norm(x=x, axes=[0, 2], epsilon=f(1e-3, x)), x=half(3, 5, 6), ref=lambda x: norm(x, (0, 2), eps), atol=2.0 ** -10)
        large = half(1, 64, 1, 9, scale=3000)  # squares beyond fp16
        yield Case("layer_norm_large", lambda x: mb.layer_norm(x=mb.concat(values=(x, mb.mul(x=x, y=f(-1, x))), axis=1), axes=[1], epsilon=f(1e-5, x)), x=large,
                   ref=lambda x: np.concatenate((x, -x), 1) / np.sqrt((x * x).mean(1, keepdims=True)), atol=2.0 ** -10)
        m, v = half(6), positive(6)
        g6, b6 = half(6), half(6)
        c = lambda a: a.astype(np.float64).reshape(1, 6, 1, 1)
        yield Case("batch_norm", lambda x: mb.batch_norm(x=x, mean=cast(m, x), variance=cast(v, x), gamma=cast(g6, x), beta=cast(b6, x), epsilon=f(1e-3, x)), x=half(2, 6, 3, 5),
                   ref=lambda x: (x - c(m)) / np.sqrt(c(v) + eps) * c(g6) + c(b6), atol=2.0 ** -9)
        yield Case("batch_norm_plain", lambda x: mb.batch_norm(x=x, mean=cast(m, x), variance=cast(v, x), epsilon=f(1e-3, x)), x=half(2, 6, 5),
                   ref=lambda x: (x - c(m)[..., 0]) / np.sqrt(c(v)[..., 0] + eps), atol=2.0 ** -9)
        yield Case("instance_norm", lambda x: mb.instance_norm(x=x, gamma=cast(g6, x), beta=cast(b6, x), epsilon=f(1e-3, x)), x=half(2, 6, 3, 5),
                   ref=lambda x: norm(x, (2, 3), eps) * c(g6) + c(b6), atol=2.0 ** -9)
        yield Case("l2_norm", lambda x: mb.l2_norm(x=x, epsilon=f(1e-3, x)), x=half(2, 3, 4, 5), ref=lambda x: x / np.sqrt((x * x).sum((1, 2, 3), keepdims=True) + eps))
        for exclusive in (False, True):
            for reverse in (False, True):
                def sums(x, exclusive=exclusive, reverse=reverse):
                    x = x[:, ::-1] if reverse else x
                    y = np.cumsum(x, 1) - (x if exclusive else 0)
                    return y[:, ::-1] if reverse else y
                yield Case(f"cumsum_{exclusive}_{reverse}", lambda x, e=exclusive, r=reverse: mb.cumsum(x=x, axis=1, exclusive=e, reverse=r), x=half(3, 11), ref=sums, **SUM)


def movement():
    x4 = lambda: half(2, 3, 4, 5)
    yield Case("transpose", lambda x: mb.transpose(x=x, perm=[0, 2, -1, 1]), x=x4())
    yield Case("transpose_reshape", lambda x: mb.reshape(x=mb.transpose(x=x, perm=[3, 1, 0, 2]), shape=[15, -1]), x=x4())
    yield Case("reshape", lambda x: mb.reshape(x=x, shape=[4, -1, 3]), x=x4())
    yield Case("expand_squeeze", lambda x: mb.squeeze(x=mb.expand_dims(x=x, axes=[1, -1]), axes=[1]), x=half(3, 4))
    yield Case("squeeze_all", lambda x: mb.squeeze(x=x), x=half(1, 3, 1, 2))
    yield Case("concat", lambda x, y: mb.concat(values=(x, y, x), axis=1), x=half(2, 3, 4), y=half(2, 5, 4))
    yield Case("concat_computed", lambda x, y: mb.concat(values=(mb.relu(x=x), y, mb.reshape(x=mb.exp(x=mb.reshape(x=x, shape=[2, 12])), shape=[2, 4, 3])), axis=-1), x=half(2, 4, 3), y=half(2, 4, 6))
    yield Case("concat_twice", lambda x: (lambda r: (mb.concat(values=(r, r), axis=0), mb.concat(values=(r, x), axis=1)))(mb.relu(x=x)), x=half(3, 5))
    yield Case("concat_nested", lambda x: mb.concat(values=(mb.concat(values=(mb.abs(x=x), mb.relu(x=x)), axis=0), mb.concat(values=(mb.square(x=x), x), axis=0)), axis=1), x=half(3, 5))
    yield Case("concat_interleave", lambda x, y: mb.concat(values=(x, y), axis=1, interleave=True), x=half(2, 3, 4), y=half(2, 3, 4),
               ref=lambda x, y: np.stack((x, y), 2).reshape(2, 6, 4))  # coremltools infers it without interleaving
    yield Case("stack", lambda x, y: mb.stack(values=(x, mb.relu(x=y)), axis=1), x=half(3, 4), y=half(3, 4))
    yield Case("split", lambda x: mb.split(x=x, num_splits=3, axis=2), x=half(2, 3, 6))
    yield Case("split_sizes", lambda x: mb.split(x=x, split_sizes=[1, 4, 2], axis=-1), x=half(2, 7))
    yield Case("slice_by_index", lambda x: mb.slice_by_index(x=x, begin=[0, 1, -3, 0], end=[2, 3, 4, 5], stride=[1, 1, 1, 2]), x=x4())
    yield Case("slice_by_index_masks", lambda x: mb.slice_by_index(x=x, begin=[1, 0, 0, 3], end=[0, 2, 0, 0], begin_mask=[False, True, True, False], end_mask=[False, False, True, True],
                                                                   squeeze_mask=[True, False, False, False]), x=x4())
    yield Case("slice_backwards", lambda x: mb.slice_by_index(x=x, begin=[4], end=[0], stride=[-1]), x=half(6), ref=lambda x: x[4:0:-1])
    yield Case("slice_by_size", lambda x: mb.slice_by_size(x=x, begin=[0, 1, 2, 0], size=[2, 2, -1, 3]), x=x4(), ref=lambda x: x[:, 1:3, 2:, :3])
    yield Case("slice_at_run_time", lambda x, begin: mb.slice_by_size(x=x, begin=begin, size=[1, 3]), x=half(4, 9), begin=np.array([2, 5], np.int32), ref=lambda x, begin: x[2:3, 5:8])
    yield Case("slice_update", lambda x, u: mb.slice_update(x=x, update=u, begin=[0, 2, 0], end=[2, 5, 4]), x=half(2, 7, 4), u=half(2, 3, 4),
               ref=lambda x, u: np.concatenate((x[:, :2], u, x[:, 5:]), 1))
    yield Case("slice_update_run_time", lambda x, u, begin, end: mb.slice_update(x=x, update=u, begin=begin, end=end, stride=[1, 2], begin_mask=[True, False]), x=half(3, 9), u=half(3, 3),
               begin=np.array([1, 3], np.int32), end=np.array([3, 9], np.int32), ref=lambda x, u, begin, end: np.stack([np.where(np.isin(np.arange(9), (3, 5, 7)), np.repeat(r, 3)[(np.arange(9) - 3) // 2 * 3 % 9], o)
                                                                                                                     for o, r in zip(x, u)]))
    for i, (shape, index, axis) in enumerate((((10, 4), ints(0, 10, 3, 2), 0), ((3, 8, 2), ints(0, 8, 5), 1), ((2, 6), ints(-6, 6, 4), -1), ((5, 3, 2), ints(0, 5, 1), 0))):
        yield Case(f"gather_{i}", lambda x, i, axis=axis: mb.gather(x=x, indices=i, axis=axis, batch_dims=0, validate_indices=False), x=half(*shape), i=index,
                   ref=lambda x, i, axis=axis: np.take(x, i, axis=axis))
    yield Case("gather_batch", lambda x, i: mb.gather(x=x, indices=i, axis=2, batch_dims=1, validate_indices=False), x=half(2, 3, 7, 2), i=ints(0, 7, 2, 4),
               ref=lambda x, i: np.stack([np.take(a, b, axis=1) for a, b in zip(x, i)]))
    yield Case("gather_along_axis", lambda x, i: mb.gather_along_axis(x=x, indices=i, axis=1, validate_indices=False), x=half(3, 7, 2), i=ints(0, 7, 3, 4, 2), ref=lambda x, i: np.take_along_axis(x, i, 1))
    yield Case("gather_nd", lambda x, i: mb.gather_nd(x=x, indices=i, batch_dims=0, validate_indices=False), x=half(3, 4, 5), i=np.array([[0, 1], [2, 3], [1, 1]], np.int32),
               ref=lambda x, i: x[i[:, 0], i[:, 1]])
    yield Case("gather_nd_batch", lambda x, i: mb.gather_nd(x=x, indices=i, batch_dims=1, validate_indices=False), x=half(2, 4, 5), i=ints(0, 4, 2, 3, 1),
               ref=lambda x, i: np.stack([a[b[:, 0]] for a, b in zip(x, i)]))
    for mode, numpy in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("max", np.maximum), ("min", np.minimum), ("update", None), ("div", np.divide)):
        def scattered(d, i, u, numpy=numpy):
            d = d.copy()
            for j, k in enumerate(i): d[:, k] = u[:, j] if numpy is None else numpy(d[:, k], u[:, j])
            return d
        yield Case("scatter_" + mode, lambda d, i, u, mode=mode: mb.scatter(data=d, indices=i, updates=u, axis=1, mode=mode, validate_indices=False), d=half(2, 6, 3),
                   i=np.array([4, 0, 3], np.int32), u=positive(2, 3, 3), ref=scattered)
    def along(d, i, u):
        d = d.copy()
        for a, b in np.ndindex(*i.shape): d[i[a, b], b] += u[a, b]
        return d
    yield Case("scatter_along_axis", lambda d, i, u: mb.scatter_along_axis(data=d, indices=i, updates=u, axis=0, mode="add", validate_indices=False), d=half(5, 4), i=ints(0, 5, 3, 4), u=half(3, 4), ref=along, **SUM)
    def placed(d, i, u):
        d = d.copy()
        for k, place in enumerate(i): d[tuple(place)] += u[k]
        return d
    yield Case("scatter_nd", lambda d, i, u: mb.scatter_nd(data=d, indices=i, updates=u, mode="add", validate_indices=False), d=half(5, 4, 3), i=np.array([[0, 1], [4, 3], [2, 2]], np.int32), u=half(3, 3), ref=placed)
    yield Case("topk", lambda x: mb.topk(x=x, k=3, axis=1, ascending=False), x=half(4, 9, 2), ref=lambda x: (-np.sort(-x, 1)[:, :3], np.argsort(-x, 1, kind="stable")[:, :3]))
    yield Case("topk_ascending", lambda x: mb.topk(x=x, k=2, axis=-1, ascending=True, return_indices=False), x=half(4, 9), ref=lambda x: np.sort(x, 1)[:, :2])
    yield Case("argsort", lambda x: mb.argsort(x=x, axis=0, ascending=True), x=half(9, 4), ref=lambda x: np.argsort(x, 0, kind="stable"))
    yield Case("one_hot", lambda i: mb.one_hot(indices=i, one_hot_vector_size=5, axis=1, on_value=np.float16(2), off_value=np.float16(-1)), i=ints(0, 5, 3, 4),
               ref=lambda i: np.moveaxis(np.where(np.arange(5) == i[..., None], 2.0, -1.0), 2, 1))
    yield Case("range_1d", lambda x: mb.add(x=x, y=mb.range_1d(start=3, end=14, step=2)), x=ints(0, 5, 6), ref=lambda x: x + np.arange(3, 14, 2))
    yield Case("fill", lambda x: mb.add(x=x, y=mb.fill(shape=[2, 3], value=f(1.5, x))), x=half(2, 3), ref=lambda x: x + 1.5)
    yield Case("fill_like", lambda x: mb.fill_like(ref_tensor=x, value=np.float16(0.25)), x=half(2, 3), ref=lambda x: np.full((2, 3), 0.25))
    yield Case("tile", lambda x: mb.tile(x=x, reps=[2, 1, 3]), x=half(2, 3, 2))
    yield Case("pad", lambda x: mb.pad(x=x, pad=[1, 2, 0, 3], mode="constant", constant_val=f(0.5, x)), x=half(2, 3, 4))
    yield Case("pad_reflect", lambda x: mb.pad(x=x, pad=[2, 3], mode="reflect"), x=half(2, 5))
    yield Case("pad_replicate", lambda x: mb.pad(x=x, pad=[2, 3], mode="replicate"), x=half(2, 5))
    yield Case("band_part", lambda x: mb.band_part(x=x, lower=1, upper=2), x=half(2, 5, 6), ref=lambda x: np.triu(np.tril(x, 2), -1))
    yield Case("band_part_causal", lambda x: mb.band_part(x=x, lower=-1, upper=0), x=half(5, 5), ref=lambda x: np.tril(x))
    yield Case("shape", lambda x: mb.shape(x=x), x=half(2, 5, 6), ref=lambda x: np.array([2, 5, 6]))
    yield Case("reverse", lambda x: mb.reverse(x=x, axes=[0, -1]), x=half(3, 2, 4))
    yield Case("reverse_all", lambda x: mb.reverse(x=x), x=half(3, 4))
    yield Case("views_of_views", lambda x: mb.softmax(x=mb.transpose(x=mb.reshape(x=mb.slice_by_index(x=x, begin=[0, 2, 0], end=[2, 8, 10]), shape=[2, 3, 2, 10]), perm=[0, 3, 1, 2]), axis=1),
               x=half(2, 9, 10), ref=lambda x: np_softmax(x[:, 2:8].reshape(2, 3, 2, 10).transpose(0, 3, 1, 2), 1), atol=2.0 ** -24)


def products():
    c = dict(rtol=2.0 ** -10, atol=2.0 ** -8)
    for i, (shape, out) in enumerate((((1, 64, 1, 32), 96), ((1, 37, 1, 41), 45), ((2, 5, 3, 4), 7), ((1, 3, 11), 2), ((1, 100, 1, 1), 33), ((1, 4, 2, 3, 5), 6))):
        w, b = half(out, shape[1], *[1] * (len(shape) - 2), scale=0.2), half(out)
        yield Case(f"conv1x1_{i}", lambda x, w=w, b=b: mb.conv(x=x, weight=w, bias=b, pad_type="valid"), x=half(*shape), ref=lambda x, w=w, b=b: np_conv(x, w.astype(np.float64), b), **c)
    for i, (shape, kernel, keys) in enumerate((((1, 5, 9, 8), (7, 5, 3, 2), {}), ((2, 4, 12), (6, 4, 3), dict(strides=[2], pad_type="custom", pad=[1, 2])),
                                               ((1, 4, 9, 9), (8, 2, 3, 3), dict(groups=2, dilations=[2, 1])), ((1, 6, 7), (6, 1, 3), dict(groups=6, pad_type="custom", pad=[1, 1])),
                                               ((1, 3, 4, 5, 6), (2, 3, 2, 2, 3), dict(strides=[1, 2, 1])), ((1, 40, 10), (50, 40, 3), dict(dilations=[2])))):
        w = half(*kernel, scale=0.3)
        np_keys = dict(stride=keys.get("strides"), pad=keys.get("pad"), dilation=keys.get("dilations"), groups=keys.get("groups", 1))
        yield Case(f"conv_{i}", lambda x, w=w, keys=keys: mb.conv(x=x, weight=w, **{"pad_type": "valid", **keys}), x=half(*shape),
                   ref=lambda x, w=w, k=np_keys: np_conv(x, w.astype(np.float64), **k), **c)
    for side in ("same", "same_lower"):
        w = half(4, 3, 3, 2, scale=0.3)
        def padded(x, w=w, side=side):
            total = [max(0, (-(-d // 2) - 1) * 2 + k - d) for d, k in zip(x.shape[2:], w.shape[2:])]
            pad = sum(([t // 2, t - t // 2] if side == "same" else [t - t // 2, t // 2] for t in total), [])
            return np_conv(x, w.astype(np.float64), stride=[2, 2], pad=pad)
        yield Case("conv_" + side, lambda x, w=w, side=side: mb.conv(x=x, weight=w, strides=[2, 2], pad_type=side), x=half(1, 3, 8, 7), ref=padded, **c)
    yield Case("conv_run_time_weight", lambda x, w: mb.conv(x=x, weight=w, pad_type="valid"), x=half(1, 8, 1, 9), w=half(5, 8, 1, 1), ref=np_conv, **c)
    yield Case("conv_of_parts", lambda x, w: mb.conv(x=mb.slice_by_size(x=x, begin=[0, 3, 0, 2], size=[1, 8, 1, 9]), weight=mb.slice_by_size(x=w, begin=[0, 2, 0, 0], size=[5, 8, 1, 1]), pad_type="valid"),
               x=half(1, 12, 1, 13), w=half(5, 12, 1, 1), ref=lambda x, w: np_conv(x[:, 3:11, :, 2:11], w[:, 2:10]), **c)
    yield Case("conv_float", lambda x: mb.conv(x=x, weight=np.ones((3, 4, 1), np.float32) / 3, pad_type="valid"), x=half(1, 4, 6).astype(np.float32),
               ref=lambda x: np_conv(x, np.ones((3, 4, 1), np.float32).astype(np.float64) * np.float64(np.float32(1 / 3))), rtol=1e-6, atol=1e-6)
    wl, bl = half(45, 70, scale=0.2), half(45)
    for i, shape in enumerate(((70,), (5, 70), (2, 3, 70), (1, 128, 70))):
        yield Case(f"linear_{i}", lambda x: mb.linear(x=x, weight=wl, bias=bl), x=half(*shape), ref=lambda x: x @ wl.astype(np.float64).T + bl, **c)
    for i, (a, b, tx, ty) in enumerate((((5, 7), (7, 3), 0, 0), ((2, 3, 40, 50), (2, 3, 50, 60), 0, 0), ((1, 3, 16, 40), (1, 1, 16, 90), 1, 0), ((1, 1, 16, 90), (1, 3, 40, 90), 0, 1),
                                        ((2, 1, 33, 17), (5, 17, 9), 0, 0), ((4, 6, 5), (4, 8, 6), 1, 1), ((2, 1, 1, 64), (2, 1, 64, 200), 0, 0), ((3, 2, 20, 8), (3, 1, 8, 24), 0, 0), ((1, 2, 200, 33), (1, 2, 70, 33), 0, 1))):
        def product(x, y, tx=tx, ty=ty):
            return np.matmul(np.swapaxes(x, -1, -2) if tx else x, np.swapaxes(y, -1, -2) if ty else y)
        yield Case(f"matmul_{i}", lambda x, y, tx=tx, ty=ty: mb.matmul(x=x, y=y, transpose_x=bool(tx), transpose_y=bool(ty)),
                   x=half(*a), y=half(*b), ref=product, rtol=2.0 ** -10, atol=2.0 ** -7)
    known = half(50, 60)
    yield Case("matmul_const_y", lambda x: mb.matmul(x=x, y=known), x=half(3, 20, 50), ref=lambda x: x @ known.astype(np.float64), rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("matmul_const_y_turned", lambda x: mb.matmul(x=x, y=known, transpose_y=True), x=half(3, 20, 60), ref=lambda x: x @ known.astype(np.float64).T, rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("matmul_const_x", lambda y: mb.matmul(x=known, y=y), y=half(2, 60, 35), ref=lambda y: known.astype(np.float64) @ y, rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("matmul_const_x_turned", lambda y: mb.matmul(x=known, y=y, transpose_x=True), y=half(2, 50, 35), ref=lambda y: known.astype(np.float64).T @ y, rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("matmul_int", lambda x, y: mb.matmul(x=x, y=y), x=ints(-9, 9, 4, 5), y=ints(-9, 9, 5, 6), ref=np.matmul)
    yield Case("matmul_float", lambda x, y: mb.matmul(x=x, y=y), x=half(4, 50).astype(np.float32), y=half(50, 6).astype(np.float32), ref=np.matmul, rtol=1e-5, atol=1e-5)
    large = np.full((1, 64), 60, np.float16)
    yield Case("matmul_overflows", lambda x, y: mb.matmul(x=x, y=y), x=large, y=np.full((64, 3), 40, np.float16), ref=lambda x, y: np.full((1, 3), np.inf))
    yield Case("einsum_4", lambda x, y: mb.einsum(values=(x, y), equation="nchw,nwhu->nchu"), x=half(2, 5, 3, 40), y=half(2, 40, 3, 33), ref=lambda x, y: np.einsum("nchw,nwhu->nchu", x, y), rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("einsum_apple", lambda k, q: mb.einsum(values=(k, q), equation="bkhc,bchq->bkhq"), k=half(1, 50, 1, 16), q=half(1, 16, 1, 37), ref=lambda k, q: np.einsum("bkhc,bchq->bkhq", k, q), rtol=2.0 ** -10, atol=2.0 ** -7)
    yield Case("einsum_3", lambda x, y: mb.einsum(values=(x, y), equation="chw,whr->chr"), x=half(5, 3, 4), y=half(4, 3, 6), ref=lambda x, y: np.einsum("chw,whr->chr", x, y), rtol=2.0 ** -10, atol=2.0 ** -7)
    for i, (b, L, S, E, V, mask) in enumerate((((2, 3), 17, 29, 16, 16, None), ((1,), 5, 40, 24, 8, "float"), ((1, 2), 33, 33, 8, 8, "bool"))):
        q, k, v = half(*b, L, E), half(*b, S, E), half(*b, S, V)
        extra = {} if mask is None else {"m": half(L, S) if mask == "float" else np.tril(np.ones((L, S), np.int32))}
        def attend(q, k, v, m=None, mask=mask):
            keys = {} if m is None else {"attn_mask": m if mask == "float" else as_bool(m)}
            return mb.scaled_dot_product_attention(query=q, key=k, value=v, **keys)
        def numpy(q, k, v, m=0.0, mask=mask): return np_attention(q, k, v, np.where(m, 0, -np.inf) if mask == "bool" else m)
        yield Case(f"attention_{i}", attend, q=q, k=k, v=v, **extra, ref=numpy, rtol=2.0 ** -10, atol=2.0 ** -11)
    for t, d in (("int8", np.int8), ("uint8", np.uint8)):
        def quantized(x, d=d): return np.clip(np.round(x / 0.125) + 3, np.iinfo(d).min, np.iinfo(d).max)
        yield Case("quantize_" + t, lambda x, t=t, d=d: mb.cast(x=mb.quantize(input=x, zero_point=d(3), scale=f(0.125, x), output_dtype=t), dtype="int32"), x=half(6, 7, scale=20), ref=quantized)
    scale = positive(7)
    yield Case("dequantize", lambda x: mb.dequantize(input=mb.cast(x=x, dtype="int8"), zero_point=np.arange(7, dtype=np.int8), scale=scale, axis=1), x=ints(-128, 128, 4, 7),
               ref=lambda x: (x - np.arange(7)) * scale.astype(np.float64))
