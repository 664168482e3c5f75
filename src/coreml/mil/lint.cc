#include "coreml/mil/lint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "coreml/mil/check.h"
#include "coreml/mil/encoded.h"

namespace pd::mil {
namespace {

constexpr int64_t kMostAxis = 65536;   // longer axes are unsupported on every chip
constexpr int64_t kMostWidth = 16384;  // chips before M4: the last axis, and the depth of a product
constexpr int64_t kRow = 32;           // halves in 64 bytes
constexpr int64_t kMostWeights = 1'000'000'000, kLeastWeights = 14'000'000;  // bytes of one function

const std::set<std::string, std::less<>>& OffEngine() {
  static const std::set<std::string, std::less<>> ops = {"gather",
                                                         "gather_nd",
                                                         "gather_along_axis",
                                                         "topk",
                                                         "argsort",
                                                         "reduce_argmax",
                                                         "reduce_argmin",
                                                         "cast",
                                                         "cond",
                                                         "while_loop",
                                                         "scatter",
                                                         "scatter_nd",
                                                         "scatter_along_axis",
                                                         "non_zero",
                                                         "one_hot",
                                                         "range_1d",
                                                         "shape",
                                                         "fill",
                                                         "fill_like",
                                                         "cumsum",
                                                         "band_part",
                                                         "quantize",
                                                         "dequantize",
                                                         "scaled_dot_product_attention"};
  return ops;
}

bool IsConstant(const Operation& op) { return op.type == "const" || op.type.starts_with("constexpr_"); }

int64_t StoredBytes(const TensorType& type) {
  return type.dtype == DataType::kString ? 0 : int64_t(ByteSize(type));
}

// Stored size of a constant: its operands, not its decoded value.
int64_t StoredBytes(const Operation& op) {
  int64_t bytes = 0;
  for (const auto& [key, value] : op.attributes)
    if (key != "name") bytes += StoredBytes(value.type);
  for (const auto& [parameter, bindings] : op.inputs)
    for (const Binding& binding : bindings)
      if (const auto* value = std::get_if<Value>(&binding)) bytes += StoredBytes(value->type);
  return bytes;
}

class Linter {
 public:
  Linter(const std::string& name, const Function& function) : function_(function) { result_.name = name; }

  LintedFunction Run() && {
    for (const NamedType& input : function_.inputs) {
      scope_.Define(input);
      if (input.type.dtype != DataType::kF16)
        result_.violations.push_back("input " + input.name + " is " + ToString(input.type) + ", not fp16");
    }
    for (const Operation& op : function_.body.operations) {
      if (!IsConstant(op)) LintOp(op);
      for (const NamedType& output : op.outputs) {
        const auto value = op.attributes.find("val");
        scope_.Define(output, op.type == "const" && !value->second.blob() ? &value->second : nullptr);
      }
      if (IsConstant(op)) constants_[op.outputs.at(0).name] = &op;
    }
    MeasureActivations();
    LintWhole();
    return std::move(result_);
  }

 private:
  static void Note(LintedOp& linted, Verdict verdict, const std::string& reason) {
    linted.verdict = std::max(linted.verdict, verdict);
    linted.reason += (linted.reason.empty() ? "" : "; ") + reason;
  }

  void LintOp(const Operation& op) {
    LintedOp linted{op.type, "", {}, Verdict::kGood, "", 0, 0};
    const Operands operands = scope_.Resolve(op);
    if (!op.outputs.empty()) {
      linted.name = op.outputs.front().name;
      linted.result = op.outputs.front().type;
    }
    if (OffEngine().contains(op.type))
      Note(linted, Verdict::kViolation, "this op does not run, or gives wrong results, on the Neural Engine");
    for (const NamedType& output : op.outputs) LintResult(linted, output.type);
    if (op.type == "conv") LintConv(linted, op, operands);
    if (op.type == "matmul" || op.type == "einsum") LintProduct(linted, op, operands);
    if (op.type.starts_with("slice_by_")) LintSlice(linted, operands);
    linted.weight_bytes = NewWeightBytes(op);
    result_.flops += linted.flops;
    result_.weight_bytes += linted.weight_bytes;
    result_.ops.push_back(std::move(linted));
  }

  void LintResult(LintedOp& linted, const TensorType& type) {
    const Dims& d = type.shape;
    if (std::count(d.begin(), d.end(), kUnknown) > 0)
      return Note(linted, Verdict::kViolation, "its shape is known only at run time");
    if (type.dtype != DataType::kF16) return Note(linted, Verdict::kViolation, "not fp16");
    if (d.size() > 4) Note(linted, Verdict::kViolation, fmt::format("rank {}", d.size()));
    if (std::any_of(d.begin(), d.end(), [](int64_t n) { return n > kMostAxis; }))
      Note(linted, Verdict::kViolation, fmt::format("an axis above {}", kMostAxis));
    if (d.empty()) return;
    if (d.back() == 1)
      Note(linted, Verdict::kWarning, "innermost axis of 1 is padded 32 times");
    else if (d.back() % kRow != 0)
      Note(linted, Verdict::kWarning,
           fmt::format("innermost axis {} is padded to a multiple of {}", d.back(), kRow));
    if (d.back() > kMostWidth)
      Note(linted, Verdict::kWarning,
           fmt::format("innermost axis {} is above {}, the limit before M4", d.back(), kMostWidth));
  }

