#include "planning/calibration.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <future>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/percentile.h"
#include "planning/timing.h"
#include "serving/lane_thread.h"

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;

// Lengths of chunks: the smallest, and around the lengths that functions of the Neural Engine have.
constexpr int kLengths[] = {1, 8, 16, 32, 64, 65, 128, 129, 256, 257, 384, 512};
// Where later chunks begin, and how long they are.
constexpr int kFirsts[] = {512, 1024, 2048, 4096}, kLaterLengths[] = {16, 128, 512};
constexpr int kRows[] = {1, 2, 4, 8, 16, 32};
constexpr int kContext = 64, kFarContext = 1024, kRuns = 3, kSteps = 7, kSlowdownSteps = 25;
constexpr Repeat kRepeat = {kRuns, 30};  // of chunks; short ones are the noisiest
// A slow device is measured at fewer points: after this time no other length, and after twice this time no
// other history.
constexpr double kBudgetMs = 7000;
constexpr int kLeastLengths = 4;
constexpr double kSlowCallsMs = 1000;  // limit of one function's runs together

// A history of `count` tokens, for devices whose time does not depend on its values.
KvSegment Zeros(const ModelSpec& spec, const KvIdentity& id, int count) {
  KvSegment zeros{.id = id, .count = count};
  zeros.layers.assign(spec.layers.size(), KvLayerView{.dtype = DType::kF16});
  std::byte* memory = AllocateCompact(zeros, spec);
  std::fill_n(memory, CompactBytes(zeros, spec), std::byte{0});
  return zeros;
}

class Calibration {
 public:
  Calibration(CalibrationDevices devices, const ModelSpec& spec, const CalibrationProgress& progress)
      : devices_(std::move(devices)), spec_(spec), progress_(progress) {
    std::vector<PhysicalDevice> physical;  // by lane
    LaneOf(devices_.decode->Info().physical, physical);
    for (const auto& unit : devices_.units) unit_lanes_.push_back(LaneOf(unit->Info().physical, physical));
    for (const PhysicalDevice& device : physical)
      lanes_.push_back(std::make_unique<LaneThread>(device, devices_.leave));
    constexpr int kChunks = int(std::size(kLengths) + std::size(kFirsts));
    total_ = kChunks + int(std::size(kRows)) + 1;
    for (const auto& unit : devices_.units) {
      const auto shapes = int(unit->Shapes().size());
      total_ += (shapes > 0 ? shapes : kChunks) + 2;
    }
  }

  // Devices end on their lanes.
  ~Calibration() {
    for (size_t i = 0; i < devices_.units.size(); ++i)
      UnitLane(i).Start([unit = std::move(devices_.units[i])]() mutable { unit.reset(); });
    DecodeLane().Start([decode = std::move(devices_.decode)]() mutable { decode.reset(); });
  }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  MachineCosts Run() {
    DecodeLane().Do([&] {
      MeasureDirect();
      MeasureSteps();
    });
    for (size_t i = 0; i < devices_.units.size(); ++i) MeasureUnit(i);
    return std::move(costs_);
  }

 private:
  LaneThread& DecodeLane() { return *lanes_[0]; }
  LaneThread& UnitLane(size_t unit) { return *lanes_[size_t(unit_lanes_[unit])]; }

  void Advance() {
    ++done_;
    if (progress_.show) progress_.show(done_, total_);
  }

  // Fills in cost.chunk and cost.later. `time` measures `count` tokens after `first`, where `takes` allows
  // it.
  void MeasureChunks(PrefillCost& cost, const std::function<bool(int first, int count)>& takes,
                     const std::function<double(int first, int count)>& time) {
    const auto start = Clock::now();
    // Every fourth length first: few lengths are measured of a slow device, and they must include long ones.
    constexpr size_t kEvery = 4;
    for (size_t offset = kEvery; offset-- > 0;)
      for (size_t i = offset; i < std::size(kLengths); i += kEvery) {
        const int count = kLengths[i];
        const bool enough = cost.chunk.size() >= kLeastLengths && MillisecondsSince(start) > kBudgetMs;
        if (!enough && takes(0, count)) {
          cost.chunk.emplace_back(count, time(0, count));
          std::ranges::sort(cost.chunk);
        }
        Advance();
      }
    NeverFalls(cost.chunk);
    if (cost.chunk.empty()) return;
    for (const int first : kFirsts) {
      PrefillCost::Later later{first, {}};
      for (const int count : kLaterLengths) {
        if (count > cost.chunk.back().first || !takes(first, count)) continue;
        if (MillisecondsSince(start) > 2 * kBudgetMs) break;
        later.ratio.emplace_back(count, time(first, count) / At(cost.chunk, count));
      }
      if (!later.ratio.empty()) cost.later.push_back(std::move(later));
      Advance();
    }
  }

