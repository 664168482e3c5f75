// Matrix products with the CPU backend's kernels.
#pragma once
#include <functional>
#include <memory>

#include "coreml/interpreter/machine.h"
#include "coreml/interpreter/view.h"
#include "cpu/packed.h"
#include "cpu/pages.h"

namespace pd::interp {

// Element (i, j) of fp16 or fp32 lies i * row_step + j * column_step elements after data.
struct Matrix {
  DataType dtype = DataType::kF16;
  std::byte* data = nullptr;
  int64_t rows = 0, columns = 0, row_step = 0, column_step = 0;

  View view() const;
  Matrix Transposed() const { return {dtype, data, columns, rows, column_step, row_step}; }
};

// A factor [k, n] in tiles of 32 columns, in the kernels' form (cpu/kernels/layout.h). The packer owns the
// memory.
cpu::PackedMatrix PackInto(std::byte* memory, ThreadPool& pool, const Matrix& factor);
size_t PackedBytes(const Matrix& factor);

// The same with its own memory, packed once.
struct PackedFactor {
  cpu::PackedMatrix tiles;
  cpu::Pages pages;
};

// out[r][n] = sum over k, ascending, fused, of rows[r][k] * factor[k][n], in float from zero; plus bias[n].
struct Product {
  int64_t rows = 0;
  cpu::PackedMatrix factor;
  const float* bias = nullptr;  // [n] padded to tiles; or nullptr
  // Writes `count` rows from `first` to out, `stride` floats apart. Called by several threads.
  std::function<void(int64_t first, int64_t count, float* out, int64_t stride)> load;
  // Takes columns [column, column + n) of such rows, `stride` floats apart. Called by several threads.
  std::function<void(int64_t first, int64_t count, int64_t column, int n, const float* values,
                     int64_t stride)>
      store;
};
// Uses machine.rows and machine.threads.
void Multiply(Machine& machine, const Product& product);

// load and store for the rows of a matrix.
void LoadRows(const cpu::Kernels& kernels, const Matrix& m, int64_t first, int64_t count, float* out,
              int64_t stride);
void StoreColumns(const cpu::Kernels& kernels, const Matrix& m, int64_t first, int64_t count, int64_t column,
                  int n, const float* values, int64_t stride);

}  // namespace pd::interp
