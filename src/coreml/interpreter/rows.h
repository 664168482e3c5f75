// Walks several views of one shape together, in rows along which each view has one step.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

#include "coreml/interpreter/view.h"
#include "cpu/pool.h"

namespace pd::interp {

// Axes over which all views advance evenly are joined, so that dense tensors are one long row whatever their
// shape. Long rows are cut into pieces of about `longest`, which threads can share.
template <size_t N>
class Rows {
 public:
  using Offsets = std::array<int64_t, N>;  // in elements from each view's data

  explicit Rows(const std::array<const View*, N>& views, int64_t longest = kLongest) {
    const View& first = *views[0];
    for (size_t a = 0; a < first.rank; ++a) {
      if (first.shape[a] == 1) continue;
      Axis axis{first.shape[a], {}};
      for (size_t i = 0; i < N; ++i) axis.strides[i] = views[i]->strides[a];
      if (rank_ > 0 && Continues(axes_[rank_ - 1], axis)) {
        axis.size *= axes_[rank_ - 1].size;
        axes_[rank_ - 1] = axis;
      } else {
        axes_[rank_++] = axis;
      }
    }
    if (rank_ == 0) axes_[rank_++] = {1, {}};
    for (size_t a = 0; a + 1 < rank_; ++a) outer_ *= axes_[a].size;
    pieces_ = std::max<int64_t>(1, (inner().size + longest - 1) / longest);
  }

  // The step of each view from one element of a row to the next.
  const Offsets& steps() const { return inner().strides; }
  int64_t count() const { return inner().size == 0 ? 0 : outer_ * pieces_; }
  int64_t elements() const { return outer_ * inner().size; }

  // Calls f(offsets, length) for rows [begin, end).
  template <class F>
  void ForEach(int64_t begin, int64_t end, F&& f) const {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t piece = row % pieces_;
      const int64_t from = inner().size * piece / pieces_, to = inner().size * (piece + 1) / pieces_;
      Offsets at{};
      int64_t rest = row / pieces_;
      for (size_t a = rank_ - 1; a-- > 0;) {
        const int64_t i = rest % axes_[a].size;
        rest /= axes_[a].size;
        for (size_t v = 0; v < N; ++v) at[v] += i * axes_[a].strides[v];
      }
      for (size_t v = 0; v < N; ++v) at[v] += from * inner().strides[v];
      f(at, to - from);
    }
  }
  // All rows, on as many threads as are worth starting.
  template <class F>
  void Run(ThreadPool& pool, F&& f) const {
    const int64_t rows = count();
    if (rows == 0) return;
    const int64_t grain = std::max<int64_t>(1, kGrain * rows / std::max<int64_t>(elements(), 1));
    pool.Split(rows, grain, [&](int64_t begin, int64_t end) { ForEach(begin, end, f); });
  }

  static constexpr int64_t kLongest = 4096;
  static constexpr int64_t kGrain = 8192;  // elements that make a thread worth starting

 private:
  struct Axis {
    int64_t size = 1;
    Offsets strides{};
  };
  static bool Continues(const Axis& outer, const Axis& axis) {
    for (size_t i = 0; i < N; ++i)
      if (outer.strides[i] != axis.size * axis.strides[i]) return false;
    return true;
  }
  const Axis& inner() const { return axes_[rank_ - 1]; }

  std::array<Axis, kMostAxes + 1> axes_;
  size_t rank_ = 0;
  int64_t outer_ = 1, pieces_ = 1;
};

}  // namespace pd::interp
