// Rotation frequencies: the one place that knows how each kind of RoPE scaling bends them.
#pragma once
#include <cmath>
#include <span>
#include <vector>

#include "model/spec.h"

namespace pd {

// Dimension pair i (i, i + dims/2) of a row at position p turns by p * inverse[i]; cos and sin are then
// multiplied by `scale`.
struct RopeFrequencies {
  std::vector<double> inverse;  // [dims / 2], radians per position
  double scale = 1;
};
RopeFrequencies Frequencies(const RopeSpec& rope, RopeVariant variant);

// Turns one head's values to `position`, in double.
template <class T>
void RotateHead(std::span<T> head, const RopeFrequencies& f, int position) {
  const size_t half = f.inverse.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = position * f.inverse[i];
    const double cos = f.scale * std::cos(angle), sin = f.scale * std::sin(angle);
    const auto a = double(head[i]), b = double(head[half + i]);
    head[i] = T(a * cos - b * sin);
    head[half + i] = T(b * cos + a * sin);
  }
}

// The variant for a sequence of at most `tokens` tokens. Kinds that do not depend on length, and lengths
// within the original context, give the default, so that their caches can be shared.
RopeVariant FixRope(const ModelSpec& spec, int tokens);

}  // namespace pd
