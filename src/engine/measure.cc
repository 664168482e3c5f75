#include "engine/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <numeric>
#include <thread>

#include "base/cores.h"
#include "base/error.h"

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Tokens of no meaning; which ones costs nothing.
std::vector<TokenId> Tokens(int count, int vocab) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) tokens[size_t(i)] = TokenId((i * 31 + 7) % vocab);
  return tokens;
}

// A slot that is closed whatever happens.
class Slot {
 public:
  Slot(DecodeDevice& device, int capacity) : device_(device), id_(device.Open(capacity, {})) {}
  ~Slot() { device_.Close(id_); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  SlotId id() const { return id_; }

  // Rows without logits, as many at a time as the device takes.
  void Read(int count, int vocab) {
    const auto tokens = Tokens(count, vocab);
    const int most = device_.Info().max_rows;
    for (int done = 0; done < count; done += most) {
      const int n = std::min(most, count - done);
      std::vector<int32_t> pos(static_cast<size_t>(n));
      std::iota(pos.begin(), pos.end(), device_.Length(id_));
      const std::vector<SlotId> slots(size_t(n), id_);
      device_.Collect(
          device_.Submit({{std::span(tokens).subspan(size_t(done), size_t(n)), pos, slots, {}}, {}}));
    }
  }

 private:
  DecodeDevice& device_;
  SlotId id_;
};

constexpr int kLengths[] = {1, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512};
constexpr int kRows[] = {1, 2, 4, 8, 16};
constexpr int kHistory = 1024, kHistoryChunk = 128, kContext = 64, kRuns = 3;

}  // namespace

Timing TimeRuns(int runs, const std::function<double()>& run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) times.push_back(run());
  std::ranges::sort(times);
  const size_t middle = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  return {median, times.front(), times.back()};
}

void OnLane(const DeviceInfo& device, const std::function<void()>& f) {
  std::exception_ptr thrown;
  std::thread lane([&] {
    const std::vector<int>& cores = device.physical.cores;
    if (!cores.empty()) BindThisThread({cores.data(), 1});
    try {
      f();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  lane.join();
  if (thrown) std::rethrow_exception(thrown);
}

Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int runs) {
  Slot slot(device, history + count);
  slot.Read(history, vocab);
  return TimeRuns(runs, [&] {
    const auto start = Clock::now();
    slot.Read(count, vocab);
    const double ms = Since(start);
    device.Truncate(slot.id(), history);
    return ms;
  });
}

Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int runs) {
  std::vector<KvSegment> prefix;
  if (history > 0) prefix.push_back(device.Begin(history, {}, {})->Run(Tokens(history, vocab), 0));
  const auto chunk = Tokens(count, vocab);
  return TimeRuns(runs, [&] {
    const auto session = device.Begin(history + count, {}, prefix);
    const auto start = Clock::now();
    session->Run(chunk, history);
    return Since(start);
  });
}

Timing TimeStep(DecodeDevice& device, int vocab, int rows, int context, int runs) {
  std::vector<std::unique_ptr<Slot>> slots;
  std::vector<SlotId> ids;
  for (int i = 0; i < rows; ++i) {
    slots.push_back(std::make_unique<Slot>(device, context + runs + 1));
    slots.back()->Read(context, vocab);
    ids.push_back(slots.back()->id());
  }
  const std::vector<TokenId> tokens(size_t(rows), TokenId(vocab / 2));
  std::vector<int32_t> logits(static_cast<size_t>(rows));
  std::iota(logits.begin(), logits.end(), 0);
  const std::vector<SampleSpec> samples(static_cast<size_t>(rows));
  int position = context;
  return TimeRuns(runs, [&] {
    const std::vector<int32_t> pos(size_t(rows), position++);
    const auto start = Clock::now();
    device.Collect(device.Submit({{tokens, pos, ids, logits}, samples}));
    return Since(start);
  });
}

Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs) {
  PD_CHECK(segment.first() == 0);
  Slot slot(device, segment.count());
  return TimeRuns(runs, [&] {
    const auto start = Clock::now();
    device.Import(slot.id(), segment);
    const double ms = Since(start);
    device.Truncate(slot.id(), 0);
    return ms;
  });
}

namespace {

class Calibration {
 public:
  Calibration(PrefillDevice& unit, DecodeDevice& decode, const ModelSpec& spec,
              const CalibrationProgress& progress)
      : unit_(unit), decode_(decode), spec_(spec), progress_(progress) {
    // The Neural Engine's functions reach so far; a short context holds so much.
    history_ = std::min(kHistory, spec.max_context - kHistoryChunk - 1);
  }

  MachineCosts Run() {
    const DeviceInfo &unit = unit_.Info(), &decode = decode_.Info();
    PrefillCost cost;
    cost.device = unit.name;
    cost.own_lane = !Overlap(unit.physical, decode.physical);
    std::vector<KvSegment> segments;
    OnLane(unit, [&] { MeasureUnit(cost, segments); });
    OnLane(decode, [&] {
      MeasureDecode();
      MeasureHandoff(cost, segments);
    });
    if (cost.own_lane) MeasureSlowdown(cost);
    costs_.units.push_back(std::move(cost));
    return std::move(costs_);
  }

 private:
  void Step() {
    ++done_;
    if (progress_.show) progress_.show(done_, kSteps);
  }

