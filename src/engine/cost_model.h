// What work takes on a machine with a model: measured by `calibrate`, or derived from published figures.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "device/device.h"
#include "model/spec.h"

namespace pd {

// Milliseconds for a number of things, linear between the points and beyond the last two; before the first
// point, as there. Ascending.
using Curve = std::vector<std::pair<int, double>>;
double At(const Curve& curve, int count);

// Prompts on one device.
struct PrefillCost {
  std::string device;
  std::string option = {};  // as --prefill takes it; empty: not a device of this program
  Curve chunk;              // tokens of a chunk that begins a prompt
  // A chunk after `first` tokens takes so many times as long, by its tokens. Ascending; linear in between,
  // from 1 at the beginning, and beyond. Ratios, because a device with functions of fixed lengths pays for
  // history by the length of the function.
  struct Later {
    int first = 0;
    Curve ratio;
  };
  std::vector<Later> later = {};
  // A device of fixed shapes: what a call of each takes. Chunks are the calls that PlanCalls makes of them,
  // and `chunk` and `later` are empty.
  struct Call {
    PrefillShape shape;
    double ms = 0;
  };
  std::vector<Call> calls = {};
  // Handing the keys and values over to the decode device; zero for the decode device itself.
  double handoff_ms = 0, handoff_token_ms = 0;
  int lane = 1;  // devices of one lane wait for each other; 0: the decode device's
  bool own_lane() const { return lane != 0; }  // it runs beside decode
  double slowdown = 1;                         // of a decode step that runs meanwhile, with a lane of its own
  double watts = 0;                            // while it computes; 0: unknown

  double ChunkMs(int first, int count) const;
  CallCost CostOfCalls() const;  // of the shapes in `calls`, and of no others
  Curve FirstChunks() const;     // that were measured, at the beginning of a prompt
  double HandoffMs(int count) const { return handoff_ms + handoff_token_ms * count; }
  // All chunks of tokens [first, first + count), one after the other, without handing over.
  double PromptMs(int first, int count, int size) const;

 private:
  double Ratio(int first, int count) const;  // of a chunk to one that begins a prompt
};

// The device's functions are chosen by what was measured; unless it has others now.
void UseMeasuredCalls(PrefillDevice& device, const PrefillCost& cost);

struct DecodeCost {
  std::string device;
  Curve step;             // rows of a step, at no context
  double context_ms = 0;  // more for each row and token of its context
  double watts = 0;
  double StepMs(int rows, double context) const { return At(step, rows) + context_ms * rows * context; }
};

// One model on one machine.
struct MachineCosts {
  std::string machine, model;
  std::vector<PrefillCost> units;  // as EngineDevices::prefill
  PrefillCost direct;              // the decode device reading a prompt itself
  DecodeCost decode;
};

inline constexpr int kMachineCostsVersion = 3;  // of the JSON
Json ToJson(const MachineCosts& costs);
// Throws kCorruptFile, naming `where`.
MachineCosts ReadMachineCosts(const Json& json, const std::string& where);

}  // namespace pd
