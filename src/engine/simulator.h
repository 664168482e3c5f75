// Requests through the real scheduler, with jobs that take the time a cost model says.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/percentile.h"
#include "engine/cost_model.h"
#include "engine/planner.h"
#include "engine/timeline.h"

namespace pd {

struct TraceRequest {
  double at_ms = 0;            // arrival
  int prompt = 1, output = 1;  // tokens
};

// JSON lines {"at_ms": 0, "prompt": 900, "output": 100}. Throws kBadRequest, naming the line.
std::vector<TraceRequest> ReadTrace(std::string_view text, const std::string& where);

struct SimulationOptions {
  int max_running = 64, max_rows = 512, prefill_chunk = 512;
  // Who reads the prompt of the trace's request number `index`; nothing: the planner decides. Empty: it
  // decides them all.
  std::function<std::optional<PrefillChoice>(size_t index)> fixed = {};
};

struct SimulatedRequest {
  double first_token_ms = 0, end_ms = 0;  // since its arrival
  std::string device;                     // that read the prompt
};

struct Simulation {
  std::vector<SimulatedRequest> requests;  // as in the trace
  std::vector<double> gaps_ms;             // between tokens of a text, all texts, ascending
  double total_ms = 0;                     // until everything is done
  double tokens_per_s = 0;                 // of all texts over that time
  std::optional<double> joules;            // where the watts of every device used are known
  std::vector<Span> spans;
  std::vector<std::string> lanes;
};

// Deterministic. One lane is what is left when every prompt is fixed on the decode device.
Simulation Simulate(const MachineCosts& costs, const std::vector<TraceRequest>& trace,
                    const SimulationOptions& options);

}  // namespace pd
