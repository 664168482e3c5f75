#include "planning/simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "base/json.h"

namespace pd {
namespace {

constexpr std::string_view kRemedy = "remove or correct them";  // keys that nobody reads

constexpr double kBookkeepingMs = 0.01;  // opening, closing and the like

KvSegment Placeholder(int first, int count) { return {.first = first, .count = count}; }

class World {
 public:
  World(const MachineCosts& costs, const std::vector<TraceRequest>& trace, const SimulationOptions& options)
      : costs_(costs),
        trace_(trace),
        options_(options),
        planner_(costs),
        scheduler_(Scheduling(options)),
        lanes_(simulation_.lanes.size()) {
    simulation_.requests.resize(trace.size());
    last_token_.resize(trace.size(), -1);
    unit_of_.resize(trace.size());
    arrivals_.resize(trace.size());
    std::iota(arrivals_.begin(), arrivals_.end(), size_t(0));
    std::ranges::stable_sort(arrivals_, {}, [&](size_t i) { return trace[i].at_ms; });
  }

  Simulation Run() {
    while (arrived_ < arrivals_.size() || !scheduler_.idle()) {
      Advance();
      Listen();
      Start();
    }
    Summarise();
    return std::move(simulation_);
  }

 private:
  struct LaneState {
    std::optional<Job> job;
    double end = 0, joules = 0;
  };

  // Lane 0 decodes.
  SchedulerOptions Scheduling(const SimulationOptions& options) {
    SchedulerOptions scheduling;
    simulation_.lanes = {costs_.decode.device};
    for (const PrefillCost& unit : costs_.units) {
      if (size_t(unit.lane) >= simulation_.lanes.size()) simulation_.lanes.resize(size_t(unit.lane) + 1);
      if (simulation_.lanes[size_t(unit.lane)].empty()) simulation_.lanes[size_t(unit.lane)] = unit.device;
      scheduling.prefill.push_back({unit.device, unit.lane, {}, 0});
    }
    scheduling.decode_name = costs_.decode.device;
    scheduling.lanes = int(simulation_.lanes.size());
    scheduling.max_rows = options.max_rows;
    scheduling.runs_ahead = false;  // the time of a step passes when it is submitted
    scheduling.max_running = options.max_running;
    scheduling.choose = [this, fixed = options.fixed](const PrefillQuestion& question) {
      if (fixed)
        if (const auto choice = fixed(question.request - 1)) return *choice;
      return planner_.Choose(question);
    };
    return scheduling;
  }

  // Moves the clock to the next event, and tells the scheduler.
  void Advance() {
    LaneState* next = nullptr;
    for (LaneState& lane : lanes_)
      if (lane.job && (!next || lane.end < next->end)) next = &lane;
    if (arrived_ < arrivals_.size()) {
      const size_t index = arrivals_[arrived_];
      if (!next || trace_[index].at_ms <= next->end) {
        ++arrived_;
        now_ = std::max(now_, trace_[index].at_ms);
        scheduler_.On(Tick{now_});
        scheduler_.On(ArrivalOf(index));
        return;
      }
    }
    PD_CHECK(next);  // otherwise requests wait and no lane works
    now_ = next->end;
    const Job job = *std::exchange(next->job, std::nullopt);
    scheduler_.On(Tick{now_});
    scheduler_.On(Done{LaneId(next - lanes_.data()), ResultOf(job), 0});
  }

  Arrived ArrivalOf(size_t index) const {
    Request request;
    request.prompt.assign(size_t(trace_[index].prompt), 0);
    request.max_tokens = trace_[index].output;
    request.prefill_chunk = options_.prefill_chunk;
    const RequestPlan plan{
        request.max_tokens, trace_[index].prompt + std::max(trace_[index].output, 1) - 1, {}};
    return {index + 1, std::make_shared<const Request>(std::move(request)), plan};
  }

  JobResult ResultOf(const Job& job) {
    if (std::holds_alternative<OpenSlot>(job)) return next_slot_++;
    if (const auto* chunk = std::get_if<PrefillChunk>(&job))
      return Chunk{Placeholder(chunk->first, chunk->count), 0};
    if (const auto* step = std::get_if<SubmitStep>(&job)) steps_.push_back(*step);
    if (std::holds_alternative<CollectStep>(job)) {
      const SubmitStep step = std::move(steps_.front());
      steps_.pop_front();
      std::vector<SampledRow> rows;
      if (!step.sample.empty())
        for (const SlotId slot : step.slot) rows.push_back({slot, {}});
      return rows;
    }
    return {};
  }

