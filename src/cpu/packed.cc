#include "cpu/packed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace pd::cpu {
namespace {

// A GGUF block: f16 scale, f16 minimum (q4_1), then the values.
constexpr size_t QuantsOffset(DType type) { return type == DType::kQ4_1 ? 4 : 2; }
constexpr size_t ScalesOffset(DType type) { return type == DType::kQ8_0 ? kScalesOffset8 : kScalesOffset4; }
constexpr int Dwords(DType type) { return type == DType::kQ8_0 ? 8 : 4; }
constexpr uint32_t Flip(DType type) { return type == DType::kQ8_0 ? 0x80808080u : 0; }

// One block to or from lane n of a record.
template <DType kType>
void PutBlock(const std::byte* block, int n, std::byte* record) {
  for (int j = 0; j < Dwords(kType); ++j) {
    uint32_t dword;
    std::memcpy(&dword, block + QuantsOffset(kType) + 4 * j, 4);
    dword ^= Flip(kType);
    std::memcpy(record + 128 * j + 4 * n, &dword, 4);
  }
  std::memcpy(record + ScalesOffset(kType) + 2 * n, block, 2);
  if (kType == DType::kQ4_1) std::memcpy(record + ScalesOffset(kType) + 64 + 2 * n, block + 2, 2);
}

void GetBlock(DType type, const std::byte* record, int n, std::byte* block) {
  for (int j = 0; j < Dwords(type); ++j) {
    uint32_t dword;
    std::memcpy(&dword, record + 128 * j + 4 * n, 4);
    dword ^= Flip(type);
    std::memcpy(block + QuantsOffset(type) + 4 * j, &dword, 4);
  }
  std::memcpy(block, record + ScalesOffset(type) + 2 * n, 2);
  if (type == DType::kQ4_1) std::memcpy(block + 2, record + ScalesOffset(type) + 64 + 2 * n, 2);
}

using RowPointers = std::array<const std::byte*, kTile>;  // nullptr past the last row

template <DType kType>
void PackQuantised(const RowPointers& rows, int64_t groups, std::byte* out) {
  const auto block_bytes = size_t(Info(kType).block_bytes);
  for (int64_t g = 0; g < groups; ++g, out += RecordBytes(kType))
    for (int n = 0; n < kTile; ++n)
      if (rows[size_t(n)]) PutBlock<kType>(rows[size_t(n)] + size_t(g) * block_bytes, n, out);
}

// A few columns of all rows at a time, so that source and destination both fit the first-level cache.
template <size_t kBytes>
void PackPlain(const RowPointers& rows, int64_t k, std::byte* out) {
  constexpr int64_t kColumns = 64;
  for (int64_t from = 0; from < k; from += kColumns)
    for (size_t n = 0; n < kTile; ++n)
      for (int64_t i = from; rows[n] && i < std::min(from + kColumns, k); ++i)
        std::memcpy(out + (size_t(i) * kTile + n) * kBytes, rows[n] + size_t(i) * kBytes, kBytes);
}

F16 Fitting(float value, const TensorView& tensor) {
  const F16 half = ToF16(value);
  if (!std::isfinite(ToFloat(half)))
    throw Fail(ErrorKind::kUnsupported, "{}: holds {}, which is beyond f16; use the original model",
               tensor.name, value);
  return half;
}

// Row r as q4_1, its four-bit codes unchanged.
void RowAsQ4_1(const TensorView& tensor, int64_t r, std::byte* out) {
  const std::byte* codes = tensor.Row(r);
  const int64_t groups = tensor.columns() / kGroup;
  std::vector<float> scales, minima;
  if (tensor.affine) scales = tensor.ReadScales(r), minima = tensor.ReadBiases(r);
  QuantGroup group;
  for (int64_t g = 0; g < groups; ++g, out += Info(DType::kQ4_1).block_bytes) {
    if (tensor.affine) {
      const auto at = size_t(g * kGroup / tensor.affine->group);
      group.scale = scales[at], group.minimum = minima[at];
      for (int i = 0; i < kGroup; ++i) group.codes[i] = uint8_t(ReadCode(codes, 4, g * kGroup + i));
    } else {
      ReadGroup(tensor.type, codes, g, &group);
    }
    const F16 halves[] = {Fitting(group.scale, tensor), Fitting(group.minimum, tensor)};
    std::memcpy(out, halves, sizeof halves);
    for (int i = 0; i < kGroup / 2; ++i)
      out[sizeof halves + size_t(i)] = std::byte(group.codes[i] | group.codes[i + kGroup / 2] << 4);
  }
}

void RowAsF16(const TensorView& tensor, int64_t r, std::byte* out) {
  std::vector<float> values(size_t(tensor.columns()));
  tensor.ReadRow(r, values);
  for (float value : values) {
    const F16 half = Fitting(value, tensor);
    std::memcpy(out, &half, sizeof half);
    out += sizeof half;
  }
}

}  // namespace