  // More tokens never take less time: where they seem to, the difference is noise. Isotonic regression by
  // pooling adjacent violators: the rising curve with the least squared error.
  static void NeverFalls(Curve& curve) {
    struct Pool {
      double sum;
      int count;
      double mean() const { return sum / count; }
    };
    std::vector<Pool> pools;
    for (const auto& [count, ms] : curve) {
      Pool last = {ms, 1};
      for (; !pools.empty() && pools.back().mean() > last.mean(); pools.pop_back())
        last = {pools.back().sum + last.sum, pools.back().count + last.count};
      pools.push_back(last);
    }
    auto point = curve.begin();
    for (const Pool& pool : pools)
      for (int i = 0; i < pool.count; ++i, ++point) point->second = pool.mean();
  }

  void MeasureDirect() {
    PrefillCost& direct = costs_.direct;
    DecodeDevice& decode = *devices_.decode;
    direct.device = costs_.decode.device = decode.Info().name;
    direct.lane = 0;
    MeasureChunks(
        direct,
        [&](int first, int count) {
          return count <= decode.Info().max_rows && first + count <= spec_.max_context;
        },
        [&](int first, int count) {
          return TimePrompt(decode, spec_.vocab, first, count, INT_MAX, kRepeat).median_ms;
        });
  }

  void MeasureSteps() {
    DecodeDevice& decode = *devices_.decode;
    const int far = std::min(kFarContext, spec_.max_context - kSteps - 2), near = std::min(kContext, far / 2);
    const auto time = [&](int rows, int context) {
      return TimeStep(decode, spec_.vocab, rows, context, kSteps).median_ms;
    };
    for (const int rows : kRows) {
      if (rows <= decode.Info().max_rows) costs_.decode.step.emplace_back(rows, time(rows, near));
      Advance();
    }
    NeverFalls(costs_.decode.step);
    costs_.decode.context_ms =
        std::max(0.0, time(1, far) - costs_.decode.step.front().second) / std::max(1, far - near);
    for (auto& [rows, ms] : costs_.decode.step)
      ms = std::max(0.0, ms - costs_.decode.context_ms * rows * near);
    Advance();
  }

  void MeasureUnit(size_t index) {
    PrefillDevice& unit = *devices_.units[index];
    PrefillCost cost;
    cost.device = unit.Info().name;
    cost.lane = unit_lanes_[index];
    std::vector<KvSegment> segments;
    UnitLane(index).Do([&] {
      if (!unit.Shapes().empty()) {
        MeasureCalls(cost, unit);
      } else {
        MeasureChunks(cost, unit);
      }
      const Curve chunks = cost.FirstChunks();
      if (chunks.empty())
        throw Fail(ErrorKind::kUnsupported, "{}: takes no chunk of a length that is measured", cost.device);
      for (const int count : {chunks.front().first, chunks.back().first})
        segments.push_back(RunChunk(unit, MeaninglessTokens(count, spec_.vocab)));
    });
    DecodeLane().Do([&] { MeasureHandoff(cost, segments); });
    segments.clear();
    Advance();
    if (cost.own_lane()) MeasureSlowdown(cost, unit, UnitLane(index));
    Advance();
    costs_.units.push_back(std::move(cost));
  }

  static KvSegment RunChunk(PrefillDevice& unit, std::span<const TokenId> tokens) {
    const auto session = unit.Begin(int(tokens.size()), {}, {});
    KvSegment segment = session->Run(tokens, 0);
    session->Close();
    return segment;
  }

