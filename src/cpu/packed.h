// Weight matrices in the layout that the kernels read: kernels/layout.h.
#pragma once
#include <span>

#include "cpu/kernels/layout.h"
#include "model/tensor.h"

namespace pd::cpu {

// A matrix [n, k] in tiles of 32 outputs. A view: the memory belongs to a CpuModel.
struct PackedMatrix {
  DType type = DType::kF32;
  int64_t n = 0, k = 0;
  const std::byte* tiles = nullptr;  // on a cache line

  int64_t tile_count() const { return (n + kTile - 1) / kTile; }
  size_t tile_bytes() const { return TileBytes(type, k); }
  size_t bytes() const { return size_t(tile_count()) * tile_bytes(); }
  const std::byte* Tile(int64_t t) const { return tiles + size_t(t) * tile_bytes(); }
};

// Outputs [32 t, 32 t + 32) of a tensor [n, k] of any type but f64, in the tensor's own type: TileBytes(type,
// k) bytes, every one written. Values do not change, only their places.
void PackTile(const TensorView& tensor, int64_t t, std::byte* out);

// Row r as floats [k]: the same that the tensor's own ReadRow gives.
void ReadPackedRow(const PackedMatrix& matrix, int64_t r, std::span<float> out);

}  // namespace pd::cpu
