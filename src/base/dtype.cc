#include "base/dtype.h"

#include <cstring>

#include "base/error.h"

namespace pd {
namespace {

constexpr DTypeInfo kInfo[] = {
    {"f64", 1, 8},    {"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},
    {"q8_0", 32, 34}, {"q4_0", 32, 18}, {"q4_1", 32, 20},
};

template <class T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// The GGUF blocks: a binary16 scale d (and minimum m), then 32 values. Four-bit values come in 16 bytes:
// low nibbles are values 0..15, high nibbles 16..31.
void DequantizeBlock(DType type, const std::byte* src, float* out) {
  const float d = ToFloat(Load<F16>(src));
  if (type == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) out[i] = d * float(int8_t(src[2 + i]));
    return;
  }
  const bool has_min = type == DType::kQ4_1;
  const float m = has_min ? ToFloat(Load<F16>(src + 2)) : 0.f;
  const std::byte* q = src + (has_min ? 4 : 2);
  const int zero = has_min ? 0 : 8;
  for (int i = 0; i < 16; ++i) {
    const int low = int(q[i]) & 15, high = int(q[i]) >> 4;
    out[i] = d * float(low - zero);
    out[i + 16] = d * float(high - zero);
    if (has_min) out[i] += m, out[i + 16] += m;
  }
}

}  // namespace

const DTypeInfo& Info(DType type) { return kInfo[size_t(type)]; }

size_t RowBytes(DType type, int64_t count) {
  const DTypeInfo& info = Info(type);
  PD_CHECK(count >= 0 && count % info.block_values == 0);
  return size_t(count / info.block_values) * size_t(info.block_bytes);
}

float ToFloat(F16 h) {
  const uint32_t sign = uint32_t(h.bits & 0x8000) << 16, exponent = h.bits >> 10 & 31,
                 mantissa = h.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = float(mantissa) * 0x1p-24f;  // zero and subnormals
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

F16 ToF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return {uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff))};  // NaN
  if (magnitude >= 0x477ff000) return {uint16_t(sign | 0x7c00)};  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000) {  // subnormal in binary16: adding 0.5 leaves the rounded value in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000))};
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return {uint16_t(sign | (rounded - 0x38000000) >> 13)};
}

BF16 ToBF16(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffff) > 0x7f800000) return {uint16_t(bits >> 16 | 0x40)};
  return {uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

void DequantizeRow(DType type, const std::byte* src, std::span<float> out) {
  switch (type) {
    case DType::kF64:
      for (size_t i = 0; i < out.size(); ++i) out[i] = float(Load<double>(src + 8 * i));
      return;
    case DType::kF32:
      std::memcpy(out.data(), src, out.size_bytes());
      return;
    case DType::kF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = ToFloat(Load<F16>(src + 2 * i));
      return;
    case DType::kBF16:
      for (size_t i = 0; i < out.size(); ++i) out[i] = ToFloat(Load<BF16>(src + 2 * i));
      return;
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1: {
      const DTypeInfo& info = Info(type);
      PD_CHECK(out.size() % size_t(info.block_values) == 0);
      for (size_t i = 0; i < out.size(); i += 32, src += info.block_bytes)
        DequantizeBlock(type, src, &out[i]);
      return;
    }
  }
}

void StoreRow(DType type, std::span<const float> row, std::byte* dst) {
  for (size_t i = 0; i < row.size(); ++i) {
    if (type == DType::kF32) std::memcpy(dst + 4 * i, &row[i], 4);
    if (type == DType::kF16) {
      const F16 h = ToF16(row[i]);
      std::memcpy(dst + 2 * i, &h, 2);
    }
    if (type == DType::kBF16) {
      const BF16 h = ToBF16(row[i]);
      std::memcpy(dst + 2 * i, &h, 2);
    }
  }
  PD_CHECK(type == DType::kF32 || type == DType::kF16 || type == DType::kBF16);
}

}  // namespace pd
