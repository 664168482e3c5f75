// What a GPU compiles at the first use of a shape, compiled before a user waits for it.
#pragma once
#include <span>

#include "device/device.h"

namespace pd {

// Runs two steps of each number of sequences in `batches`, greedily, and a prompt of each length in `chunks`,
// all in slots that are closed again. Throws what the device throws.
void WarmUp(DecodeDevice& device, std::span<const int> batches, std::span<const int> chunks);

}  // namespace pd
