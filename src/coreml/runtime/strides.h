// Strides as Core ML reports them, which may be padded, and were seen to be zeros.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "coreml/mil/program.h"

namespace pd {

// The strides by which to read a tensor of halves in a memory of `bytes`: the reported ones when every
// element has a place of its own there; dense ones when those cannot be and the memory holds exactly the
// elements; else nothing, for where the elements lie is anyone's guess. `*distrusted` says which.
std::optional<std::vector<int64_t>> UsableStrides(const mil::Dims& shape, std::span<const int64_t> reported,
                                                  size_t bytes, bool* distrusted);

}  // namespace pd
