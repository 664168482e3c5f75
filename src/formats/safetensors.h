// The safetensors format: a JSON header that says where each tensor's bytes lie, then the bytes.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace pd {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // as the header names it: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;  // inside the mapping; little endian, rows in order
};

// Immutable after Open; any thread may read.
class SafetensorsFile {
 public:
  // Everything is bounds-checked before it is used. Throws kNotFound; kCorruptFile for a header that is no
  // JSON, names a tensor twice, or gives offsets that overlap, leave gaps, disagree with shape and type, or
  // do not end where the file ends; kUnsupported for an element type that the format does not have.
  static std::shared_ptr<const SafetensorsFile> Open(const std::filesystem::path& path);
  // The same from bytes in memory; `owner` keeps them alive, `where` names them in messages;
  // `mapped` when they are a MappedFile.
  static std::shared_ptr<const SafetensorsFile> Parse(std::span<const std::byte> bytes,
                                                      std::shared_ptr<const void> owner, std::string where,
                                                      bool mapped = false);

  const std::string& where() const { return where_; }
  bool mapped() const { return mapped_; }
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }  // in the order of their bytes

 private:
  std::string where_;
  std::shared_ptr<const void> owner_;
  bool mapped_ = false;
  std::vector<SafetensorsTensor> tensors_;
};

}  // namespace pd
