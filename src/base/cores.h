// Which processors a thread may run on.
#pragma once
#include <span>
#include <vector>

namespace pd {

// Processors that this process may use, ascending: those its affinity mask allows on Linux, all of them
// elsewhere.
std::vector<int> AvailableCores();

// Binds the calling thread to these cores; does nothing for an empty list. Returns false where the system
// cannot or will not do it; the thread then runs on any core.
bool BindThisThread(std::span<const int> cores);

}  // namespace pd
