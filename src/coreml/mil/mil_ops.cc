#include "coreml/mil/mil_ops.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace pd::mil {
namespace {

constexpr const char* kOpset = "CoreML8";  // macOS 15: multifunction packages, tables for groups of channels

Value Ints(const std::vector<int32_t>& values) { return Vector(values); }

Value Sizes(const Dims& dims) {
  std::vector<int32_t> sizes;
  for (int64_t d : dims) sizes.push_back(int32_t(d));
  return Vector(sizes);
}

}  // namespace

static_assert(Ops<MilOps>);

MilOps::MilOps(const ModelSpec& spec, const RangeScales& scales, const LoweringOptions& options,
               const PrefillShape& shape, const std::vector<int>& shard_begins)
    : spec_(spec),
      scales_(scales),
      options_(options),
      shape_(shape),
      interface_(InterfaceOf(spec, shape.history)),
      shard_begins_(shard_begins),
      builder_(kOpset) {
  PD_CHECK(scales.layers.size() == spec.layers.size());
  PD_CHECK(!shard_begins.empty() && shard_begins.front() == 0);
}

// ---- shorthands ----

std::string MilOps::View(const Tensor& x, int heads) {
  if (x.heads == heads) return x.name;
  const int64_t last = builder_.ShapeOf(x.name).back();
  const Dims shape = heads ? Dims{1, heads, x.channels / heads, last} : Dims{1, x.channels, 1, last};
  return builder_.Op("reshape", {{"x", x.name}, {"shape", Sizes(shape)}});
}

std::string MilOps::Slice(const std::string& x, size_t axis, int64_t first, int64_t count) {
  Dims size = builder_.ShapeOf(x), begin(size.size(), 0);
  if (first == 0 && count == size[axis]) return x;
  begin[axis] = first;
  size[axis] = count;
  return builder_.Op("slice_by_size", {{"x", x}, {"begin", Sizes(begin)}, {"size", Sizes(size)}});
}

std::string MilOps::Concat(const std::vector<std::string>& values, int axis) {
  if (values.size() == 1) return values.front();
  return builder_.Op("concat", {{"values", values}, {"axis", Scalar(axis)}, {"interleave", Scalar(false)}});
}

std::string MilOps::Binary(const char* op, const std::string& x, const std::string& y) {
  return builder_.Op(op, {{"x", x}, {"y", y}});
}

std::string MilOps::Scaled(const std::string& x, float factor) {
  return builder_.Op("mul", {{"x", x}, {"y", ScalarF16(factor)}});
}

std::string MilOps::MatMul(const std::string& x, const std::string& y, bool transpose_x, bool transpose_y) {
  return builder_.Op(
      "matmul",
      {{"x", x}, {"y", y}, {"transpose_x", Scalar(transpose_x)}, {"transpose_y", Scalar(transpose_y)}});
}

std::string MilOps::Constant(const EncodedWeight& weight, const EncodedPart& part) {
  std::string name = Identifier(weight.info);
  if (weight.parts.size() > 1) name += fmt::format("_from_{}", part.first);
  if (part.op == "const") return builder_.Const(name, part.operands.at(0).second);
  return builder_.Constexpr(part.op, name, part.operands);
}

std::string MilOps::Conv(const std::string& x, const std::string& weight, const std::string& bias) {
  Parameters parameters = {{"x", x},
                           {"weight", weight},
                           {"strides", Ints({1, 1})},
                           {"pad_type", Scalar("valid")},
                           {"pad", Ints({0, 0, 0, 0})},
                           {"dilations", Ints({1, 1})},
                           {"groups", Scalar(1)}};
  if (!bias.empty()) parameters.emplace_back("bias", bias);
  return builder_.Op("conv", parameters);
}

// ---- the operations of Forward ----

MilOps::Tensor MilOps::Embed(const Weight&, float, const Rows&) {  // the host looks up and scales
  return {builder_.Input(kHidden, {DataType::kF16, {1, spec_.width, 1, shape_.tokens}}), spec_.width, 0};
}

// LayerNorm over [x, -x] is RMSNorm: the mean is 0 and the variance mean(x^2), accumulated without overflow.
// The gain is a separate multiplication: affine layer norms failed to compile at some widths.
MilOps::Tensor MilOps::Normed(const Tensor& x, int heads, const NormWeights<Weight>& w,
                              const NormSpec& norm) {
  const int axis = heads > 0 ? 2 : 1;
  const EncodedWeight& gain = **w.gain;
  const std::string g = Constant(gain, gain.parts.at(0));
  const std::string v = View(x, heads);
  const std::string both = norm.mean ? v : Concat({v, Scaled(v, -1)}, axis);
  const std::string normed =
      builder_.Op("layer_norm", {{"x", both},
                                 {"axes", Ints({axis})},
                                 {"epsilon", ScalarF16(FoldedEpsilon(spec_, scales_, gain.info, norm))}});
  const std::string half = Slice(normed, size_t(axis), 0, builder_.ShapeOf(v)[size_t(axis)]);
  std::string y = Binary("mul", half, g);
  if (w.bias) y = Binary("add", y, Constant(**w.bias, (*w.bias)->parts.at(0)));
  return {y, x.channels, heads};
}

