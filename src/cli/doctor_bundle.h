// doctor --bundle: the claims of docs/unproven.md, put to this machine.
#pragma once
#include <string>

namespace pd::cli {

struct DoctorBundleFlags {
  std::string bundle;                 // empty: not asked for
  std::string model, decode;          // empty: the default model; a GPU where there is one, else the CPU
  std::string output = "ane-report";  // .json and .txt are added
  std::string goldens;                // empty: in the cache folder
};

int DoctorBundle(const DoctorBundleFlags& flags, bool json);  // the exit code

}  // namespace pd::cli