  void LintConv(LintedOp& linted, const Operation& op, const Operands& operands) {
    const auto weight = operands.find("weight");
    if (weight == operands.end() || weight->second.at(0).type.shape.size() < 3) return;
    const Dims& w = weight->second.at(0).type.shape;
    int64_t depth = 1;
    for (size_t i = 1; i < w.size(); ++i) depth *= w[i];
    double positions = 1;
    for (size_t i = 0; i < linted.result.shape.size(); ++i)
      if (i != 1) positions *= double(linted.result.shape[i]);
    linted.flops = 2.0 * double(w[0]) * double(depth) * positions;
    if (w[1] == 1 && w[0] > 1) Note(linted, Verdict::kWarning, "a depthwise convolution was seen on the CPU");
    if (depth > kMostDepth)
      Note(linted, Verdict::kViolation,
           fmt::format("reduction depth {} is above {}: cut it", depth, kMostDepth));
    const auto* name = std::get_if<std::string>(op.Find("weight"));
    const auto constant = name ? constants_.find(*name) : constants_.end();
    if (constant != constants_.end() && constant->second->type == "const" && InDmaNotch(w[0], depth))
      Note(linted, Verdict::kWarning,
           fmt::format(
               "{} x {} streams a multiple of 1 MiB a core: reported three times slower; cut the inputs",
               w[0], depth));
  }

  void LintProduct(LintedOp& linted, const Operation& op, const Operands& operands) {
    int64_t depth = 0;
    if (op.type == "matmul") {
      const Dims& x = operands.at("x").at(0).type.shape;
      const auto flag = operands.find("transpose_x");
      const bool transposed =
          flag != operands.end() && flag->second.at(0).value && ReadInts(*flag->second.at(0).value)[0];
      depth = x.size() < 2 || !transposed ? x.back() : x[x.size() - 2];
    } else {
      depth = operands.at("values").at(0).type.shape.back();
    }
    linted.flops = 2.0 * double(depth);
    for (int64_t d : linted.result.shape) linted.flops *= double(d);
    if (depth > kMostWidth)
      Note(linted, Verdict::kWarning,
           fmt::format("contraction of {} is above {}, the limit before M4", depth, kMostWidth));
  }

  void LintSlice(LintedOp& linted, const Operands& operands) {
    const auto begin = operands.find("begin");
    if (begin == operands.end() || !begin->second.at(0).value) return;
    if (const auto first = ReadInts(*begin->second.at(0).value); !first.empty() && first.back() != 0)
      Note(linted, Verdict::kWarning,
           "a slice at an offset of the last axis turns values above 4094 infinite before M4");
  }

  int64_t NewWeightBytes(const Operation& op) {
    int64_t bytes = 0;
    for (const auto& [parameter, bindings] : op.inputs)
      for (const Binding& binding : bindings) {
        const auto* name = std::get_if<std::string>(&binding);
        const auto constant = name ? constants_.find(*name) : constants_.end();
        if (constant != constants_.end() && counted_.insert(*name).second)
          bytes += StoredBytes(*constant->second);
      }
    return bytes;
  }

  // Each tensor is live from the op that makes it to the last op that reads it; views count as copies.
  void MeasureActivations() {
    const auto size = [](const TensorType& type) {
      return std::count(type.shape.begin(), type.shape.end(), kUnknown) ? 0 : StoredBytes(type);
    };
    std::map<std::string, size_t> last_use;
    const std::vector<Operation>& ops = function_.body.operations;
    for (size_t i = 0; i < ops.size(); ++i)
      for (const auto& [parameter, bindings] : ops[i].inputs)
        for (const Binding& binding : bindings)
          if (const auto* name = std::get_if<std::string>(&binding)) last_use[*name] = i;
    for (const std::string& output : function_.body.outputs) last_use[output] = ops.size();
    int64_t live = 0, most = 0;
    std::map<size_t, int64_t> ending;  // bytes of tensors whose last use is op i
    for (const NamedType& input : function_.inputs)
      live += size(input.type);  // held by the caller all the time
    for (size_t i = 0; i < ops.size(); ++i) {
      if (IsConstant(ops[i])) continue;
      for (const NamedType& output : ops[i].outputs) {
        live += size(output.type);
        ending[last_use[output.name]] += size(output.type);
      }
      most = std::max(most, live);
      if (const auto end = ending.find(i); end != ending.end()) live -= end->second;
    }
    result_.activation_bytes = std::max(most, live);
  }

  void LintWhole() {
    const double megabytes = double(result_.weight_bytes) / 1e6;
    if (result_.weight_bytes > kMostWeights)
      result_.violations.push_back(
          fmt::format("{:.0f} MB of weights, more than {} MB is not advised: use smaller shards", megabytes,
                      kMostWeights / 1'000'000));
    if (result_.weight_bytes < kLeastWeights)
      result_.findings.push_back(
          fmt::format("{:.1f} MB of weights: functions below about {} MB were seen on the CPU", megabytes,
                      kLeastWeights / 1'000'000));
  }

  const Function& function_;
  LintedFunction result_;
  Scope scope_;
  std::map<std::string, const Operation*> constants_;
  std::set<std::string> counted_;  // constants already counted
};

}  // namespace

int LintedFunction::CountOps(Verdict verdict) const {
  return int(
      std::count_if(ops.begin(), ops.end(), [&](const LintedOp& op) { return op.verdict == verdict; }));
}

LintedFunction Lint(const std::string& name, const Function& function) {
  return Linter(name, function).Run();
}

}  // namespace pd::mil
