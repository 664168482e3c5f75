// Makes a GPU compile its kernels for the needed shapes before a user waits for it.
#pragma once
#include <span>

#include "device/device.h"

namespace pd {

// Runs two greedy steps for each number of sequences in `batches`, and a prompt of each length in `chunks`.
// Closes all slots again. Throws what the device throws.
void WarmUp(DecodeDevice& device, std::span<const int> batches, std::span<const int> chunks);

}  // namespace pd
