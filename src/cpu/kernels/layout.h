// The memory layout of weights and quantised activations: the same for every instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace pd::cpu {

// A matrix [n, k] is cut into tiles of 32 outputs; within a tile, all of k is one stream. Outputs past n are
// zero. A tile row is two vectors of 16 floats, four of 8, eight of 4: each output has its own lane, so sums
// over k never add lanes.
inline constexpr int kTile = 32;

// Quantised types have groups of 32 values along k. For each group a tile holds one record:
//   weights: dword [j][n] has the four bytes k = 4j .. 4j+3 of output n.
//     q4_0, q4_1: j < 4; a byte's low nibble is value k, its high nibble value k + 16: as GGUF pairs them
//     q8_0:       j < 8; bytes are q + 128, because the dot-product instructions need one unsigned side
//   scales: f16 [n]
//   minima: f16 [n], q4_1 only
// value = scale * q (q8_0), scale * (q - 8) (q4_0), scale * q + minimum (q4_1).
inline constexpr int kGroup = 32;
inline constexpr size_t kScalesOffset4 = 512, kScalesOffset8 = 1024;  // bytes into the record
constexpr size_t RecordBytes(DType type) {
  return type == DType::kQ8_0 ? 1088 : type == DType::kQ4_1 ? 640 : type == DType::kQ4_0 ? 576 : 0;
}

// Plain types (f32, f16, bf16): [k][32].
constexpr size_t TileBytes(DType type, int64_t k) {
  const size_t record = RecordBytes(type);
  return record != 0 ? size_t(k) / kGroup * record : size_t(k) * kTile * (type == DType::kF32 ? 4 : 2);
}

// A row of activations for quantised weights: k bytes q, k bytes r, then k / 32 of these, then bits that mark
// the groups with an r. value = scale * q + fine_scale * r.
//
// Eight bits are enough for most groups. A few channels of a real model are far larger than the rest, and the
// coarse steps of their groups cause most of the row's error. Such a group is refined: r holds the remainder
// of q, which doubles the cost of its products. In all other groups r and fine_scale are zero. On SmolLM2
// (Q4_1) this takes the mean KL divergence from exact activations from 3.7e-3 to 6e-4 for a tenth of the
// groups.
struct ActivationGroup {
  float scale;          // largest magnitude / 127
  float fine_scale;     // scale / 254, or 0
  float scaled_sum;     // scale * sum of q + fine_scale * sum of r: multiplied by q4_1's minimum
  int32_t offset_sum;   // -128 * sum of q: cancels q8_0's + 128; a sixteenth of it cancels q4_0's - 8
  int32_t fine_offset;  // -128 * sum of r
};
// A group is refined if its largest magnitude, squared, is more than `spread` times the mean over the row's
// groups. kRefineAll is for products that memory bounds anyway and whose error is not averaged out later.
inline constexpr float kSpread = 2, kRefineAll = 0;

// Groups below this count as zero, so that 254 * 127 / largest stays finite.
inline constexpr float kSmallestGroup = 1e-30f;

constexpr int64_t GroupsOffset(int64_t k) { return 2 * k; }
constexpr int64_t RefinedOffset(int64_t k) {
  return GroupsOffset(k) + k / kGroup * int64_t(sizeof(ActivationGroup));
}
// Bytes from row to row. The extra odd line keeps rows of a power-of-two k in different cache sets.
constexpr int64_t Int8RowBytes(int64_t k) {
  return (RefinedOffset(k) + k / kGroup / 8 + 3 + 63) / 64 * 64 + 64;
}

// Which of groups [g, g + 24) are refined in any of `rows` rows; g is a multiple of 8. Bits past the last
// group are unspecified.
inline uint32_t RefinedGroups(const std::byte* row, int64_t stride, int rows, int64_t k, int g) {
  uint32_t refined = 0;
  for (int r = 0; r < rows; ++r) {
    const auto* bits = reinterpret_cast<const uint8_t*>(row + r * stride + RefinedOffset(k) + g / 8);
    refined |= uint32_t(bits[0]) | uint32_t(bits[1]) << 8 | uint32_t(bits[2]) << 16;
  }
  return refined;
}

// Attention works on blocks of this many keys, aligned to absolute positions.
inline constexpr int kKeyBlock = 128;

}  // namespace pd::cpu
