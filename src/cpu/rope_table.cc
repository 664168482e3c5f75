#include "cpu/rope_table.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace pd::cpu {

RopeTable::RopeTable(const RopeSpec& spec, RopeVariant variant, int positions)
    : spec_(spec),
      variant_(variant),
      frequencies_(Frequencies(spec, variant)),
      pages_(size_t(positions) * size_t(spec.dims) * sizeof(float), Pages::Size::kSmall,
             "table of rotations"),
      capacity_(positions) {}

void RopeTable::Fill(int positions) {
  if (positions <= filled_) return;
  PD_CHECK(positions <= capacity_);
  // A few more than asked for, so that decode does not call this for every token.
  const int end = std::min(capacity_, (positions + 15) / 16 * 16);
  for (int p = filled_; p < end; ++p) {
    float* cos = data() + int64_t(p) * spec_.dims;
    for (size_t i = 0; i < frequencies_.inverse.size(); ++i) {
      const double angle = p * frequencies_.inverse[i];
      cos[i] = float(frequencies_.scale * std::cos(angle));
      cos[i + size_t(half())] = float(frequencies_.scale * std::sin(angle));
    }
  }
  filled_ = end;
}

}  // namespace pd::cpu