  bool Fits(int first, int count) const {
    return first + count <= spec_.max_context && unit_.Reach(first) >= first + count;
  }

  void MeasureUnit(PrefillCost& cost, std::vector<KvSegment>& segments) {
    for (const int count : kLengths) {
      if (Fits(0, count))
        cost.chunk.emplace_back(count, TimePrefill(unit_, spec_.vocab, 0, count, kRuns).median_ms);
      Step();
    }
    if (cost.chunk.empty())
      throw Fail(ErrorKind::kUnsupported, "{}: takes no chunk of a length that is measured",
                 unit_.Info().name);
    const int chunk = cost.chunk.back().first, history = chunk * std::max(1, history_ / chunk);
    if (Fits(history, chunk) && chunk > 1)
      cost.history_ms = HistoryMs(chunk, history, cost.chunk.back().second);
    for (const int count : {cost.chunk.front().first, chunk})
      segments.push_back(unit_.Begin(count, {}, {})->Run(std::vector<TokenId>(size_t(count), 1), 0));
    Step();
  }

  // A device with fixed lengths computes its history in chunks too.
  double HistoryMs(int chunk, int history, double alone) {
    std::vector<KvSegment> prefix;
    const auto session = unit_.Begin(history, {}, {});
    for (int first = 0; first < history; first += chunk)
      prefix.push_back(session->Run(std::vector<TokenId>(size_t(chunk), 1), first));
    const Timing with = TimeRuns(kRuns, [&] {
      const auto later = unit_.Begin(history + chunk, {}, prefix);
      const auto start = Clock::now();
      later->Run(std::vector<TokenId>(size_t(chunk), 1), history);
      return Since(start);
    });
    return std::max(0.0, with.median_ms - alone) / (double(chunk) * history);
  }

  void MeasureDecode() {
    PrefillCost& direct = costs_.direct;
    direct.device = costs_.decode.device = decode_.Info().name;
    direct.own_lane = false;
    const int most = std::min(decode_.Info().max_rows, spec_.max_context);
    for (const int count : kLengths) {
      if (count <= most)
        direct.chunk.emplace_back(count, TimePrompt(decode_, spec_.vocab, 0, count, kRuns).median_ms);
      Step();
    }
    const double alone = At(direct.chunk, kHistoryChunk);
    const double with = TimePrompt(decode_, spec_.vocab, history_, kHistoryChunk, kRuns).median_ms;
    direct.history_ms = std::max(0.0, with - alone) / (double(kHistoryChunk) * history_);
    Step();
    for (const int rows : kRows) {
      if (rows <= most)
        costs_.decode.step.emplace_back(rows, TimeStep(decode_, spec_.vocab, rows, kContext, 7).median_ms);
      Step();
    }
    const double far = TimeStep(decode_, spec_.vocab, 1, history_, 7).median_ms;
    costs_.decode.context_ms = std::max(0.0, far - At(costs_.decode.step, 1)) / (history_ - kContext);
    for (auto& [rows, ms] : costs_.decode.step)
      ms = std::max(0.0, ms - costs_.decode.context_ms * rows * kContext);
    Step();
  }

  void MeasureHandoff(PrefillCost& cost, const std::vector<KvSegment>& segments) {
    const double small = TimeImport(decode_, segments[0], 5).median_ms;
    const double large = TimeImport(decode_, segments[1], 5).median_ms;
    const int more = segments[1].count() - segments[0].count();
    cost.handoff_token_ms = more > 0 ? std::max(0.0, large - small) / more : large / segments[1].count();
    cost.handoff_ms = std::max(0.0, small - cost.handoff_token_ms * segments[0].count());
    Step();
  }

  // Steps beside a unit that never rests.
  void MeasureSlowdown(PrefillCost& cost) {
    const int rows = std::min(4, decode_.Info().max_rows), chunk = cost.chunk.back().first;
    std::atomic<bool> stop = false;
    std::exception_ptr thrown;
    std::thread beside([&] {
      try {
        OnLane(unit_.Info(), [&] {
          const std::vector<TokenId> tokens(size_t(chunk), 1);
          while (!stop) unit_.Begin(chunk, {}, {})->Run(tokens, 0);
        });
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    double busy = 0;
    try {
      OnLane(decode_.Info(), [&] { busy = TimeStep(decode_, spec_.vocab, rows, kContext, 25).median_ms; });
    } catch (...) {
      thrown = std::current_exception();
    }
    stop = true;
    beside.join();
    if (thrown) std::rethrow_exception(thrown);
    cost.slowdown = std::max(1.0, busy / costs_.decode.StepMs(rows, kContext));
    Step();
  }

  static constexpr int kSteps = 2 * int(std::size(kLengths)) + int(std::size(kRows)) + 5;
  PrefillDevice& unit_;
  DecodeDevice& decode_;
  const ModelSpec& spec_;
  const CalibrationProgress& progress_;
  int history_ = 0, done_ = 0;
  MachineCosts costs_;
};

}  // namespace

MachineCosts Calibrate(PrefillDevice& unit, DecodeDevice& decode, const ModelSpec& spec,
                       const CalibrationProgress& progress) {
  return Calibration(unit, decode, spec, progress).Run();
}

}  // namespace pd
