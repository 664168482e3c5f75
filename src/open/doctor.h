// What this build and this machine offer, and what stands in the way.
#pragma once
#include <string>
#include <vector>

namespace pd {

struct Finding {
  enum class State { kFine, kNote, kProblem } state = State::kFine;  // a note: less than there could be
  std::string subject, value;                                        // one line each
  std::string remedy;                                                // of a note or a problem
};

// One finding or more for each device that we know of, present or not. Touches the devices, loads nothing.
std::vector<Finding> FindDevices();

}  // namespace pd
