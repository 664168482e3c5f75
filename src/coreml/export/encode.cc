#include "coreml/export/encode.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace pd {
namespace {

using mil::DataType;
using mil::EncodedPart;
using mil::EncodedWeight;

constexpr std::array kFormats = {std::pair{WeightFormat::kFp16, "fp16"},
                                 std::pair{WeightFormat::kInt8, "int8"},
                                 std::pair{WeightFormat::kLut4, "lut4"}};
constexpr float kMostHalf = 65504;
constexpr int64_t kMostGroup = 32;  // output channels that share a table
constexpr int64_t kBlockBytes = 1 << 20;

bool IsNorm(Part part) {
  return part == Part::kPreMixer || part == Part::kPostMixer || part == Part::kPreBranch ||
         part == Part::kPostBranch || part == Part::kPostFfn || part == Part::kQNorm || part == Part::kKNorm;
}

// Head norms run along the head's dimensions, others along channels; biases of convolutions are [n].
mil::Dims VectorShape(const ModelSpec& spec, const WeightInfo& info) {
  const int64_t n = info.shape.at(0);
  if (!IsNorm(info.part)) return {n};
  const bool of_heads = (info.part == Part::kQNorm || info.part == Part::kKNorm) &&
                        !AttentionOf(spec.layers[size_t(info.layer)]).qk_norm->full_width;
  return of_heads ? mil::Dims{1, 1, n, 1} : mil::Dims{1, n, 1, 1};
}

mil::Value Placed(const mil::TensorType& type, BlobLayout& layout) {
  return {type, mil::Blob{kWeightFile, layout.Add(type), {}, {}}};
}

// The largest divisor of the number of output channels that a table may serve.
int64_t GroupOf(int64_t out) {
  int64_t group = std::min(out, kMostGroup);
  while (out % group != 0) --group;
  return group;
}

const mil::Value& Operand(const EncodedPart& part, const char* name) {
  for (const auto& [operand, value] : part.operands)
    if (operand == name) return value;
  PD_CHECK(!"a planned part has the operands of its op");
  return part.operands.front().second;
}

// The nearest integer to v * inverse, from -127 to 127, ties to even: adding 1.5 * 2^23 removes the fraction.
float Stepped(float v, float inverse) {
  constexpr float kShift = 0x1.8p23f;
  return std::clamp(v * inverse, -127.f, 127.f) + kShift - kShift;
}

// The smallest scale that clips no value; a row of zeros gets a nonzero scale.
float WidestScale(std::span<const float> row) {
  float most = 0;
  for (float v : row) most = std::max(most, std::abs(v));
  float scale = ToFloat(ToF16(most / 127));
  if (scale * 127 < most) scale = ToFloat(F16{uint16_t(ToF16(scale).bits + 1)});
  return scale == 0 ? 0x1p-24f : scale;
}

// The sum of squared errors at a scale, weighted by each column's importance. Sixteen sums side by side,
// which compilers vectorise.
double WeightedError(std::span<const float> row, std::span<const float> importance, float scale) {
  constexpr size_t kLanes = 16;
  float sums[kLanes] = {};
  const float inverse = 1 / scale;
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes)
    for (size_t l = 0; l < kLanes; ++l) {
      const float error = row[i + l] - scale * Stepped(row[i + l], inverse);
      sums[l] += importance[i + l] * error * error;
    }
  double total = 0;
  for (; i < row.size(); ++i) {
    const float error = row[i] - scale * Stepped(row[i], inverse);
    total += double(importance[i] * error * error);
  }
  for (float sum : sums) total += double(sum);
  return total;
}

// A scale slightly below the largest, chosen so that the important columns fall closest to its steps.
float BestScale(std::span<const float> row, std::span<const float> importance, float widest) {
  constexpr int kTried = 48;
  constexpr float kStep = 0.004f;
  float best = widest;
  double least = WeightedError(row, importance, widest);
  for (int i = 1; i < kTried; ++i) {
    const float scale = ToFloat(ToF16(widest * (1 - kStep * float(i))));
    if (scale == 0) break;
    if (const double error = WeightedError(row, importance, scale); error < least)
      least = error, best = scale;
  }
  return best;
}

