// Element types of tensors in files and in memory, and exact conversion between them.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pd {

// Plain types hold one element per block. Quantised types are GGUF's, in blocks of 32 or 256 values along a
// row, and MLX's affine codes: 32 codes to a block, the first in the lowest bits. Affine scales and biases
// are tensors of their own (AffineScales of model/tensor.h).
enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
  kAffine2,
  kAffine3,
  kAffine4,
  kAffine5,
  kAffine6,
  kAffine8,
};

struct DTypeInfo {
  const char* name;  // "f16", "q4_1"
  int block_values;  // values per block; a row's length is a multiple of it
  int block_bytes;
};
const DTypeInfo& Info(DType type);
inline const char* Name(DType type) { return Info(type).name; }
inline bool IsQuantised(DType type) { return Info(type).block_values > 1; }

// Bits of an affine type's codes; 0 for every other type. And the inverse: kF64 if no affine type has that
// many bits.
int AffineBits(DType type);
DType AffineType(int bits);

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

// One row of `type` at `src` (RowBytes(type, out.size()) bytes, any alignment), converted to float.
// Exact: each value is what the format defines in float arithmetic (q4_1: d * q + m, rounded once per
// operation). Not for affine types: their scales are stored elsewhere.
void DequantizeRow(DType type, const std::byte* src, std::span<float> out);

// Neighbours in a row that share a scale: value = scale * (code - zero) + minimum, rounded once per
// operation.
struct QuantGroup {
  static constexpr int kValues = 32;
  float scale = 0, minimum = 0;
  int zero = 0;  // nonzero only if minimum is 0
  uint8_t codes[kValues] = {};
};
// Whether ReadGroup supports rows of a GGUF type: all quantised ones but q6_k, whose groups have 16 values.
bool HasGroups(DType type);
int CodeBits(DType type);  // of such a type's codes
// Group `index` of a row at `src`, any alignment.
void ReadGroup(DType type, const std::byte* src, int64_t index, QuantGroup* group);

// Code `index` in a run of `bits`-bit codes that begins at `src`, the first in the lowest bits.
inline uint32_t ReadCode(const std::byte* src, int bits, int64_t index) {
  const int64_t at = index * bits;
  uint32_t word = uint32_t(src[at / 8]);
  if (at % 8 + bits > 8) word |= uint32_t(src[at / 8 + 1]) << 8;
  return word >> (at % 8) & ((1u << bits) - 1);
}

// Converts a row of floats to a plain type (kF32, kF16, kBF16), any alignment.
void StoreRow(DType type, std::span<const float> row, std::byte* dst);

}  // namespace pd
