// Checks strides reported by Core ML, which may be padded and were seen to be zeros.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "coreml/mil/program.h"

namespace pd {

// The strides for reading a tensor of halves in a memory of `bytes`: the reported ones if they give every
// element its own place; dense ones if the reported ones are impossible and the memory holds exactly the
// elements; else nullopt, since the layout is unknown. `*distrusted`: the reported ones were not used.
std::optional<std::vector<int64_t>> UsableStrides(const mil::Dims& shape, std::span<const int64_t> reported,
                                                  size_t bytes, bool* distrusted);

}  // namespace pd
