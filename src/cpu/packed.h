// Weight matrices in the layout of the kernels: kernels/layout.h.
#pragma once
#include <span>

#include "cpu/kernels/layout.h"
#include "model/tensor.h"

namespace pd::cpu {

// A matrix [n, k] in tiles of 32 outputs. A view: the memory belongs to a CpuModel.
struct PackedMatrix {
  DType type = DType::kF32;
  int64_t n = 0, k = 0;
  const std::byte* tiles = nullptr;  // aligned to a cache line

  int64_t tile_count() const { return (n + kTile - 1) / kTile; }
  size_t tile_bytes() const { return TileBytes(type, k); }
  size_t bytes() const { return size_t(tile_count()) * tile_bytes(); }
  const std::byte* Tile(int64_t t) const { return tiles + size_t(t) * tile_bytes(); }
};

// The type that a tensor of `type` is kept in: its own if there are kernels for it. Four-bit codes with a
// scale and a minimum per group become q4_1, whose scale and minimum are f16; all other quantised types
// become f16.
DType PackedType(DType type);

// Packs outputs [32 t, 32 t + 32) of a tensor [n, k] of any type but f64, as PackedType: writes all
// TileBytes(type, k) bytes. Throws kUnsupported when a value or a scale does not fit f16.
void PackTile(const TensorView& tensor, int64_t t, std::byte* out);

// Row r as floats [k]: equal to the tensor's own ReadRow if its type is kept.
void ReadPackedRow(const PackedMatrix& matrix, int64_t r, std::span<float> out);

}  // namespace pd::cpu
