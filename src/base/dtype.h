// Element types of tensors in files and in memory, and exact conversion between them.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pd {

// Plain types hold one element per block. Quantised types are GGUF's: blocks of 32 values along a row.
enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_1 };

struct DTypeInfo {
  const char* name;  // "f16", "q4_1"
  int block_values;  // values per block; a row's length is a multiple of it
  int block_bytes;
};
const DTypeInfo& Info(DType type);
inline const char* Name(DType type) { return Info(type).name; }
inline bool IsQuantised(DType type) { return Info(type).block_values > 1; }

// Bytes of `count` values along one row; count must be a multiple of the block.
size_t RowBytes(DType type, int64_t count);

// IEEE binary16 and bfloat16 as bits. From float: round to nearest even, NaN stays NaN (quiet), overflow to
// infinity.
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
float ToFloat(F16 h);
F16 ToF16(float f);
inline float ToFloat(BF16 h) { return std::bit_cast<float>(uint32_t(h.bits) << 16); }
BF16 ToBF16(float f);

// One row of `type` at `src` (RowBytes(type, out.size()) bytes, any alignment) to float.
// Exact: each value is what the format defines in float arithmetic (q4_1: d * q + m, rounded once per
// operation).
void DequantizeRow(DType type, const std::byte* src, std::span<float> out);

// A row of floats to a plain type (kF32, kF16, kBF16), any alignment.
void StoreRow(DType type, std::span<const float> row, std::byte* dst);

}  // namespace pd
