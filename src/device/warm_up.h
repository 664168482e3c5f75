// Has a GPU compile what it compiles at the first use of a shape, before a user waits for it.
#pragma once
#include <span>

#include "device/device.h"

namespace pd {

// Runs two greedy steps of each number of sequences in `batches`, and a prompt of each length in `chunks`.
// All slots are closed again. Throws what the device throws.
void WarmUp(DecodeDevice& device, std::span<const int> batches, std::span<const int> chunks);

}  // namespace pd