bool AllFinite(std::span<const std::byte> halves) {
  bool finite = true;
  for (size_t i = 1; i < halves.size(); i += 2) finite &= (halves[i] & std::byte(0x7c)) != std::byte(0x7c);
  return finite;
}

// Packs four-bit indices into bytes, the first in the low half, without padding between rows.
class NibblePacker {
 public:
  void Add(std::span<const uint8_t> indices, std::vector<std::byte>& bytes) {
    for (uint8_t index : indices) {
      if (half_) {
        bytes.push_back(std::byte(low_ | index << 4));
      } else {
        low_ = index;
      }
      half_ = !half_;
    }
  }
  void Finish(std::vector<std::byte>& bytes) const {
    if (half_) bytes.push_back(std::byte(low_));
  }

 private:
  bool half_ = false;
  uint8_t low_ = 0;
};

}  // namespace

const char* Name(WeightFormat format) { return kFormats.at(size_t(format)).second; }

std::optional<WeightFormat> WeightFormatOf(std::string_view name) {
  for (const auto& [format, known] : kFormats)
    if (name == known) return format;
  return std::nullopt;
}

bool IsNeeded(const ModelSpec& spec, const WeightInfo& info) {
  if (info.layer < 0) return false;
  if (info.layer + 1 < int(spec.layers.size())) return true;
  return info.part == Part::kPreMixer || info.part == Part::kK || info.part == Part::kV ||
         info.part == Part::kKNorm;
}

EncodedWeight PlanWeight(const ModelSpec& spec, const WeightInfo& info, WeightFormat format,
                         BlobLayout& layout) {
  PD_CHECK(IsNeeded(spec, info));
  EncodedWeight weight{info, {}};
  if (info.shape.size() == 1) {
    weight.parts = {
        {0, info.shape[0], "const", {{"val", Placed({DataType::kF16, VectorShape(spec, info)}, layout)}}}};
    return weight;
  }
  const int64_t out = info.shape.at(0), in = info.shape.at(1);
  int64_t first = 0;
  for (int64_t inputs : mil::SplitInputs(out, in, format == WeightFormat::kFp16)) {
    EncodedPart part{first, inputs, "const", {}};
    const mil::Dims shape = {out, inputs, 1, 1};
    switch (format) {
      case WeightFormat::kFp16:
        part.operands = {{"val", Placed({DataType::kF16, shape}, layout)}};
        break;
      case WeightFormat::kInt8:
        part.op = "constexpr_blockwise_shift_scale";
        part.operands.emplace_back("data", Placed({DataType::kI8, shape}, layout));
        part.operands.emplace_back("scale", Placed({DataType::kF16, {out, 1, 1, 1}}, layout));
        break;
      case WeightFormat::kLut4:
        part.op = "constexpr_lut_to_dense";
        part.operands.emplace_back("indices", Placed({DataType::kU4, shape}, layout));
        part.operands.emplace_back(
            "lut", Placed({DataType::kF16, {out / GroupOf(out), 1, 1, 1, kTableSize, 1}}, layout));
        break;
    }
    weight.parts.push_back(std::move(part));
    first += inputs;
  }
  return weight;
}

int64_t StoredBytes(const EncodedWeight& weight) {
  int64_t bytes = 0;
  for (const EncodedPart& part : weight.parts)
    for (const auto& [name, value] : part.operands) bytes += int64_t(mil::ByteSize(value.type));
  return bytes;
}

void WeightEncoder::Write(const EncodedWeight& planned, const TensorView& tensor, float factor) {
  PD_CHECK(tensor.shape == planned.info.shape);
  const auto importance = importance_.find(planned.info.Name());
  const std::vector<float>* known = importance == importance_.end() ? nullptr : &importance->second;
  for (const EncodedPart& part : planned.parts) {
    if (part.op == "const")
      WriteHalves(part, tensor, factor);
    else if (part.op == "constexpr_blockwise_shift_scale")
      WriteInt8(part, tensor, factor, known);
    else
      WriteLut4(part, tensor, factor, known);
  }
}

void WeightEncoder::ReadRow(const TensorView& tensor, int64_t row, float factor,
                            std::span<float> values) const {
  tensor.ReadRow(row, values);
  if (factor != 1)
    for (float& v : values) v *= factor;
  for (float v : values)
    if (!(std::abs(v) <= kMostHalf))
      throw Fail(ErrorKind::kUnsupported, "{}: row {} holds {}, which fp16 cannot", tensor.name, row, v);
}

