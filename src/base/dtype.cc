#include "base/dtype.h"

#include <cstring>

#include "base/error.h"

namespace pd {
namespace {

constexpr DTypeInfo kInfo[] = {
    {"f64", 1, 8},       {"f32", 1, 4},       {"f16", 1, 2},       {"bf16", 1, 2},      {"q8_0", 32, 34},
    {"q4_0", 32, 18},    {"q4_1", 32, 20},    {"q5_0", 32, 22},    {"q5_1", 32, 24},    {"q4_k", 256, 144},
    {"q5_k", 256, 176},  {"q6_k", 256, 210},  {"affine2", 32, 8},  {"affine3", 32, 12}, {"affine4", 32, 16},
    {"affine5", 32, 20}, {"affine6", 32, 24}, {"affine8", 32, 32},
};

template <class T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Sixteen bytes of nibbles: the low ones are values 0..15, the high ones 16..31. `fifth`: bit i is bit 4 of
// value i.
void ReadNibbles(const std::byte* src, uint32_t fifth, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = uint8_t((uint32_t(src[i]) & 15) | (fifth >> i & 1) << 4);
    codes[i + 16] = uint8_t(uint32_t(src[i]) >> 4 | (fifth >> (i + 16) & 1) << 4);
  }
}

// Blocks of 32: a binary16 scale, a minimum (q4_1, q5_1), the fifth bits (q5_0, q5_1), then the codes.
void ReadSmallBlock(DType type, const std::byte* src, QuantGroup* group) {
  const bool has_min = type == DType::kQ4_1 || type == DType::kQ5_1;
  const bool has_fifth = type == DType::kQ5_0 || type == DType::kQ5_1;
  group->scale = ToFloat(Load<F16>(src));
  group->minimum = has_min ? ToFloat(Load<F16>(src + 2)) : 0;
  src += has_min ? 4 : 2;
  if (type == DType::kQ8_0) {
    group->zero = 128;
    for (int i = 0; i < 32; ++i) group->codes[i] = uint8_t(uint32_t(src[i]) ^ 128);
    return;
  }
  group->zero = has_min ? 0 : has_fifth ? 16 : 8;
  const uint32_t fifth = has_fifth ? Load<uint32_t>(src) : 0;
  ReadNibbles(src + (has_fifth ? 4 : 0), fifth, group->codes);
}

// Group g of 8 in a q4_k or q5_k block of 256. A block holds a binary16 scale and minimum, six bits of each
// for every group packed in 12 bytes, the fifth bits (q5_k), then nibbles: 32 bytes hold one group in their
// low nibbles and the next in their high ones.
void ReadLargeBlock(DType type, const std::byte* src, int g, QuantGroup* group) {
  const auto byte = [&](int i) { return uint32_t(src[4 + i]); };
  const uint32_t scale = g < 4 ? byte(g) & 63 : (byte(g + 4) & 15) | byte(g - 4) >> 6 << 4;
  const uint32_t minimum = g < 4 ? byte(g + 4) & 63 : byte(g + 4) >> 4 | byte(g) >> 6 << 4;
  group->scale = ToFloat(Load<F16>(src)) * float(scale);
  group->minimum = -(ToFloat(Load<F16>(src + 2)) * float(minimum));
  group->zero = 0;
  const std::byte* fifth = src + 16;
  const ptrdiff_t pair = g / 2;
  const std::byte* nibbles = src + (type == DType::kQ5K ? 48 : 16) + 32 * pair;
  for (int i = 0; i < 32; ++i) {
    uint32_t code = uint32_t(nibbles[i]) >> (g % 2 * 4) & 15;
    if (type == DType::kQ5K) code |= (uint32_t(fifth[i]) >> g & 1) << 4;
    group->codes[i] = uint8_t(code);
  }
}

// A q6_k block of 256: low nibbles, upper bit pairs, signed scales of 16 values each, a binary16 scale. In
// each half of 128 values, value 32 n + i is the low (n < 2) or high nibble of byte 32 (n % 2) + i, and bits
// 2 n of byte i.
void DequantizeQ6K(const std::byte* src, float* out) {
  const float d = ToFloat(Load<F16>(src + 208));
  for (ptrdiff_t half = 0; half < 2; ++half) {
    const std::byte *low = src + 64 * half, *high = src + 128 + 32 * half, *scales = src + 192 + 8 * half;
    for (int n = 0; n < 4; ++n) {
      for (int i = 0; i < 32; ++i) {
        const uint32_t nibble = uint32_t(low[n % 2 * 32 + i]) >> (n / 2 * 4) & 15;
        const int code = int(nibble | (uint32_t(high[i]) >> (2 * n) & 3) << 4) - 32;
        *out++ = d * float(int8_t(scales[2 * n + i / 16])) * float(code);
      }
    }
  }
}

void DequantizeGroup(const QuantGroup& group, float* out) {
  if (group.zero != 0) {
    for (int i = 0; i < QuantGroup::kValues; ++i) out[i] = group.scale * float(group.codes[i] - group.zero);
  } else {
    for (int i = 0; i < QuantGroup::kValues; ++i)
      out[i] = group.scale * float(group.codes[i]) + group.minimum;
  }
}

}  // namespace

const DTypeInfo& Info(DType type) { return kInfo[size_t(type)]; }

int AffineBits(DType type) { return type >= DType::kAffine2 ? Info(type).block_bytes / 4 : 0; }

DType AffineType(int bits) {
  for (DType type :
       {DType::kAffine2, DType::kAffine3, DType::kAffine4, DType::kAffine5, DType::kAffine6, DType::kAffine8})
    if (AffineBits(type) == bits) return type;
  return DType::kF64;
}

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
    case DType::kQ6K:
      PD_CHECK(out.size() % 256 == 0);
      for (size_t i = 0; i < out.size(); i += 256, src += Info(type).block_bytes) DequantizeQ6K(src, &out[i]);
      return;
    default: {
      PD_CHECK(HasGroups(type) && out.size() % size_t(Info(type).block_values) == 0);
      QuantGroup group;
      for (size_t i = 0; i < out.size(); i += QuantGroup::kValues) {
        ReadGroup(type, src, int64_t(i) / QuantGroup::kValues, &group);
        DequantizeGroup(group, &out[i]);
      }
      return;
    }
  }
}

bool HasGroups(DType type) { return IsQuantised(type) && type != DType::kQ6K && AffineBits(type) == 0; }

int CodeBits(DType type) {
  PD_CHECK(HasGroups(type));
  if (type == DType::kQ8_0) return 8;
  return type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5K ? 5 : 4;
}

void ReadGroup(DType type, const std::byte* src, int64_t index, QuantGroup* group) {
  const DTypeInfo& info = Info(type);
  const int groups = info.block_values / QuantGroup::kValues;
  src += index / groups * info.block_bytes;
  if (groups == 1) {
    ReadSmallBlock(type, src, group);
  } else {
    ReadLargeBlock(type, src, int(index % groups), group);
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
