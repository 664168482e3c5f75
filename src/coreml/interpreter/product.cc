#include "coreml/interpreter/product.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "coreml/interpreter/numbers.h"

namespace pd::interp {
namespace {

using cpu::kTile;

// Rows of a block: their floats stay in the second-level cache while tiles pass.
constexpr int64_t kBlockFloats = int64_t(128) << 10;
constexpr int64_t kMostBlockRows = 192;
// Maximum number of rows that are loaded once for all threads.
constexpr int64_t kSharedFloats = int64_t(2) << 20;

// An odd number of lines per row keeps rows in different cache sets.
int64_t RowStride(int64_t k) { return (k + 15) / 16 * 16 + 16; }

// Tile t of a factor; T has the element's size.
template <class T>
void PackTile(const Matrix& factor, int64_t t, T* out) {
  const int64_t first = t * kTile, lanes = std::min<int64_t>(kTile, factor.columns - first);
  const T* in = reinterpret_cast<const T*>(factor.data) + first * factor.column_step;
  if (lanes < kTile) std::fill_n(out, factor.rows * kTile, T{});
  if (factor.column_step == 1) {
    for (int64_t k = 0; k < factor.rows; ++k)
      std::memcpy(out + k * kTile, in + k * factor.row_step, size_t(lanes) * sizeof(T));
    return;
  }
  constexpr int64_t kStretch = 64;  // of rows: the destination stays in the first-level cache
  for (int64_t begin = 0; begin < factor.rows; begin += kStretch)
    for (int64_t n = 0; n < lanes; ++n)
      for (int64_t k = begin; k < std::min(begin + kStretch, factor.rows); ++k)
        out[k * kTile + n] = in[k * factor.row_step + n * factor.column_step];
}

class Run {
 public:
  Run(Machine& machine, const Product& product)
      : machine_(machine),
        product_(product),
        stride_(RowStride(product.factor.k)),
        block_(std::clamp<int64_t>(kBlockFloats / stride_, 1, kMostBlockRows)) {}

  void operator()() {
    const int64_t tiles = product_.factor.tile_count();
    const bool by_tiles =
        tiles >= int64_t(2) * machine_.pool.threads() && product_.rows * stride_ <= kSharedFloats;
    by_tiles ? SplitTiles(tiles) : SplitRows(tiles);
  }

 private:
  // Each thread takes some of the tiles and reads that part of the factor once.
  void SplitTiles(int64_t tiles) {
    float* rows = machine_.rows.Take(size_t(product_.rows * stride_));
    size_t scratch_stride;
    float* scratch = machine_.ForThreads(size_t(block_ * kTile), &scratch_stride);
    machine_.pool.Split(product_.rows, 16, [&](int64_t begin, int64_t end) {
      product_.load(begin, end - begin, rows + begin * stride_, stride_);
    });
    const int64_t threads = machine_.pool.threads();
    machine_.pool.Run([&](int thread) {
      for (int64_t first = 0; first < product_.rows; first += block_)
        for (int64_t t = tiles * thread / threads; t < tiles * (thread + 1) / threads; ++t)
          Tile(t, first, std::min(block_, product_.rows - first), rows + first * stride_,
               scratch + size_t(thread) * scratch_stride);
    });
  }

  // Each thread takes some of the rows through all tiles.
  void SplitRows(int64_t tiles) {
    size_t scratch_stride;
    float* scratch = machine_.ForThreads(size_t(block_ * (stride_ + kTile)), &scratch_stride);
    const int64_t threads = machine_.pool.threads();
    machine_.pool.Run([&](int thread) {
      float* rows = scratch + size_t(thread) * scratch_stride;
      const int64_t end = product_.rows * (thread + 1) / threads;
      for (int64_t first = product_.rows * thread / threads; first < end; first += block_) {
        const int64_t count = std::min(block_, end - first);
        product_.load(first, count, rows, stride_);
        for (int64_t t = 0; t < tiles; ++t) Tile(t, first, count, rows, rows + block_ * stride_);
      }
    });
  }

  void Tile(int64_t t, int64_t first, int64_t count, const float* rows, float* out) const {
    const cpu::PackedMatrix& w = product_.factor;
    machine_.kernels.Product(w.type)({w.Tile(t), int(w.k), reinterpret_cast<const std::byte*>(rows),
                                      stride_ * int64_t(sizeof(float)), int(count), out, kTile,
                                      t + 1 < w.tile_count() ? w.Tile(t + 1) : nullptr});
    for (int64_t r = 0; r < count && product_.bias; ++r)
      machine_.kernels.add(out + r * kTile, product_.bias + t * kTile, kTile);
    product_.store(first, count, t * kTile, int(std::min<int64_t>(kTile, w.n - t * kTile)), out, kTile);
  }

  Machine& machine_;
  const Product& product_;
  const int64_t stride_, block_;
};

}  // namespace

View Matrix::view() const {
  View v;
  v.dtype = dtype, v.data = data;
  v.AddAxis(rows, row_step);
  v.AddAxis(columns, column_step);
  return v;
}

size_t PackedBytes(const Matrix& factor) {
  return size_t((factor.columns + kTile - 1) / kTile * kTile * factor.rows) * ElementBytes(factor.dtype);
}

cpu::PackedMatrix PackInto(std::byte* memory, ThreadPool& pool, const Matrix& factor) {
  const bool half = factor.dtype == DataType::kF16;
  PD_CHECK(half || factor.dtype == DataType::kF32);
  cpu::PackedMatrix packed;
  packed.type = half ? DType::kF16 : DType::kF32;
  packed.n = factor.columns, packed.k = factor.rows, packed.tiles = memory;
  pool.Split(packed.tile_count(), std::max<int64_t>(1, 16384 / (factor.rows * kTile + 1)),
             [&](int64_t begin, int64_t end) {
               for (int64_t t = begin; t < end; ++t) {
                 std::byte* out = memory + size_t(t) * packed.tile_bytes();
                 half ? PackTile(factor, t, reinterpret_cast<uint16_t*>(out))
                      : PackTile(factor, t, reinterpret_cast<float*>(out));
               }
             });
  return packed;
}

void Multiply(Machine& machine, const Product& product) {
  if (product.rows > 0 && product.factor.n > 0) Run(machine, product)();
}

void LoadRows(const cpu::Kernels& kernels, const Matrix& m, int64_t first, int64_t count, float* out,
              int64_t stride) {
  if (m.dtype == DataType::kF16 && m.row_step == 1 && m.column_step != 1) {
    kernels.transpose_from_half(reinterpret_cast<const uint16_t*>(m.data) + first, m.column_step,
                                int(m.columns), int(count), out, stride);
    return;
  }
  const View v = m.view();
  for (int64_t r = 0; r < count; ++r)
    LoadFloats(kernels, v, (first + r) * m.row_step, m.column_step, m.columns, out + r * stride);
}

void StoreColumns(const cpu::Kernels& kernels, const Matrix& m, int64_t first, int64_t count, int64_t column,
                  int n, const float* values, int64_t stride) {
  const int64_t at = first * m.row_step + column * m.column_step;
  if (m.dtype == DataType::kF16 && m.row_step == 1 && m.column_step != 1) {
    kernels.transpose_to_half(values, stride, int(count), n, reinterpret_cast<uint16_t*>(m.data) + at,
                              m.column_step);
    return;
  }
  const View v = m.view();
  for (int64_t r = 0; r < count; ++r)
    StoreFloats(kernels, v, at + r * m.row_step, m.column_step, n, values + r * stride);
}

}  // namespace pd::interp