  void MeasureChunks(PrefillCost& cost, PrefillDevice& unit) {
    const auto takes = [&](int first, int count) {
      return first + count <= spec_.max_context && unit.Reach(first) >= first + count &&
             TakesPrompt(unit, first, kLengths[std::size(kLengths) - 1]);
    };
    MeasureChunks(cost, takes, [&](int first, int count) {
      return TimePrefill(unit, spec_.vocab, first, count,
                         std::max(count, cost.chunk.empty() ? 0 : cost.chunk.back().first), kRepeat)
          .median_ms;
    });
  }

  // Each function by itself, with the longest history that it takes. Slow functions run once, after the run
  // that loads them.
  void MeasureCalls(PrefillCost& cost, PrefillDevice& unit) {
    for (const PrefillShape& shape : unit.Shapes()) {
      unit.SetCallCost([&](const PrefillShape& other) { return other == shape ? 0.0 : 1.0; });
      const int first = std::min(shape.history, spec_.max_context - 1);
      const auto tokens = MeaninglessTokens(std::min(shape.tokens, spec_.max_context - first), spec_.vocab);
      std::vector<KvSegment> past;
      if (first > 0) past.push_back(Zeros(spec_, unit.Info().kv_id, first));
      std::vector<double> times;
      double spent = 0;
      for (int run = 0; run <= kRuns && (run <= 1 || spent < kSlowCallsMs); ++run) {
        const auto session = unit.Begin(first + int(tokens.size()), {}, past);
        const auto start = Clock::now();
        session->Run(tokens, first);
        const double ms = MillisecondsSince(start);
        session->Close();
        if (run > 0) times.push_back(ms), spent += ms;
      }
      cost.calls.push_back({shape, Median(std::move(times))});
      Advance();
    }
    unit.SetCallCost(cost.CostOfCalls());
  }

  void MeasureHandoff(PrefillCost& cost, const std::vector<KvSegment>& segments) {
    const double small = TimeImport(*devices_.decode, segments[0], 5).median_ms;
    const double large = TimeImport(*devices_.decode, segments[1], 5).median_ms;
    const int more = segments[1].count - segments[0].count;
    cost.handoff_token_ms = more > 0 ? std::max(0.0, large - small) / more : large / segments[1].count;
    cost.handoff_ms = std::max(0.0, small - cost.handoff_token_ms * segments[0].count);
  }

  // Compares decode steps beside a busy unit with steps beside an idle one.
  void MeasureSlowdown(PrefillCost& cost, PrefillDevice& unit, LaneThread& lane) {
    const int rows = std::min(4, devices_.decode->Info().max_rows), chunk = cost.FirstChunks().back().first;
    const auto steps = [&] {
      double ms = 0;
      const int context = std::min(kContext, spec_.max_context - kSlowdownSteps - 2);
      DecodeLane().Do(
          [&] { ms = TimeStep(*devices_.decode, spec_.vocab, rows, context, kSlowdownSteps).median_ms; });
      return ms;
    };
    const double alone = steps();
    std::atomic<bool> stop = false;
    std::future<void> beside = lane.Start([&] {
      const auto tokens = MeaninglessTokens(chunk, spec_.vocab);
      while (!stop) RunChunk(unit, tokens);
    });
    double busy = 0;
    try {
      busy = steps();
    } catch (...) {
      stop = true;
      beside.wait();
      throw;
    }
    stop = true;
    beside.get();
    cost.slowdown = std::max(1.0, busy / alone);
  }

  CalibrationDevices devices_;
  const ModelSpec& spec_;
  const CalibrationProgress& progress_;
  std::vector<LaneId> unit_lanes_;  // by unit; the decode device's lane is 0
  std::vector<std::unique_ptr<LaneThread>> lanes_;
  int done_ = 0, total_ = 0;
  MachineCosts costs_;
};

}  // namespace

MachineCosts Calibrate(CalibrationDevices devices, const ModelSpec& spec,
                       const CalibrationProgress& progress) {
  return Calibration(std::move(devices), spec, progress).Run();
}

}  // namespace pd
