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

// A value of no use to anybody here: an array of arrays, an integer of 2^63 or more, a truth value that is
// neither 0 nor 1. A key that is not needed may hold one.
struct GgufUnusable {
  std::string why;  // "is ..."
  bool operator==(const GgufUnusable&) const = default;
};

// A metadata value. Integers of every width come as int64_t, floats as double, arrays as vectors of those.
// Strings are copies.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<bool>, std::vector<std::string>, GgufUnusable>;

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
  // The first part of a split model opens the others beside it: their tensors are this file's. kNotFound for
  // a part that is missing, kUnsupported for another than the first, kCorruptFile for parts of different
  // models.
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
    if (!value) Refuse(key, it->second);
    return value;
  }
  // The same, required: a missing key is kCorruptFile.
  template <class T>
  const T& Get(std::string_view key) const {
    const T* value = Find<T>(key);
    if (!value) Missing(key);
    return *value;
  }

 private:
  [[noreturn]] void Refuse(std::string_view key, const GgufValue& value) const;
  [[noreturn]] void Missing(std::string_view key) const;
  static std::shared_ptr<GgufFile> Read(std::span<const std::byte> bytes, std::shared_ptr<const void> owner,
                                        std::string where, bool mapped);
  void AddParts(const std::filesystem::path& first);  // the tensors of the other parts of a split model
  std::string where_;
  std::vector<std::shared_ptr<const void>> owners_;  // a mapping for each part
  bool mapped_ = false;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace pd
