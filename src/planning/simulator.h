// Runs requests through the real scheduler; jobs take the time that a cost model says.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/percentile.h"
#include "planning/cost_model.h"
#include "planning/planner.h"
#include "serving/timeline.h"

namespace pd {

struct TraceRequest {
  double at_ms = 0;            // arrival
  int prompt = 1, output = 1;  // tokens
};

// JSON lines {"at_ms": 0, "prompt": 900, "output": 100}. Throws kBadRequest, naming the line.
std::vector<TraceRequest> ReadTrace(std::string_view text, const std::string& where);

struct SimulationOptions {
  int max_running = 64, max_rows = 512, prefill_chunk = 512;
  // The device for the prompt of the trace's request `index`; nullopt: the planner chooses. Empty: it chooses
  // all of them.
  std::function<std::optional<PrefillChoice>(size_t index)> fixed = {};
};

struct SimulatedRequest {
  double first_token_ms = 0, end_ms = 0;  // since its arrival
  bool direct = false;                    // the decode device computed the prompt, in the slot
  std::string device;                     // that computed the prompt
};

struct Simulation {
  std::vector<SimulatedRequest> requests;  // as in the trace
  std::vector<double> gaps_ms;             // between tokens of a text, of all texts, ascending
  double total_ms = 0;                     // until the last request ends
  double tokens_per_s = 0;                 // of all texts, over that time
  std::optional<double> joules;            // nullopt: the watts of some used device are unknown
  std::vector<Span> spans;
  std::vector<std::string> lanes;
};

// Deterministic. To simulate one lane, fix every prompt on the decode device.
Simulation Simulate(const MachineCosts& costs, const std::vector<TraceRequest>& trace,
                    const SimulationOptions& options);

}  // namespace pd