MilOps::Tensor MilOps::Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm) {
  return Normed(x, 0, w, norm);
}

MilOps::Tensor MilOps::NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm,
                                 int heads) {
  return Normed(x, heads, w, norm);
}

MilOps::Tensor MilOps::Linear(const Tensor& x, const LinearWeights<Weight>& w) {
  const std::string v = View(x, 0);
  std::string sum;
  for (const EncodedPart& part : w.weight->parts) {
    // The bias goes with the first slab only.
    const std::string bias = sum.empty() && w.bias ? Constant(**w.bias, (*w.bias)->parts.at(0)) : "";
    const std::string slab = Slice(v, 1, part.first, part.inputs);
    const std::string y = Conv(slab, Constant(*w.weight, part), bias);
    sum = sum.empty() ? y : Binary("add", sum, y);
  }
  return {sum, int(w.weight->info.shape.at(0)), 0};
}

// All heads at once on the head axis: x * cos + swapped * sin; sin includes the sign of the rotation.
MilOps::Tensor MilOps::Rope(const Tensor& x, int heads, const RopeSpec& rope, const Rows&) {
  const int d = x.channels / heads, half = rope.dims / 2;
  const TensorType table{DataType::kF16, {1, 1, d, shape_.tokens}};
  const RopeInput& input = interface_.RopeOf(rope, d);
  const std::string v = View(x, heads);
  const std::string second = Slice(v, 2, half, half), first = Slice(v, 2, 0, half);
  std::vector<std::string> parts = {second, first};
  if (rope.dims < d) parts.push_back(Slice(v, 2, rope.dims, d - rope.dims));
  const std::string kept = Binary("mul", v, builder_.Input(input.cos, table));
  const std::string turned = Binary("mul", Concat(parts, 2), builder_.Input(input.sin, table));
  return {Binary("add", kept, turned), x.channels, heads};
}

void MilOps::RawKeys(int layer, const Tensor& keys) {
  if (options_.keys == KeyForm::kRaw) builder_.Output(View(keys, 0), NewKeys(layer));
}

void MilOps::Append(int layer, const AttentionSpec&, Tensor k, Tensor v, const Rows&) {
  k = {View(k, 0), k.channels, 0};
  v = {View(v, 0), v.channels, 0};
  if (options_.keys == KeyForm::kRotated) builder_.Output(k.name, NewKeys(layer));
  builder_.Output(v.name, NewValues(layer));
  cached_[layer] = {std::move(k), std::move(v)};
}

MilOps::Tensor MilOps::Gate(const Tensor& x, const Tensor* up, const GateSpec& gate) {
  std::string act;
  if (gate.act == Activation::kSilu) {
    act = builder_.Op("silu", {{"x", x.name}});
  } else {
    const char* mode = gate.act == Activation::kGelu ? "EXACT" : "TANH_APPROXIMATION";
    act = builder_.Op("gelu", {{"x", x.name}, {"mode", Scalar(mode)}});
  }
  return {up ? Binary("mul", act, up->name) : act, x.channels, 0};
}

MilOps::Tensor MilOps::Add(const Tensor& x, const Tensor& y, float scale) {
  const std::string a = View(x, 0);
  std::string b = View(y, 0);
  if (scale != 1) b = Scaled(b, scale);
  return {Binary("add", a, b), x.channels, 0};
}

MilOps::Tensor MilOps::Logits(const Tensor&, const Weight&, std::optional<float>, float, const Rows&) {
  PD_CHECK(!"a prefill program ends at the last layer's keys and values");
  return {};
}

void MilOps::BeginLayer(int layer, Tensor& x) {
  if (layer == 0 || std::find(shard_begins_.begin(), shard_begins_.end(), layer) == shard_begins_.end())
    return;
  builder_.Output(x.name, kHiddenOut);
  finished_.push_back(std::move(builder_).Finish());
  builder_ = FunctionBuilder(kOpset);
  x = {builder_.Input(kHidden, {DataType::kF16, {1, x.channels, 1, shape_.tokens}}), x.channels, 0};
}

std::vector<Function> MilOps::Finish() && {
  finished_.push_back(std::move(builder_).Finish());
  return std::move(finished_);
}

std::vector<Function> LowerPrefill(const ModelSpec& spec, const Weights<const EncodedWeight*>& weights,
                                   const RangeScales& scales, const LoweringOptions& options,
                                   const PrefillShape& shape, const std::vector<int>& shard_begins) {
  MilOps ops(spec, scales, options, shape, shard_begins);
  const auto logits = Forward(ops, spec, weights, Rows{});  // no rows of logits: keys and values only
  PD_CHECK(!logits);
  return std::move(ops).Finish();
}

}  // namespace pd::mil
