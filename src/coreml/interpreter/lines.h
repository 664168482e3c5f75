// The lines of a tensor along some of its axes, as contiguous numbers.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "coreml/interpreter/machine.h"
#include "coreml/interpreter/numbers.h"
#include "coreml/interpreter/rows.h"
#include "coreml/interpreter/view.h"

namespace pd::interp {

// One line for each index of the remaining axes, in row-major order; a line's elements are in the order of
// `axes`.
class Lines {
 public:
  Lines(const View& v, std::span<const size_t> axes);

  int64_t count() const { return kept_.count(); }
  int64_t length() const { return along_.count(); }
  void Load(int64_t line, double* out) const;
  void Store(int64_t line, const double* x) const;

  // Neighbouring lines: [first, first + n) for n up to Beside(first). Loading and storing them together, line
  // i at out + i * stride, is cheap even where their own elements are far apart.
  int64_t Beside(int64_t first) const;
  void LoadFloats(const cpu::Kernels& kernels, int64_t first, int64_t n, float* out, int64_t stride) const;
  void StoreFloats(const cpu::Kernels& kernels, int64_t first, int64_t n, const float* x,
                   int64_t stride) const;

 private:
  int64_t OffsetOf(int64_t line) const;
  bool Turns() const;

  View kept_, along_;
};

// Calls f(line, numbers) for every line of x; the numbers are doubles in memory of one of the pool's threads.
template <class F>
void ForLines(Machine& machine, const Lines& x, F f) {
  size_t stride;
  float* scratch = machine.ForThreads(2 * size_t(std::max<int64_t>(x.length(), 1)), &stride);
  const int64_t lines = x.count(), threads = machine.pool.threads();
  machine.pool.Run([&](int thread) {
    auto* numbers = reinterpret_cast<double*>(scratch + size_t(thread) * stride);
    for (int64_t i = lines * thread / threads; i < lines * (thread + 1) / threads; ++i) {
      x.Load(i, numbers);
      f(i, std::span<double>(numbers, size_t(x.length())));
    }
  });
}

// y = f(x) line by line, in floats: f(numbers, length) works in place and may write up to the next multiple
// of 16.
template <class F>
void MapLinesFast(Machine& machine, const Lines& x, const Lines& y, F f) {
  const int64_t length = x.length(), line_stride = (length + 15) / 16 * 16 + 16;
  const int64_t most = std::clamp<int64_t>((int64_t(1) << 17) / line_stride, 1, 32);
  size_t stride;
  float* scratch = machine.ForThreads(size_t(most * line_stride), &stride);
  const int64_t lines = x.count(), threads = machine.pool.threads();
  machine.pool.Run([&](int thread) {
    float* panel = scratch + size_t(thread) * stride;
    const int64_t end = lines * (thread + 1) / threads;
    for (int64_t first = lines * thread / threads; first < end;) {
      const int64_t n = std::min({most, end - first, x.Beside(first), y.Beside(first)});
      x.LoadFloats(machine.kernels, first, n, panel, line_stride);
      for (int64_t i = 0; i < n; ++i) f(panel + i * line_stride, length);
      y.StoreFloats(machine.kernels, first, n, panel, line_stride);
      first += n;
    }
  });
}

}  // namespace pd::interp
