// Which processors a thread may run on.
#pragma once
#include <span>
#include <vector>

namespace pd {

// Processors that this process may use, ascending: those its affinity mask allows on Linux, elsewhere as many
// as there are.
std::vector<int> AvailableCores();

// Binds the calling thread to these cores. False where the system knows no such thing or refuses: the thread
// runs as well, only elsewhere. No cores: nothing is done.
bool BindThisThread(std::span<const int> cores);

}  // namespace pd
