#include "coreml/export/kmeans.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"

namespace pd {
namespace {

constexpr int kBins = 4096;  // far finer than 16 entries need
constexpr int kRounds = 60;

int BinOf(float v, float low, float per_width) { return std::min(int((v - low) * per_width), kBins - 1); }

}  // namespace

std::array<float, kTableSize> TableMaker::Make(std::span<const float> values,
                                               std::span<const float> importance,
                                               std::span<uint8_t> indices) {
  PD_CHECK(!values.empty() && values.size() == indices.size() && values.size() % importance.size() == 0);
  Gather(values, importance);
  std::array<float, kTableSize> table{};
  const std::array<double, kTableSize> centres = Centres();
  for (size_t c = 0; c < kTableSize; ++c) table[c] = ToFloat(ToF16(float(centres[c])));

  // Start from the entry nearest to the middle of a value's bin; a cell border may run through the bin.
  nearest_.resize(kBins);
  const float width = per_width_ > 0 ? 1 / per_width_ : 0;
  const auto nearer = [&](int a, int b, float v) {
    return std::abs(table[size_t(a)] - v) < std::abs(table[size_t(b)] - v);
  };
  for (int bin = 0, c = 0; bin < kBins; ++bin) {
    const float middle = low_ + (float(bin) + 0.5f) * width;
    while (c + 1 < kTableSize && nearer(c + 1, c, middle)) ++c;
    nearest_[size_t(bin)] = uint8_t(c);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const float v = values[i];
    int c = nearest_[size_t(BinOf(v, low_, per_width_))];
    while (c + 1 < kTableSize && nearer(c + 1, c, v)) ++c;
    while (c > 0 && nearer(c - 1, c, v)) --c;
    indices[i] = uint8_t(c);
  }
  return table;
}

void TableMaker::Gather(std::span<const float> values, std::span<const float> importance) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  low_ = *least;
  per_width_ = *most > *least ? float(kBins / (double(*most) - double(*least))) : 0;
  bins_.assign(kBins, {});
  const size_t columns = importance.size();
  for (size_t row = 0; row < values.size(); row += columns)
    for (size_t i = 0; i < columns; ++i) {
      const float v = values[row + i];
      Bin& bin = bins_[size_t(BinOf(v, low_, per_width_))];
      bin.mass += double(importance[i]);
      bin.moment += double(importance[i]) * double(v);
    }
  mean_.clear();
  mass_.assign(1, 0);
  moment_.assign(1, 0);
  for (const Bin& bin : bins_) {
    if (bin.mass == 0) continue;
    mean_.push_back(bin.moment / bin.mass);
    mass_.push_back(mass_.back() + bin.mass);
    moment_.push_back(moment_.back() + bin.moment);
  }
}

std::array<double, kTableSize> TableMaker::Centres() const {
  const size_t n = mean_.size();
  std::array<double, kTableSize> best{};
  if (n <= kTableSize) {
    for (size_t c = 0; c < kTableSize; ++c) best[c] = mean_[std::min(c, n - 1)];
    return best;
  }
  // The best quantiser of a smooth density has entries as dense as its cube root. Small groups have many
  // local optima, so other starts are tried too: they work on bins, so they are cheap. Coarse bins show the
  // density of few values, fine ones the bulk beside outliers.
  double most = -1;
  for (size_t bins_each : {size_t(kBins / 64), size_t(1)})
    for (double power : {1.0 / 3, 0.2, 0.6, 1.0}) {
      std::array<double, kTableSize> centres = StartAt(power, bins_each);
      if (const double explained = Improve(centres); explained > most) most = explained, best = centres;
    }
  return best;
}

// Places entries as dense as this power of the density, in groups of this many bins.
std::array<double, kTableSize> TableMaker::StartAt(double power, size_t bins_each) const {
  std::vector<double> weight(bins_.size() / bins_each);
  double total = 0;
  for (size_t b = 0; b < weight.size(); ++b) {
    double mass = 0;
    for (size_t i = 0; i < bins_each; ++i) mass += bins_[b * bins_each + i].mass;
    weight[b] = std::pow(mass, power);
    total += weight[b];
  }
  const double width = double(bins_each) / double(per_width_);
  std::array<double, kTableSize> centres{};
  size_t b = 0;
  double before = 0;  // weight of the groups before b
  for (size_t c = 0; c < kTableSize; ++c) {
    const double wanted = total * (double(c) + 0.5) / kTableSize;
    while (b + 1 < weight.size() && before + weight[b] < wanted) before += weight[b++];
    const double within = weight[b] > 0 ? std::min((wanted - before) / weight[b], 1.0) : 0.5;
    centres[c] = double(low_) + (double(b) + within) * width;
  }
  return centres;
}

// Lloyd's iteration over the means of bins: in one dimension a centre's cell is an interval between
// midpoints, so sums over cells are differences of running sums. Returns the part of the sum of squares that
// the centres explain.
double TableMaker::Improve(std::array<double, kTableSize>& centres) const {
  std::array<size_t, kTableSize + 1> first{};
  double explained = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::array<size_t, kTableSize + 1> cells{};
    for (size_t c = 1; c < kTableSize; ++c) {
      const double border = (centres[c - 1] + centres[c]) / 2;
      cells[c] = size_t(std::lower_bound(mean_.begin(), mean_.end(), border) - mean_.begin());
    }
    cells[kTableSize] = mean_.size();
    if (cells == first) break;
    first = cells;
    explained = 0;
    for (size_t c = 0; c < kTableSize; ++c) {
      const double mass = mass_[first[c + 1]] - mass_[first[c]];
      if (mass <= 0) continue;
      const double moment = moment_[first[c + 1]] - moment_[first[c]];
      centres[c] = moment / mass;
      explained += moment * moment / mass;
    }
  }
  return explained;
}

}  // namespace pd
