// Whatever the bytes, they are tensors that lie inside them without overlap, or an Error.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.h"
#include "formats/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  const auto bytes = std::make_shared<std::vector<std::byte>>(begin, begin + size);
  try {
    const auto file = pd::SafetensorsFile::Parse(*bytes, bytes, "input");
    size_t total = 0;
    for (const pd::SafetensorsTensor& tensor : file->tensors()) {
      total += tensor.bytes.size();
      PD_CHECK(tensor.bytes.empty() ||
               (tensor.bytes.data() > bytes->data() && &tensor.bytes.back() <= &bytes->back()));
    }
    PD_CHECK(total < bytes->size());
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
