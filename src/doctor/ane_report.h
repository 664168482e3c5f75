// What `doctor --bundle` found: one entry a claim, for people and for programs. Holds nothing of its owner:
// no user's name, no path, no text of theirs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "planning/cost_model.h"

namespace pd {

enum class Outcome : uint8_t { kProved, kRefuted, kNotRun };
const char* Name(Outcome outcome);  // "proved", "refuted", "not run"

// An answer to one claim of docs/unproven.md.
struct AneCheck {
  int claim = 0;     // its number
  std::string name;  // "placement"
  Outcome outcome = Outcome::kNotRun;
  Json numbers = Json::object();  // what was measured, with units in the keys
  std::string reason;             // of the outcome, a sentence or several
};

struct AneReport {
  std::string version;            // of this program
  std::string machine, os_build;  // "Mac16,1", "24A335"
  // What ran the programs when that was no Neural Engine: "our interpreter". Then nothing is proved.
  std::string stand_in;
  Json bundle;                   // family, weights, form of attention, functions, shards
  std::vector<AneCheck> checks;  // each claim once, in order
  // The planner's profile of this machine and model; nullopt if it could not be measured.
  std::optional<MachineCosts> costs;
};

// {"format": 1, "version", "machine", "os_build", "neural_engine": bool, "stand_in", "bundle", "checks":
// [{"claim", "name", "verdict", "numbers", "reason"}], "profile": as ToJson(MachineCosts), or null}.
Json ToJson(const AneReport& report);

// For reading: what was refuted, what was proved, what was not run and how to; then the numbers.
std::string ToText(const AneReport& report);

}  // namespace pd
