// Writes small GGUF and safetensors files, right ones and wrong ones, byte by byte: independent of the
// readers.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace pd::test {

// GGUF's numbers for value and tensor types.
enum GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};
enum GgmlType : uint32_t {
  kTensorF32 = 0,
  kTensorF16 = 1,
  kTensorQ4_0 = 2,
  kTensorQ8_0 = 8,
  kTensorQ2_K = 10
};

// Little-endian bytes of a number, or a length and the text.
template <class T>
std::string Raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string RawString(std::string_view text);

struct GgufEntry {
  std::string key;
  uint32_t type;
  std::string value;  // bytes after the type
};
GgufEntry U32(std::string key, uint32_t value);
GgufEntry Float(std::string key, float value);
GgufEntry Text(std::string key, std::string_view value);
GgufEntry Flag(std::string key, bool value);
GgufEntry List(std::string key, uint32_t element, uint64_t count, std::string elements);

struct GgufTensorSpec {
  std::string name;
  std::vector<uint64_t> sizes;  // innermost first, as in the file
  uint32_t type = kTensorF32;
  std::string data;
  std::optional<uint64_t> offset = std::nullopt;  // else after the tensor before, aligned
};

// Every field may be bent to make a wrong file.
struct GgufSpec {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count = std::nullopt,
                          entry_count = std::nullopt;  // else as many as there are
  std::vector<GgufEntry> entries;
  std::vector<GgufTensorSpec> tensors;
  uint64_t alignment = 32;  // of the data; the key general.alignment is the caller's
  std::string Bytes() const;
};

// The data as it is given, after a header of these entries; `header` replaces the JSON when not empty.
struct SafetensorsSpec {
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::string data;
  };
  std::vector<Tensor> tensors;
  Json Header() const;
  std::string Bytes() const { return Bytes(Header().dump()); }
  std::string Bytes(std::string_view header) const;  // another header before the same data
};

}  // namespace pd::test