void WeightEncoder::Begin(const EncodedPart& part, const char* operand) {
  const mil::Value& value = Operand(part, operand);
  const uint64_t offset = out_.Begin(value.type);
  PD_CHECK(offset == value.blob()->offset);  // written in the planned order
}

void WeightEncoder::WriteHalves(const EncodedPart& part, const TensorView& tensor, float factor) {
  Begin(part, "val");
  const bool as_stored = tensor.type == DType::kF16 && factor == 1 && tensor.has_whole_rows();
  const auto first = size_t(part.first), inputs = size_t(part.inputs);
  std::vector<float> row(size_t(tensor.columns()));
  std::vector<std::byte> halves;
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    const size_t at = halves.size();
    halves.resize(at + inputs * sizeof(F16));
    if (as_stored) {
      const std::span source(tensor.Row(r) + first * sizeof(F16), inputs * sizeof(F16));
      if (!AllFinite(source))
        throw Fail(ErrorKind::kUnsupported, "{}: row {} holds an infinity or NaN", tensor.name, r);
      std::copy(source.begin(), source.end(), halves.begin() + std::ptrdiff_t(at));
    } else {
      ReadRow(tensor, r, factor, row);
      StoreRow(DType::kF16, std::span(row).subspan(first, inputs), halves.data() + at);
    }
    if (int64_t(halves.size()) < kBlockBytes && r + 1 < tensor.rows()) continue;
    out_.Append(halves);
    halves.clear();
  }
}

void WeightEncoder::WriteInt8(const EncodedPart& part, const TensorView& tensor, float factor,
                              const std::vector<float>* importance) {
  Begin(part, "data");
  const auto first = size_t(part.first), inputs = size_t(part.inputs);
  std::vector<float> row(size_t(tensor.columns()));
  std::vector<float> scales(size_t(tensor.rows()));
  std::vector<std::byte> data(inputs);
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    ReadRow(tensor, r, factor, row);
    const std::span<const float> slab = std::span(row).subspan(first, inputs);
    float scale = WidestScale(slab);
    if (importance) scale = BestScale(slab, std::span(*importance).subspan(first, inputs), scale);
    scales[size_t(r)] = scale;
    for (size_t i = 0; i < inputs; ++i) data[i] = std::byte(int8_t(Stepped(slab[i], 1 / scale)));
    out_.Append(data);
  }
  Begin(part, "scale");
  std::vector<std::byte> halves(scales.size() * sizeof(F16));
  StoreRow(DType::kF16, scales, halves.data());
  out_.Append(halves);
}

void WeightEncoder::WriteLut4(const EncodedPart& part, const TensorView& tensor, float factor,
                              const std::vector<float>* importance) {
  Begin(part, "indices");
  const auto first = size_t(part.first), inputs = size_t(part.inputs);
  const std::vector<float> alike(inputs, 1.f);
  const std::span<const float> weights =
      importance ? std::span(*importance).subspan(first, inputs) : std::span<const float>(alike);
  const int64_t group = GroupOf(tensor.rows());
  std::vector<float> row(size_t(tensor.columns())), values(size_t(group) * inputs), tables;
  std::vector<uint8_t> indices(values.size());
  std::vector<std::byte> bytes;
  NibblePacker packer;
  for (int64_t r = 0; r < tensor.rows(); r += group) {
    for (int64_t i = 0; i < group; ++i) {
      ReadRow(tensor, r + i, factor, row);
      std::copy_n(row.begin() + std::ptrdiff_t(first), inputs, values.begin() + i * std::ptrdiff_t(inputs));
    }
    const auto table = tables_.Make(values, weights, indices);
    tables.insert(tables.end(), table.begin(), table.end());
    packer.Add(indices, bytes);
    if (r + group == tensor.rows()) packer.Finish(bytes);
    out_.Append(bytes);
    bytes.clear();
  }
  Begin(part, "lut");
  bytes.resize(tables.size() * sizeof(F16));
  StoreRow(DType::kF16, tables, bytes.data());
  out_.Append(bytes);
}

}  // namespace pd
