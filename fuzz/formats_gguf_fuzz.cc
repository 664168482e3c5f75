// Whatever the bytes, they are a model whose every row can be read, or an Error.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "formats/gguf_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exactly this size: AddressSanitizer sees the first byte too far.
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto bytes = std::make_shared<std::vector<std::byte>>(begin, begin + size);
  try {
    pd::ModelSource source = pd::OpenGgufModel(pd::GgufFile::Parse(*bytes, bytes, "input"));
    std::vector<float> row;
    pd::ForEachWeight(source.spec, source.tensors, [&](pd::TensorView& view, const pd::WeightInfo&) {
      row.resize(size_t(view.columns()));
      for (int64_t r = 0; r < view.rows(); ++r) view.ReadRow(r, row);
    });
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
