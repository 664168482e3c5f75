// doctor --ane: the claims of docs/unproven.md, put to this machine.
#pragma once
#include <string>

namespace pd::cli {

struct DoctorAneFlags {
  std::string bundle;                 // empty: not asked for
  std::string model, decode;          // empty: the default model; mlx where it is, else cpu
  std::string output = "ane-report";  // .json and .txt are added
  std::string goldens;                // empty: in the cache folder
};

int DoctorAne(const DoctorAneFlags& flags, bool json);  // the exit code

}  // namespace pd::cli
