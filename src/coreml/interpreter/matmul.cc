#include "coreml/interpreter/matmul.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "coreml/interpreter/numbers.h"

namespace pd::interp {
namespace {

// The start of each batch's matrices, in elements.
struct Batch {
  int64_t x, y, z;
};

std::vector<Batch> BatchesOf(const View& x, const View& y, const View& z) {
  std::vector<Batch> batches{{0, 0, 0}};
  for (size_t a = 0; a + 2 < z.rank; ++a) {
    std::vector<Batch> more;
    for (const Batch& b : batches)
      for (int64_t i = 0; i < z.shape[a]; ++i)
        more.push_back({b.x + i * x.strides[a], b.y + i * y.strides[a], b.z + i * z.strides[a]});
    batches = std::move(more);
  }
  return batches;
}

// v with its batch axes as wide as z's.
View WithBatchesOf(const View& v, const View& z) {
  View wide = v;
  for (size_t a = 0; a + 2 < z.rank; ++a)
    if (v.shape[a] == 1 && z.shape[a] != 1) wide.shape[a] = z.shape[a], wide.strides[a] = 0;
  return wide;
}

Matrix LastAxes(const View& v) {
  const size_t r = v.rank;
  return {v.dtype, v.data, v.shape[r - 2], v.shape[r - 1], v.strides[r - 2], v.strides[r - 1]};
}
Matrix At(Matrix m, int64_t offset) {
  m.data += offset * int64_t(ElementBytes(m.dtype));
  return m;
}

// The cost of bringing operands into the kernels' order and of multiplying them, in relative units.
double CostOf(const Matrix& rows, const Matrix& factor) {
  const double turn_rows = rows.column_step == 1 ? 1 : 3, turn_factor = factor.column_step == 1 ? 1 : 6;
  const double k = double(rows.columns), r = double(rows.rows);
  const int64_t tiles = (factor.columns + 31) / 32;
  const double n = double(tiles) * 32;
  return turn_rows * r * k + turn_factor * k * n + r * n * (k + 32) / 24;
}

// Rows of several batches that share one factor.
struct Group {
  std::vector<Matrix> rows, out;
};

void MultiplyGroup(Machine& machine, const Group& group, const cpu::PackedMatrix& factor, const float* bias) {
  const int64_t per_batch = group.rows.front().rows;
  // Calls f(batch, row, count, done) for the parts of [first, first + count), each within one batch.
  const auto by_batch = [per_batch](int64_t first, int64_t count, auto f) {
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) % per_batch, n = std::min(per_batch - row, count - done);
      f(size_t((first + done) / per_batch), row, n, done);
      done += n;
    }
  };
  Product product;
  product.rows = per_batch * int64_t(group.rows.size());
  product.factor = factor;
  product.bias = bias;
  product.load = [&](int64_t first, int64_t count, float* out, int64_t stride) {
    by_batch(first, count, [&](size_t b, int64_t row, int64_t n, int64_t done) {
      LoadRows(machine.kernels, group.rows[b], row, n, out + done * stride, stride);
    });
  };
  product.store = [&](int64_t first, int64_t count, int64_t column, int n, const float* values,
                      int64_t stride) {
    by_batch(first, count, [&](size_t b, int64_t row, int64_t rows, int64_t done) {
      StoreColumns(machine.kernels, group.out[b], row, rows, column, n, values + done * stride, stride);
    });
  };
  Multiply(machine, product);
}

}  // namespace

void MatMul(Machine& machine, const MatMulJob& job) {
  if (job.z.count() == 0) return;
  const View x = WithBatchesOf(job.x, job.z), y = WithBatchesOf(job.y, job.z);
  const std::vector<Batch> batches = BatchesOf(x, y, job.z);
  const Matrix mx = LastAxes(x), my = LastAxes(y), mz = LastAxes(job.z);
  // Either factor may be the tiled one: z = x y, or its transpose = y' x'.
  const bool turned =
      job.packed_x || (!job.packed_y && CostOf(my.Transposed(), mx.Transposed()) < CostOf(mx, my));
  const PackedFactor* packed = turned ? job.packed_x : job.packed_y;
  for (size_t b = 0; b < batches.size();) {
    const int64_t shared = turned ? batches[b].x : batches[b].y;
    const Matrix factor = At(turned ? mx.Transposed() : my, shared);
    Group group;
    for (; b < batches.size() && (packed || (turned ? batches[b].x : batches[b].y) == shared); ++b) {
      group.rows.push_back(turned ? At(my, batches[b].y).Transposed() : At(mx, batches[b].x));
      group.out.push_back(turned ? At(mz, batches[b].z).Transposed() : At(mz, batches[b].z));
    }
    if (packed) {
      MultiplyGroup(machine, group, packed->tiles, job.bias);
      continue;
    }
    PD_CHECK(!job.bias);
    auto* memory = reinterpret_cast<std::byte*>(machine.tiles.Take((PackedBytes(factor) + 3) / 4));
    MultiplyGroup(machine, group, PackInto(memory, machine.pool, factor), nullptr);
  }
}

namespace {

// z = Finish(sum of Step(sum, x, y)), element by element.
template <class Number, class Load, class Store, class Step>
void Plain(Machine& machine, const MatMulJob& job, Load load, Store store, Step step) {
  const View x = WithBatchesOf(job.x, job.z), y = WithBatchesOf(job.y, job.z);
  const std::vector<Batch> batches = BatchesOf(x, y, job.z);
  const Matrix mx = LastAxes(x), my = LastAxes(y), mz = LastAxes(job.z);
  const int64_t per_batch = mz.rows * mz.columns;
  machine.pool.Split(per_batch * int64_t(batches.size()), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Batch& b = batches[size_t(i / per_batch)];
      const int64_t r = i % per_batch / mz.columns, c = i % mz.columns;
      Number sum = 0;
      for (int64_t k = 0; k < mx.columns; ++k) {
        Number u, v;
        load(x, b.x + r * mx.row_step + k * mx.column_step, &u);
        load(y, b.y + k * my.row_step + c * my.column_step, &v);
        sum = step(sum, u, v);
      }
      if (job.bias) sum += Number(job.bias[c]);
      store(job.z, b.z + r * mz.row_step + c * mz.column_step, &sum);
    }
  });
}

}  // namespace

void PlainMatMul(Machine& machine, const MatMulJob& job) {
  const cpu::Kernels& kernels = machine.kernels;
  Plain<float>(
      machine, job, [&](const View& v, int64_t at, float* out) { LoadFloats(kernels, v, at, 1, 1, out); },
      [&](const View& v, int64_t at, const float* x) { StoreFloats(kernels, v, at, 1, 1, x); },
      [](float sum, float u, float v) { return std::fma(u, v, sum); });
}

void PlainIntMatMul(Machine& machine, const MatMulJob& job) {
  Plain<int64_t>(
      machine, job, [](const View& v, int64_t at, int64_t* out) { LoadInts(v, at, 1, 1, out); },
      [](const View& v, int64_t at, const int64_t* x) { StoreInts(v, at, 1, 1, x); },
      [](int64_t sum, int64_t u, int64_t v) { return sum + u * v; });
}

}  // namespace pd::interp
