#include "engine/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"

namespace pd {
namespace {

constexpr double kBookkeepingMs = 0.01;  // opening, closing and the like

KvSegment Placeholder(int first, int count) {
  KvSegment segment;
  KvLayerView view;
  view.first = first, view.count = count;
  segment.layers.push_back(view);
  return segment;
}

class World {
 public:
  World(const MachineCosts& costs, const std::vector<TraceRequest>& trace, const SimulationOptions& options)
      : costs_(costs), planner_(costs), scheduler_(Scheduling(options)), lanes_(simulation_.lanes.size()) {
    simulation_.requests.resize(trace.size());
    last_token_.resize(trace.size(), -1);
    for (size_t i = 0; i < trace.size(); ++i) {
      Request request;
      request.prompt.assign(size_t(trace[i].prompt), 0);
      request.max_tokens = trace[i].output;
      request.prefill_chunk = options.prefill_chunk;
      const RequestPlan plan{request.max_tokens, trace[i].prompt + std::max(trace[i].output, 1) - 1, {}};
      arrivals_.emplace(trace[i].at_ms,
                        Arrived{i + 1, std::make_shared<const Request>(std::move(request)), plan});
    }
  }

  Simulation Run() {
    while (!arrivals_.empty() || !scheduler_.idle()) {
      Step();
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
    scheduling.lanes = int(simulation_.lanes.size());
    scheduling.max_rows = options.max_rows;
    scheduling.runs_ahead = false;  // a step takes its time when it is submitted
    scheduling.max_running = options.max_running;
    scheduling.choose = [this, fixed = options.fixed](const PrefillQuestion& question) {
      if (fixed)
        if (const auto choice = fixed(question.request - 1)) return *choice;
      return planner_.Choose(question);
    };
    return scheduling;
  }

  // To the next moment at which something happens.
  void Step() {
    LaneState* next = nullptr;
    for (LaneState& lane : lanes_)
      if (lane.job && (!next || lane.end < next->end)) next = &lane;
    if (!arrivals_.empty() && (!next || arrivals_.begin()->first <= next->end)) {
      const auto at = arrivals_.begin();
      now_ = std::max(now_, at->first);
      scheduler_.On(Tick{now_});
      scheduler_.On(at->second);
      arrivals_.erase(at);
      return;
    }
    PD_CHECK(next);  // requests wait, and nothing runs
    now_ = next->end;
    const Job job = *std::exchange(next->job, std::nullopt);
    scheduler_.On(Tick{now_});
    scheduler_.On(Done{LaneId(next - lanes_.data()), ResultOf(job), 0});
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
      } else {
        const auto& ended = std::get<Ended>(notice);
        PD_CHECK(ended.result.finish != FinishReason::kError);
        SimulatedRequest& request = simulation_.requests[ended.request - 1];
        request.first_token_ms = ended.result.stats.first_token_ms;
        request.end_ms = ended.result.stats.total_ms;
        request.device = ended.result.stats.prefill_device;
        tokens_ += double(ended.result.tokens.size());
      }
    }
  }

  void Start() {
    for (LaneId id = 0; id < LaneId(lanes_.size()); ++id) {
      LaneState& lane = lanes_[size_t(id)];
      if (lane.job) continue;
      lane.job = scheduler_.Next(id);
      if (!lane.job) continue;
      if (const auto* chunk = std::get_if<PrefillChunk>(&*lane.job)) unit_of_[chunk->request] = chunk->unit;
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
      return {costs_.units[unit_of_.at(import->request)].HandoffMs(import->segment.count()),
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

  // By prefill that runs on other lanes now.
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
  const Planner planner_;
  Simulation simulation_;
  Scheduler scheduler_;
  std::vector<LaneState> lanes_;
  std::multimap<double, Arrived> arrivals_;
  std::deque<SubmitStep> steps_;         // uncollected
  std::map<RequestId, size_t> unit_of_;  // that reads the prompt
  std::vector<double> last_token_;       // by request; -1: none yet
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
      json.Done();
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
