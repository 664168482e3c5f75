#include "coreml/mil/infer.h"

#include <algorithm>
#include <set>

#include "coreml/mil/given.h"

namespace pd::mil {
namespace {

// ---- elementwise ----

Types SameAsX(const Given& in) { return {in.Type("x")}; }

Types Binary(const Given& in) {
  const TensorType &x = in.Type("x"), &y = in.Type("y");
  WantSameType(x, y);
  return {{x.dtype, Broadcast(x.shape, y.shape)}};
}

Types Compare(const Given& in) {
  const Dims shape = Binary(in).front().shape;
  return {{DataType::kBool, shape}};
}

Types Cast(const Given& in) { return {{in.DataTypeOr("dtype", ""), in.Type("x").shape}}; }

Types Select(const Given& in) {
  const TensorType &a = in.Type("a"), &b = in.Type("b");
  WantSameType(a, b);
  if (in.Type("cond").dtype != DataType::kBool) throw Wrong("'cond' must be bool");
  return {{a.dtype, Broadcast(Broadcast(a.shape, b.shape), in.Type("cond").shape)}};
}

// ---- linear algebra ----

Types Conv(const Given& in) {
  const TensorType &x = in.Type("x"), &w = in.Type("weight");
  WantRank(x, 3, 5);
  const size_t spatial = x.shape.size() - 2;
  if (w.shape.size() != x.shape.size())
    throw Wrong("a weight of rank {} for an input of rank {}", w.shape.size(), x.shape.size());
  const int64_t groups = in.IntOr("groups", 1);
  if (groups < 1 || w.shape[0] % groups != 0 || w.shape[1] * groups != x.shape[1])
    throw Wrong("weight {} with {} groups for {} input channels", Show(w.shape), groups, x.shape[1]);
  if (const Operand* bias = in.Find("bias"); bias && bias->type.shape != Dims{w.shape[0]})
    throw Wrong("a bias {} for {} output channels", Show(bias->type.shape), w.shape[0]);
  const auto strides = in.IntsOr("strides", std::vector<int64_t>(spatial, 1));
  const auto dilations = in.IntsOr("dilations", std::vector<int64_t>(spatial, 1));
  auto pad = in.IntsOr("pad", std::vector<int64_t>(2 * spatial, 0));
  const std::string pad_type = in.StringOr("pad_type", "valid");
  if (strides.size() != spatial || dilations.size() != spatial || pad.size() != 2 * spatial)
    throw Wrong("strides, dilations and pad must have {}, {} and {} entries", spatial, spatial, 2 * spatial);
  if (pad_type != "valid" && pad_type != "custom" && pad_type != "same" && pad_type != "same_lower")
    throw Wrong("pad_type '{}'", pad_type);
  if (pad_type != "custom") pad.assign(2 * spatial, 0);
  TensorType y{x.dtype, {x.shape[0], w.shape[0]}};
  for (size_t i = 0; i < spatial; ++i) {
    if (strides[i] < 1 || dilations[i] < 1) throw Wrong("strides and dilations must be positive");
    const int64_t extent = (w.shape[i + 2] - 1) * dilations[i] + 1;
    const int64_t room = x.shape[i + 2] + pad[2 * i] + pad[2 * i + 1] - extent;
    const bool same = pad_type == "same" || pad_type == "same_lower";
    if (!same && room < 0)
      throw Wrong("a kernel of {} is too large for an axis of {}", extent, x.shape[i + 2]);
    y.shape.push_back(same ? (x.shape[i + 2] + strides[i] - 1) / strides[i] : room / strides[i] + 1);
  }
  return {y};
}

Types Linear(const Given& in) {
  const TensorType &x = in.Type("x"), &w = in.Type("weight");
  WantRank(x, 1, 3);
  if (w.shape.size() != 2 || w.shape[1] != x.shape.back())
    throw Wrong("weight {} for an input {}", Show(w.shape), Show(x.shape));
  if (const Operand* bias = in.Find("bias"); bias && bias->type.shape != Dims{w.shape[0]})
    throw Wrong("a bias {} for {} outputs", Show(bias->type.shape), w.shape[0]);
  TensorType y = x;
  y.shape.back() = w.shape[0];
  return {y};
}

Types MatMul(const Given& in) {
  const TensorType &tx = in.Type("x"), &ty = in.Type("y");
  Dims x = tx.shape, y = ty.shape;
  WantRank(tx, 1, 5);
  WantRank(ty, 1, 5);
  const bool vector_x = x.size() == 1, vector_y = y.size() == 1;
  if (vector_x) x.insert(x.begin(), 1);
  if (vector_y) y.push_back(1);
  if (in.IntOr("transpose_x", 0) && !vector_x) std::swap(x[x.size() - 1], x[x.size() - 2]);
  if (in.IntOr("transpose_y", 0) && !vector_y) std::swap(y[y.size() - 1], y[y.size() - 2]);
  if (x.back() != y[y.size() - 2])
    throw Wrong("matrices {} and {} do not match", Show(tx.shape), Show(ty.shape));
  Dims shape = Broadcast(Dims(x.begin(), x.end() - 2), Dims(y.begin(), y.end() - 2));
  if (!vector_x) shape.push_back(x[x.size() - 2]);
  if (!vector_y) shape.push_back(y.back());
  return {{tx.dtype, shape}};
}

// Supports only the form nchw,nwhu->nchu (and chw,whr->chr), with any letters.
Types Einsum(const Given& in) {
  const auto* values = in.FindAll("values");
  if (!values || values->size() != 2) throw Wrong("einsum takes two tensors");
  const TensorType &a = (*values)[0].type, &b = (*values)[1].type;
  WantSameType(a, b);
  const std::string equation = in.StringOr("equation", "");
  std::string canonical;
  std::map<char, char> letters;
  const bool rank4 = a.shape.size() == 4;
  for (char c : equation) {
    if (c < 'a' || c > 'z') {
      canonical += c;
      continue;
    }
    canonical += letters.try_emplace(c, char('a' + letters.size())).first->second;
  }
  if (canonical != (rank4 ? "abcd,adce->abce" : "abc,cbd->abd"))
    throw Wrong("einsum equation '{}'", equation);
  const size_t n = rank4 ? 4 : 3;
  if (a.shape.size() != n || b.shape.size() != n) throw Wrong("einsum takes two tensors of rank 3 or 4");
  if (a.shape[n - 1] != b.shape[n - 3])
    throw Wrong("einsum of {} and {}: the contracted axes differ", Show(a.shape), Show(b.shape));
  const Dims middle = Broadcast({a.shape[n - 2]}, {b.shape[n - 2]});
  Dims shape = {a.shape[n - 3], middle[0], b.shape[n - 1]};
  if (rank4) shape.insert(shape.begin(), Broadcast({a.shape[0]}, {b.shape[0]})[0]);
  return {{a.dtype, shape}};
}

Types DotProductAttention(const Given& in) {
  const TensorType &q = in.Type("query"), &k = in.Type("key"), &v = in.Type("value");
  const size_t n = q.shape.size();
  WantRank(q, 3, 5);
  if (k.shape.size() != n || v.shape.size() != n ||
      !std::equal(q.shape.begin(), q.shape.end() - 2, k.shape.begin()) ||
      !std::equal(q.shape.begin(), q.shape.end() - 2, v.shape.begin()) || q.shape[n - 1] != k.shape[n - 1] ||
      k.shape[n - 2] != v.shape[n - 2])
    throw Wrong("attention of {}, {}, {}", Show(q.shape), Show(k.shape), Show(v.shape));
  Dims shape = q.shape;
  shape[n - 1] = v.shape[n - 1];
  if (const Operand* mask = in.Find("attn_mask")) {
    Dims scores = q.shape;
    scores[n - 1] = k.shape[n - 2];
    if (Broadcast(scores, mask->type.shape) != scores)
      throw Wrong("a mask {} for scores {}", Show(mask->type.shape), Show(scores));
  }
  return {{q.dtype, shape}};
}

// ---- reductions and norms ----

Types Reduce(const Given& in) {
  const TensorType& x = in.Type("x");
  std::set<size_t> reduced;
  if (in.Find("axes")) {
    for (size_t a : Axes(in.Ints("axes"), x.shape.size())) reduced.insert(a);
  } else {
    for (size_t a = 0; a < x.shape.size(); ++a) reduced.insert(a);
  }
  const bool keep = in.IntOr("keep_dims", 0) != 0;
  TensorType y{x.dtype, {}};
  for (size_t a = 0; a < x.shape.size(); ++a)
    if (!reduced.contains(a))
      y.shape.push_back(x.shape[a]);
    else if (keep)
      y.shape.push_back(1);
  return {y};
}

Types ReduceArg(const Given& in) {
  TensorType y = in.Type("x");
  const size_t axis = Axis(in.IntOr("axis", -1), y.shape.size());
  y.dtype = in.DataTypeOr("output_dtype", "int32");
  if (in.IntOr("keep_dims", 0))
    y.shape[axis] = 1;
  else
    y.shape.erase(y.shape.begin() + std::ptrdiff_t(axis));
  return {y};
}

Types AlongAxis(const Given& in) {  // softmax, cumsum, argsort
  Axis(in.IntOr("axis", -1), in.Type("x").shape.size());
  return SameAsX(in);
}

Types ArgSort(const Given& in) { return {{DataType::kI32, AlongAxis(in).front().shape}}; }

Types LayerNorm(const Given& in) {
  const TensorType& x = in.Type("x");
  Dims normed;
  if (in.Find("axes"))
    for (size_t a : Axes(in.Ints("axes"), x.shape.size())) normed.push_back(x.shape[a]);
  else
    normed = x.shape;
  for (const char* parameter : {"gamma", "beta"})
    if (const Operand* affine = in.Find(parameter); affine && affine->type.shape != normed)
      throw Wrong("{} {} for axes of {}", parameter, Show(affine->type.shape), Show(normed));
  return {x};
}

Types ChannelNorm(const Given& in) {  // batch_norm, instance_norm
  const TensorType& x = in.Type("x");
  WantRank(x, 3, 5);
  for (const char* parameter : {"mean", "variance", "gamma", "beta"})
    if (const Operand* p = in.Find(parameter); p && p->type.shape != Dims{x.shape[1]})
      throw Wrong("{} {} for {} channels", parameter, Show(p->type.shape), x.shape[1]);
  return {x};
}

// ---- states, quantisation ----

Types ReadState(const Given& in) { return {in.Type("input")}; }

Types WriteState(const Given& in) {
  if (in.Type("input") != in.Type("data"))
    throw Wrong("a state of {} is written with {}", ToString(in.Type("input")), ToString(in.Type("data")));
  return {};
}

Types Quantize(const Given& in) { return {{in.DataTypeOr("output_dtype", ""), in.Type("input").shape}}; }
Types Dequantize(const Given& in) { return {{in.Type("scale").dtype, in.Type("input").shape}}; }

Types AffineDequantize(const Given& in) {
  return {{in.Type("scale").dtype, in.Type("quantized_data").shape}};
}

Types BlockwiseShiftScale(const Given& in) {
  const TensorType &data = in.Type("data"), &scale = in.Type("scale");
  bool fits = data.shape.size() == scale.shape.size();
  for (size_t a = 0; fits && a < data.shape.size(); ++a)
    fits = scale.shape[a] > 0 && data.shape[a] % scale.shape[a] == 0;
  if (!fits) throw Wrong("scales {} for data {}", Show(scale.shape), Show(data.shape));
  if (const Operand* offset = in.Find("offset"); offset && offset->type.shape != scale.shape)
    throw Wrong("offsets {} for scales {}", Show(offset->type.shape), Show(scale.shape));
  return {{scale.dtype, data.shape}};
}

// In the ios18 form, indices have the tensor's own shape; the older form has packed bytes and a `shape`.
Types LutToDense(const Given& in) {
  const TensorType &indices = in.Type("indices"), &lut = in.Type("lut");
  if (in.Find("shape")) return {{lut.dtype, in.Ints("shape")}};
  const size_t rank = indices.shape.size();
  const int bits = Bits(indices.dtype);
  bool fits = bits <= 8 && lut.shape.size() == rank + 2 && lut.shape[rank] == int64_t(1) << bits;
  for (size_t a = 0; fits && a < rank; ++a) fits = lut.shape[a] > 0 && indices.shape[a] % lut.shape[a] == 0;
  if (!fits) throw Wrong("a table {} for indices {} of {} bits", Show(lut.shape), Show(indices.shape), bits);
  TensorType y{lut.dtype, indices.shape};
  const int64_t vector = lut.shape[rank + 1];
  if (vector != 1) y.shape[Axis(in.Int("vector_axis"), rank)] *= vector;
  return {y};
}

Types SparseToDense(const Given& in) {
  const DataType dtype = in.Type("nonzero_data").dtype;
  return {{dtype, in.Find("shape") ? in.Ints("shape") : in.Type("mask").shape}};
}

Types ConstexprCast(const Given& in) {
  return {{in.DataTypeOr("output_dtype", ""), in.Type("source_val").shape}};
}

Types LutToSparse(const Given& in) {
  return {in.Type("indices_mask"), {in.Type("lut").dtype, in.Type("indices_nonzero_data").shape}};
}

Types SparseBlockwise(const Given& in) {
  return {in.Type("data_mask"), {in.Type("scale").dtype, in.Type("nonzero_data").shape}};
}

const Rules& AllRules() {
  static const Rules rules = [] {
    Rules r = {
        {"conv", Conv},
        {"linear", Linear},
        {"matmul", MatMul},
        {"einsum", Einsum},
        {"scaled_dot_product_attention", DotProductAttention},
        {"cast", Cast},
        {"select", Select},
        {"reduce_argmax", ReduceArg},
        {"reduce_argmin", ReduceArg},
        {"softmax", AlongAxis},
        {"cumsum", AlongAxis},
        {"argsort", ArgSort},
        {"layer_norm", LayerNorm},
        {"batch_norm", ChannelNorm},
        {"instance_norm", ChannelNorm},
        {"read_state", ReadState},
        {"write_state", WriteState},
        {"quantize", Quantize},
        {"dequantize", Dequantize},
        {"constexpr_affine_dequantize", AffineDequantize},
        {"constexpr_blockwise_shift_scale", BlockwiseShiftScale},
        {"constexpr_lut_to_dense", LutToDense},
        {"constexpr_sparse_to_dense", SparseToDense},
        {"constexpr_cast", ConstexprCast},
        {"constexpr_lut_to_sparse", LutToSparse},
        {"constexpr_sparse_blockwise_shift_scale", SparseBlockwise},
    };
    for (const char* op : {"add", "sub", "mul", "real_div", "maximum", "minimum", "pow", "floor_div", "mod"})
      r[op] = Binary;
    for (const char* op : {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
                           "logical_and", "logical_or", "logical_xor"})
      r[op] = Compare;
    for (const char* op : {"exp",         "exp2",
                           "sqrt",        "square",
                           "tanh",        "sigmoid",
                           "silu",        "relu",
                           "abs",         "sign",
                           "floor",       "ceil",
                           "round",       "sin",
                           "cos",         "tan",
                           "asin",        "acos",
                           "atan",        "sinh",
                           "cosh",        "atanh",
                           "erf",         "softsign",
                           "relu6",       "rsqrt",
                           "inverse",     "log",
                           "clip",        "leaky_relu",
                           "elu",         "linear_activation",
                           "scaled_tanh", "sigmoid_hard",
                           "softplus",    "softplus_parametric",
                           "prelu",       "thresholded_relu",
                           "gelu",        "identity",
                           "logical_not", "l2_norm",
                           "band_part",   "reverse"})
      r[op] = SameAsX;
    for (const char* op :
         {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum_square",
          "reduce_l1_norm", "reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp"})
      r[op] = Reduce;
    r.insert(MovementRules().begin(), MovementRules().end());
    return r;
  }();
  return rules;
}

}  // namespace

bool IsKnownOp(std::string_view op) { return AllRules().contains(op); }

std::vector<TensorType> InferOutputs(std::string_view op, const Operands& operands) {
  const auto it = AllRules().find(op);
  PD_CHECK(it != AllRules().end());
  return it->second(Given(operands));
}

Dims Broadcast(const Dims& x, const Dims& y) {
  Dims result = x.size() >= y.size() ? x : y;
  const Dims& shorter = x.size() >= y.size() ? y : x;
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t& d = result[result.size() - shorter.size() + i];
    const int64_t other = shorter[i];
    if (d != other && d != 1 && other != 1) throw Wrong("{} and {} cannot be broadcast", Show(x), Show(y));
    if (d == 1) d = other;
  }
  return result;
}

}  // namespace pd::mil
