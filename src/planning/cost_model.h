// How long work takes on a machine with a model: measured by `calibrate`, or derived from published figures.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "device/device.h"
#include "model/spec.h"

namespace pd {

// Milliseconds by count, in ascending order. Linear between points, extrapolated from the last two, clamped
// before the first.
using Curve = std::vector<std::pair<int, double>>;
double At(const Curve& curve, int count);

// The cost of prompts on one device.
struct PrefillCost {
  std::string device;
  std::string option = {};  // as --prefill takes it; empty: no device of this program
  Curve chunk;              // tokens of a chunk that begins a prompt
  // How many times as long a chunk takes after `first` tokens of history, by its length. In ascending order;
  // linear in between, from 1 without history, and extrapolated. Ratios, because on a device with functions
  // of fixed lengths the cost of history depends on the function's length.
  struct Later {
    int first = 0;
    Curve ratio;
  };
  std::vector<Later> later = {};
  // For a device of fixed shapes: the time of a call of each. A chunk then takes the calls that PlanCalls
  // plans, and `chunk` and `later` are empty.
  struct Call {
    PrefillShape shape;
    double ms = 0;
  };
  std::vector<Call> calls = {};
  // Of the handoff to the decode device; zero for the decode device itself.
  double handoff_ms = 0, handoff_token_ms = 0;
  int lane = 1;  // devices on one lane wait for each other; 0: the decode device's lane
  bool own_lane() const { return lane != 0; }  // it runs beside decode
  double slowdown = 1;                         // of decode steps meanwhile, with a lane of its own
  double watts = 0;                            // while it computes; 0: unknown

  double ChunkMs(int first, int count) const;
  CallCost CostOfCalls() const;  // knows the shapes in `calls` only
  Curve FirstChunks() const;     // the measured chunks without history
  double HandoffMs(int count) const { return handoff_ms + handoff_token_ms * count; }
  // All chunks of tokens [first, first + count), one after the other, without handoff.
  double PromptMs(int first, int count, int size) const;

 private:
  double Ratio(int first, int count) const;  // to a chunk without history
};

// Makes the device choose its functions by measured times, if all its functions were measured.
void UseMeasuredCalls(PrefillDevice& device, const PrefillCost& cost);

struct DecodeCost {
  std::string device;
  Curve step;             // by rows of the step, without context
  double context_ms = 0;  // added per row and token of its context
  double watts = 0;
  double StepMs(int rows, double context) const { return At(step, rows) + context_ms * rows * context; }
};

// The costs of one model on one machine.
struct MachineCosts {
  std::string machine, model;
  std::vector<PrefillCost> units;  // as EngineDevices::prefill
  PrefillCost direct;              // of prompts on the decode device itself
  DecodeCost decode;
};

inline constexpr int kMachineCostsVersion = 3;  // of the JSON
Json ToJson(const MachineCosts& costs);
// Throws kCorruptFile, naming `where`.
MachineCosts ReadMachineCosts(const Json& json, const std::string& where);

}  // namespace pd
