#include <algorithm>

#include "base/error.h"
#include "coreml/export/sample_pass.h"

namespace pd {
namespace {

// One part of an encoded matrix, or a whole vector, with the places of its operands in the weight file.
struct StoredPart {
  int64_t first = 0, inputs = 0, rows = 0;
  enum class Kind : uint8_t { kHalves, kInt8, kLut4 } kind = Kind::kHalves;
  std::span<const std::byte> data;
  std::span<const std::byte> extra;  // scales, or tables
  int64_t group = 1;                 // rows that share a table

  // Floats of input channels [first, first + inputs) of a row.
  void Decode(int64_t row, std::span<float> values) const {
    const auto halves = [](std::span<const std::byte> from, int64_t at, std::span<float> out) {
      DequantizeRow(DType::kF16, from.data() + size_t(at) * sizeof(F16), out);
    };
    const int64_t at = row * inputs;
    if (kind == Kind::kHalves) return halves(data, at, values);
    if (kind == Kind::kInt8) {
      float scale = 0;
      halves(extra, row, {&scale, 1});
      for (int64_t i = 0; i < inputs; ++i) values[size_t(i)] = scale * float(int8_t(data[size_t(at + i)]));
      return;
    }
    float table[kTableSize];
    halves(extra, row / group * kTableSize, table);
    for (int64_t i = 0; i < inputs; ++i)
      values[size_t(i)] = table[int(data[size_t((at + i) / 2)]) >> ((at + i) % 2 * 4) & 15];
  }
};

StoredPart Locate(const mil::EncodedPart& part, const BlobFile& file) {
  const auto bytes = [&](size_t operand) {
    const mil::Value& value = part.operands.at(operand).second;
    return file.Find(value.blob()->offset, value.type, kWeightFile, part.op).bytes;
  };
  const mil::Dims& shape = part.operands.at(0).second.type.shape;
  StoredPart stored{
      .first = part.first, .inputs = part.inputs, .rows = shape.at(0), .data = bytes(0), .extra = {}};
  if (part.op == "const") return stored;
  stored.extra = bytes(1);
  stored.kind = part.op == "constexpr_lut_to_dense" ? StoredPart::Kind::kLut4 : StoredPart::Kind::kInt8;
  if (stored.kind == StoredPart::Kind::kLut4)
    stored.group = stored.rows / part.operands.at(1).second.type.shape.at(0);
  return stored;
}

}  // namespace

Weights<StreamedWeight> StreamSource(const ModelSpec& spec, const Weights<TensorView>& tensors) {
  return MapWeights<StreamedWeight>(spec, tensors, [](const TensorView& tensor, const WeightInfo& info) {
    const bool exact = tensor.type == DType::kF16;
    return StreamedWeight{info,
                          [tensor, exact](int64_t row, std::span<float> values) {
                            tensor.ReadRow(row, values);
                            if (exact) return;
                            for (float& v : values) v = ToFloat(ToF16(v));
                          },
                          [tensor] { tensor.Forget(); }};
  });
}

Weights<StreamedWeight> StreamEncoded(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                      const mil::RangeScales& scales,
                                      const Weights<mil::EncodedWeight>& encoded,
                                      const std::vector<const BlobFile*>& file_of_layer) {
  Weights<StreamedWeight> result = StreamSource(spec, tensors);
  std::vector<const mil::EncodedWeight*> in_order;
  ForEachWeight(spec, encoded,
                [&](const mil::EncodedWeight& w, const WeightInfo&) { in_order.push_back(&w); });
  size_t next = 0;
  ForEachWeight(spec, result, [&](StreamedWeight& streamed, const WeightInfo& info) {
    const mil::EncodedWeight& weight = *in_order[next++];
    if (!IsNeeded(spec, info)) return;
    const float scale = mil::FoldedScale(spec, scales, info);
    std::vector<StoredPart> parts;
    parts.reserve(weight.parts.size());
    for (const mil::EncodedPart& part : weight.parts)
      parts.push_back(Locate(part, *file_of_layer.at(size_t(info.layer))));
    streamed.forget = [parts] {
      for (const StoredPart& part : parts) MappedFile::Forget(part.data);
    };
    streamed.read = [parts = std::move(parts), scale](int64_t row, std::span<float> values) {
      for (const StoredPart& part : parts)
        part.Decode(row, values.subspan(size_t(part.first), size_t(part.inputs)));
      for (float& v : values) v /= scale;
    };
  });
  return result;
}

}  // namespace pd
