// Tables of 16 values for 4-bit weights: one-dimensional k-means, weighted.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace pd {

inline constexpr int kTableSize = 16;

// For each group of weights, finds the table that keeps the weighted squared error small, and the entry for
// each weight. Deterministic: the same values give the same table from every compiler. Owned by one thread;
// keeps its buffers.
class TableMaker {
 public:
  // values: rows of importance.size() each. importance: how much an error in each column counts, positive.
  // Writes one index per value, and returns the table, ascending, rounded to fp16.
  std::array<float, kTableSize> Make(std::span<const float> values, std::span<const float> importance,
                                     std::span<uint8_t> indices);

 private:
  void Gather(std::span<const float> values, std::span<const float> importance);
  std::array<double, kTableSize> Centres() const;
  std::array<double, kTableSize> StartAt(double power, size_t bins_each) const;
  double Improve(std::array<double, kTableSize>& centres) const;

  struct Bin {
    double mass = 0, moment = 0;  // sum of importance, and of importance * value
  };
  std::vector<Bin> bins_;  // of equal width between the smallest and the largest value
  std::vector<double> mean_, mass_,
      moment_;                     // of nonempty bins, in order; running sums of mass and moment
  std::vector<uint8_t> nearest_;   // by bin
  float low_ = 0, per_width_ = 0;  // a value v falls into bin (v - low_) * per_width_
};

}  // namespace pd
