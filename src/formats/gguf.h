// GGUF versions 2 and 3 (little endian): typed metadata and tensor records, memory-mapped.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace pd {

// A metadata value. Integers of every width come as int64_t (uint64 above INT64_MAX is kCorruptFile), floats
// as double, arrays as vectors of those. Strings are copies.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  DType type;
  std::vector<int64_t> shape;        // outermost first, [rows, columns]: the reverse of the file's order
  std::span<const std::byte> bytes;  // inside the mapping
};

// Immutable after Open; any thread may read.
class GgufFile {
 public:
  // Everything is bounds-checked before it is used: throws kCorruptFile (what, where, the remedy) for a file
  // that is truncated, overlaps itself or overflows, kUnsupported for a tensor type or version we do not
  // read.
  static std::shared_ptr<const GgufFile> Open(const std::filesystem::path& path);
  // The same from bytes in memory; `owner` keeps them alive, `where` names them in messages;
  // `mapped` when they are a MappedFile.
  static std::shared_ptr<const GgufFile> Parse(std::span<const std::byte> bytes,
                                               std::shared_ptr<const void> owner, std::string where,
                                               bool mapped = false);

  const std::string& where() const { return where_; }
  bool mapped() const { return mapped_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // A metadata value of type T, or nullptr when absent. Present with another type: kCorruptFile.
  template <class T>
  const T* Find(std::string_view key) const {
    const auto it = metadata_.find(key);
    if (it == metadata_.end()) return nullptr;
    const T* value = std::get_if<T>(&it->second);
    if (!value) Refuse(key, "has a value of another type");
    return value;
  }
  // The same, required: a missing key is kCorruptFile.
  template <class T>
  const T& Get(std::string_view key) const {
    const T* value = Find<T>(key);
    if (!value) Refuse(key, "is missing");
    return *value;
  }

 private:
  [[noreturn]] void Refuse(std::string_view key, const char* why) const;
  std::string where_;
  std::shared_ptr<const void> owner_;
  bool mapped_ = false;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace pd