DType PackedType(DType type) {
  if (!IsQuantised(type) || RecordBytes(type) != 0) return type;
  return type == DType::kQ4K || type == DType::kAffine4 ? DType::kQ4_1 : DType::kF16;
}

void PackTile(const TensorView& tensor, int64_t t, std::byte* out) {
  const int64_t first = t * kTile, k = tensor.columns();
  const int64_t count = std::min<int64_t>(kTile, tensor.rows() - first);
  const DType type = PackedType(tensor.type);
  RowPointers rows{};
  std::vector<std::byte> converted;
  if (type == tensor.type && tensor.has_whole_rows()) {
    for (int64_t n = 0; n < count; ++n) rows[size_t(n)] = tensor.Row(first + n);
  } else {
    const size_t row_bytes = RowBytes(type, k);
    converted.resize(size_t(count) * row_bytes);
    for (int64_t n = 0; n < count; ++n) {
      std::byte* row = &converted[size_t(n) * row_bytes];
      if (type == tensor.type) {
        tensor.CopyRow(first + n, row);
      } else {
        type == DType::kQ4_1 ? RowAsQ4_1(tensor, first + n, row) : RowAsF16(tensor, first + n, row);
      }
      rows[size_t(n)] = row;
    }
  }
  if (count < kTile) std::memset(out, 0, TileBytes(type, k));
  switch (type) {
    case DType::kF32:
      return PackPlain<4>(rows, k, out);
    case DType::kF16:
    case DType::kBF16:
      return PackPlain<2>(rows, k, out);
    case DType::kQ8_0:
      return PackQuantised<DType::kQ8_0>(rows, k / kGroup, out);
    case DType::kQ4_0:
      return PackQuantised<DType::kQ4_0>(rows, k / kGroup, out);
    case DType::kQ4_1:
      return PackQuantised<DType::kQ4_1>(rows, k / kGroup, out);
    default:
      break;
  }
  PD_CHECK(false);  // the loader refuses other types
}

void ReadPackedRow(const PackedMatrix& matrix, int64_t r, std::span<float> out) {
  const std::byte* tile = matrix.Tile(r / kTile);
  const int n = int(r % kTile);
  std::array<std::byte, 34> block;
  if (IsQuantised(matrix.type)) {
    for (size_t at = 0; at < out.size(); at += kGroup, tile += RecordBytes(matrix.type)) {
      GetBlock(matrix.type, tile, n, block.data());
      DequantizeRow(matrix.type, block.data(), out.subspan(at, kGroup));
    }
    return;
  }
  const size_t bytes = RowBytes(matrix.type, 1);
  for (size_t i = 0; i < out.size(); ++i)
    DequantizeRow(matrix.type, tile + (i * kTile + size_t(n)) * bytes, out.subspan(i, 1));
}

}  // namespace pd::cpu
