// How much memory is left.
#pragma once
#include <cstddef>

namespace pd {

// Bytes that this process can still take without pushing others out: what the system calls available, or what
// the process's control group leaves it, whichever is less.
size_t AvailableMemory();

}  // namespace pd
