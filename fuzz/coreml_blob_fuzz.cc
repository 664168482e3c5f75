// Whatever the bytes of a weight file, each record lies inside it and is found by its type, or there is an
// Error.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "coreml/package/blob.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path kPath =
      std::filesystem::temp_directory_path() / ("coreml_blob_fuzz." + std::to_string(getpid()));
  std::ofstream(kPath, std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
  try {
    const pd::BlobFile file(kPath);
    std::filesystem::remove(kPath);  // the mapping stays
    for (uint64_t offset = 64; offset < size; offset += 64)
      for (const pd::mil::DataType type :
           {pd::mil::DataType::kF16, pd::mil::DataType::kU4, pd::mil::DataType::kI8}) {
        try {
          const pd::mil::Blob blob = file.Find(offset, {type, {4}}, "weight.bin", "input");
          PD_CHECK(offset + 64 + blob.bytes.size() <= size);
        } catch (const pd::Error&) {
          continue;
        }
      }
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
