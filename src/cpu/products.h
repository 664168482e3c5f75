// Schedules the matrix products of a step over threads. The arithmetic is in kernels/, so scheduling changes
// no bit.
//
// Few rows: reading weights is the work. Each thread takes a part of the output tiles, reads it once and
// multiplies all rows with it. Many rows: each thread takes a part of the rows through all products, in
// blocks that stay in its cache while the weights pass, and reads only activations that it wrote itself.
#pragma once
#include <span>

#include "cpu/arena.h"
#include "cpu/kernels/kernels.h"
#include "cpu/model.h"
#include "cpu/packed.h"
#include "cpu/pool.h"

namespace pd::cpu {

struct Product {
  const PackedMatrix* weight;  // [n, k]
  const float* bias;           // [n] padded to tiles, or nullptr
  Matrix* out;                 // [rows, n]
};

// Owned by a backend, used by its thread. Scratch memory grows in BeginStep only.
class Products {
 public:
  Products(const Kernels& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // Makes room for `rows` rows of up to `width` channels that meet quantised weights.
  void BeginStep(int rows, int64_t width);

  // out = x * weight^T + bias for each product; all read the same x [rows, k]. `spread`: see layout.h.
  void Multiply(const Matrix& x, std::span<const Product> products, float spread = kSpread);

  // down.out = (act(x * gate^T) * (x * up^T)) * down^T; gate.out [rows, hidden] is scratch memory, up.out is
  // unused.
  void GatedMlp(const Matrix& x, const Product& gate, const Product& up, Activation activation,
                const Product& down);

 private:
  struct Operand;
  bool SplitsRows(int rows) const { return rows >= 8 * pool_.threads(); }
  Operand Prepare(const Matrix& x, std::span<const Product> products, std::byte* quantised, float spread,
                  bool now);
  void Quantise(const Operand& x, int begin, int end) const;
  void Tile(const Product& p, const Operand& x, int64_t t, int begin, int end, float* out,
            int64_t out_stride) const;
  void GatedTile(const Product& gate, const Product& up, Activation activation, const Operand& x, int64_t t,
                 int begin, int end, float* scratch) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  std::vector<std::byte> quantised_[2];  // activations in 8 bits: x, and the gated values
  std::vector<float> up_;                // [threads][kRowBlock][kTile]
};

}  // namespace pd::cpu