  void Listen() {
    for (const Notice& notice : scheduler_.TakeNotices()) {
      if (const auto* token = std::get_if<TokenOut>(&notice)) {
        double& last = last_token_[token->request - 1];
        if (last >= 0) simulation_.gaps_ms.push_back(now_ - last);
        last = now_;
      } else if (const auto* ended = std::get_if<Ended>(&notice)) {
        PD_CHECK(ended->result.finish != FinishReason::kError);
        SimulatedRequest& request = simulation_.requests[ended->request - 1];
        request.first_token_ms = ended->result.stats.first_token_ms;
        request.end_ms = ended->result.stats.total_ms;
        request.direct = ended->result.stats.direct;
        request.device = ended->result.stats.prefill_device;
        tokens_ += double(ended->result.tokens.size());
      }
    }
  }

  void Start() {
    for (LaneId id = 0; id < LaneId(lanes_.size()); ++id) {
      LaneState& lane = lanes_[size_t(id)];
      if (lane.job) continue;
      lane.job = scheduler_.Next(id);
      if (!lane.job) continue;
      if (const auto* chunk = std::get_if<PrefillChunk>(&*lane.job))
        unit_of_[chunk->request - 1] = chunk->unit;
      const auto [ms, watts] = CostOf(*lane.job);
      lane.end = now_ + ms;
      if (watts <= 0 && KindOf(*lane.job) != SpanKind::kOther) watts_known_ = false;
      lane.joules += watts * ms / 1000;
      simulation_.spans.push_back({id, KindOf(*lane.job), RequestOf(*lane.job), now_, lane.end});
    }
  }

  struct TimeAndPower {
    double ms, watts;
  };
  TimeAndPower CostOf(const Job& job) const {
    if (const auto* chunk = std::get_if<PrefillChunk>(&job)) {
      const PrefillCost& unit = costs_.units[chunk->unit];
      return {unit.ChunkMs(chunk->first, chunk->count), unit.watts};
    }
    if (const auto* import = std::get_if<ImportSegment>(&job)) {
      return {costs_.units[unit_of_.at(import->request - 1)].HandoffMs(import->segment.count),
              costs_.decode.watts};
    }
    if (const auto* step = std::get_if<SubmitStep>(&job)) {
      if (step->sample.empty())
        return {costs_.direct.ChunkMs(step->pos.front(), int(step->pos.size())), costs_.decode.watts};
      double context = 0;
      for (const int32_t position : step->pos) context += position;
      const int rows = int(step->pos.size());
      return {costs_.decode.StepMs(rows, context / rows) * Slowdown(), costs_.decode.watts};
    }
    return {kBookkeepingMs, 0};
  }

  // Of a decode step, by prefill that runs on other lanes now.
  double Slowdown() const {
    double slowdown = 1;
    for (size_t id = 1; id < lanes_.size(); ++id)
      if (const auto& job = lanes_[id].job)
        if (const auto* chunk = std::get_if<PrefillChunk>(&*job))
          slowdown = std::max(slowdown, costs_.units[chunk->unit].slowdown);
    return slowdown;
  }

  void Summarise() {
    std::ranges::sort(simulation_.gaps_ms);
    simulation_.total_ms = now_;
    simulation_.tokens_per_s = now_ > 0 ? tokens_ / (now_ / 1000) : 0;
    if (!watts_known_) return;
    double joules = 0;
    for (const LaneState& lane : lanes_) joules += lane.joules;
    simulation_.joules = joules;
  }

  const MachineCosts& costs_;
  const std::vector<TraceRequest>& trace_;
  const SimulationOptions& options_;
  const Planner planner_;
  Simulation simulation_;
  Scheduler scheduler_;
  std::vector<LaneState> lanes_;
  std::vector<size_t> arrivals_;    // of the trace, in order of time
  size_t arrived_ = 0;              // of them
  std::deque<SubmitStep> steps_;    // uncollected
  std::vector<size_t> unit_of_;     // that computes the prompt, by request
  std::vector<double> last_token_;  // by request; -1: none yet
  double now_ = 0, tokens_ = 0;
  SlotId next_slot_ = 0;
  bool watts_known_ = true;
};

}  // namespace

std::vector<TraceRequest> ReadTrace(std::string_view text, const std::string& where) {
  std::vector<TraceRequest> trace;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string name = fmt::format("{}: line {}", where, number);
    try {
      const Json object = ParseJson(line, name);
      JsonReader json(object, name);
      constexpr int kMost = 1 << 20;
      TraceRequest request{json.Number("at_ms"), int(json.Int("prompt", 1, kMost)),
                           int(json.Int("output", 1, kMost))};
      json.Done(kRemedy);
      if (!(request.at_ms >= 0 && request.at_ms < 1e12))
        throw Fail(ErrorKind::kBadRequest, "{}: at_ms is {}", name, request.at_ms);
      trace.push_back(request);
    } catch (const Error& e) {
      throw Error(ErrorKind::kBadRequest, e.what());
    }
  }
  if (trace.empty()) throw Fail(ErrorKind::kBadRequest, "{}: no requests", where);
  return trace;
}

Simulation Simulate(const MachineCosts& costs, const std::vector<TraceRequest>& trace,
                    const SimulationOptions& options) {
  return World(costs, trace, options).Run();
}

}  // namespace pd
