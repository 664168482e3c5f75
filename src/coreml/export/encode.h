// Writes a model's weights into the weight files of packages.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coreml/export/kmeans.h"
#include "coreml/mil/encoded.h"
#include "coreml/package/blob.h"
#include "model/tensor.h"

namespace pd {

enum class WeightFormat : uint8_t {
  kFp16,
  kInt8,  // one scale per output channel
  kLut4,  // 16 values for each group of output channels
};
const char* Name(WeightFormat format);  // "fp16", "int8", "lut4"
std::optional<WeightFormat> WeightFormatOf(std::string_view name);

// Whether a prefill program reads this weight: the host uses the embedding, and the last layer ends at its
// keys and values.
bool IsNeeded(const ModelSpec& spec, const WeightInfo& info);

// The constants for a weight, placed next in `layout`. Gains and biases are fp16 in every format.
mil::EncodedWeight PlanWeight(const ModelSpec& spec, const WeightInfo& info, WeightFormat format,
                              BlobLayout& layout);

// Bytes of a planned weight's records.
int64_t StoredBytes(const mil::EncodedWeight& weight);

// How much an error in each input channel of a matrix matters: the mean square of that channel's activations
// on sample text, by the matrix's name. Empty: all equal.
using Importance = std::map<std::string, std::vector<float>>;

// Fills in the records of planned weights, in the planned order. Uses memory for a group of rows, whatever
// the size of the weight. Not thread-safe.
class WeightEncoder {
 public:
  WeightEncoder(BlobWriter& out, const Importance& importance) : out_(out), importance_(importance) {}
  // The tensor times `scale` (mil::FoldedScale). Throws kUnsupported when a value is beyond fp16.
  void Write(const mil::EncodedWeight& planned, const TensorView& tensor, float scale);

 private:
  void ReadRow(const TensorView& tensor, int64_t row, float scale, std::span<float> values) const;
  void Begin(const mil::EncodedPart& part, const char* operand);
  void WriteHalves(const mil::EncodedPart& part, const TensorView& tensor, float scale);
  void WriteInt8(const mil::EncodedPart& part, const TensorView& tensor, float scale,
                 const std::vector<float>* importance);
  void WriteLut4(const mil::EncodedPart& part, const TensorView& tensor, float scale,
                 const std::vector<float>* importance);

  BlobWriter& out_;
  const Importance& importance_;
  TableMaker tables_;
};

}  // namespace pd
