// Rotation frequencies: the one place that knows how each kind of RoPE scaling bends them.
#pragma once
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

// The variant for a sequence of at most `tokens` tokens. Kinds that do not depend on length, and lengths
// within the original context, give the default, so that their caches can be shared.
RopeVariant FixRope(const ModelSpec& spec, int tokens);

}  // namespace pd
