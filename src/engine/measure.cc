#include "engine/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <memory>
#include <numeric>

#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/percentile.h"

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;

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

  // Rows without logits, at most `chunk` at a time and as many as the device takes.
  void Read(int count, int vocab, int chunk = INT_MAX) {
    const auto tokens = Tokens(count, vocab);
    const int most = std::min(chunk, device_.Info().max_rows);
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

// To its first `count` tokens. A windowed layer may have forgotten them: then they are read again.
void Rewind(DecodeDevice& device, std::unique_ptr<Slot>& slot, int capacity, int count, int vocab) {
  try {
    device.Truncate(slot->id(), count);
  } catch (const Error&) {
    slot.reset();
    slot = std::make_unique<Slot>(device, capacity);
    slot->Read(count, vocab);
  }
}

// Segments of the tokens from `first` on.
std::vector<KvSegment> RunChunks(PrefillSession& session, std::span<const TokenId> tokens, int first,
                                 int chunk) {
  std::vector<KvSegment> segments;
  for (size_t done = 0; done < tokens.size();) {
    const size_t n = std::min(size_t(chunk), tokens.size() - done);
    segments.push_back(session.Run(tokens.subspan(done, n), first + int(done)));
    done += n;
  }
  return segments;
}

}  // namespace

DeviceThread::DeviceThread(const PhysicalDevice& device, std::function<void()> last)
    : thread_([this, cores = device.cores, last = std::move(last)] {
        if (!cores.empty()) BindThisThread({cores.data(), 1});
        while (auto task = tasks_.Pop()) (*task)();
        if (last) last();
      }) {}

DeviceThread::~DeviceThread() {
  tasks_.Push(std::nullopt);
  thread_.join();
}

std::future<void> DeviceThread::Start(std::function<void()> f) {
  std::packaged_task<void()> task(std::move(f));
  std::future<void> done = task.get_future();
  tasks_.Push(std::move(task));
  return done;
}

Timing TimeRuns(const Repeat& repeat, const std::function<double()>& run) {
  Timing timing;
  timing.first_ms = run();
  std::vector<double> times;
  for (double ms = 0; int(times.size()) < repeat.least || ms < repeat.ms; ms += times.back())
    times.push_back(run());
  std::ranges::sort(times);
  timing.median_ms = Percentile(times, 50);
  timing.least_ms = times.front(), timing.most_ms = times.back();
  return timing;
}

Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat) {
  auto slot = std::make_unique<Slot>(device, history + count);
  slot->Read(history, vocab);
  return TimeRuns(repeat, [&] {
    const auto start = Clock::now();
    slot->Read(count, vocab, chunk);
    const double ms = MillisecondsSince(start);
    Rewind(device, slot, history + count, history, vocab);
    return ms;
  });
}

Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int chunk,
                   const Repeat& repeat) {
  std::vector<KvSegment> prefix;
  if (history > 0) prefix = RunChunks(*device.Begin(history, {}, {}), Tokens(history, vocab), 0, chunk);
  const auto tokens = Tokens(count, vocab);
  return TimeRuns(repeat, [&] {
    const auto session = device.Begin(history + count, {}, prefix);
    const auto start = Clock::now();
    RunChunks(*session, tokens, history, chunk);
    return MillisecondsSince(start);
  });
}

bool TakesPrompt(const PrefillDevice& device, int count, int chunk) {
  for (int first = 0; first < count; first += chunk)
    if (device.Reach(first) < std::min(first + chunk, count)) return false;
  return true;
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
  return TimeRuns({runs}, [&] {
    const std::vector<int32_t> pos(size_t(rows), position++);
    const auto start = Clock::now();
    device.Collect(device.Submit({{tokens, pos, ids, logits}, samples}));
    return MillisecondsSince(start);
  });
}

Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs) {
  PD_CHECK(segment.first() == 0);
  auto slot = std::make_unique<Slot>(device, segment.count());
  return TimeRuns({runs}, [&] {
    const auto start = Clock::now();
    device.Import(slot->id(), segment);
    const double ms = MillisecondsSince(start);
    Rewind(device, slot, segment.count(), 0, 1);
    return ms;
  });
}

namespace {

// Lengths of chunks: around the lengths that functions of the Neural Engine have, and the smallest.
constexpr int kLengths[] = {1, 8, 16, 32, 64, 65, 128, 129, 256, 257, 384, 512};
// Where later chunks begin, and how long they are.
constexpr int kFirsts[] = {512, 1024, 2048, 4096}, kLaterLengths[] = {16, 128, 512};
constexpr int kRows[] = {1, 2, 4, 8, 16, 32};
constexpr int kContext = 64, kFarContext = 1024, kRuns = 3, kSteps = 7, kSlowdownSteps = 25;
constexpr Repeat kRepeat = {kRuns, 30};  // of chunks; short ones are the noisiest
// A slow device is asked less: no further length once so much has passed, no further history after twice as
// much.
constexpr double kBudgetMs = 7000;
constexpr int kLeastLengths = 4;
constexpr double kSlowCallsMs = 1000;  // of one function together; then no more

// A history of `count` tokens, for devices whose time does not depend on what is in it.
KvSegment Zeros(const ModelSpec& spec, const KvIdentity& id, int count) {
  KvSegment zeros{id, KeyForm::kRotated, {}, nullptr};
  zeros.layers.assign(spec.layers.size(), {0, count, nullptr, nullptr, DType::kF16});
  std::byte* memory = AllocateCompact(zeros, spec);
  std::fill_n(memory, CompactBytes(zeros.layers, spec), std::byte{0});
  return zeros;
}

class Calibration {
 public:
  Calibration(CalibrationDevices devices, const ModelSpec& spec, const CalibrationProgress& progress)
      : devices_(std::move(devices)), spec_(spec), progress_(progress) {
    decode_thread_ = ThreadFor(devices_.decode->Info().physical);
    for (const auto& unit : devices_.units) unit_threads_.push_back(ThreadFor(unit->Info().physical));
    constexpr int kChunks = int(std::size(kLengths) + std::size(kFirsts));
    total_ = kChunks + int(std::size(kRows)) + 1;
    for (const auto& unit : devices_.units) {
      const auto shapes = int(unit->Shapes().size());
      total_ += (shapes > 0 ? shapes : kChunks) + 2;
    }
  }

  // Devices end where they lived.
  ~Calibration() {
    for (size_t i = 0; i < devices_.units.size(); ++i)
      unit_threads_[i]->Do([&] { devices_.units[i].reset(); });
    decode_thread_->Do([&] { devices_.decode.reset(); });
  }
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  MachineCosts Run() {
    decode_thread_->Do([&] {
      MeasureDirect();
      MeasureSteps();
    });
    for (size_t i = 0; i < devices_.units.size(); ++i) MeasureUnit(i);
    return std::move(costs_);
  }

 private:
  void Step() {
    ++done_;
    if (progress_.show) progress_.show(done_, total_);
  }

  // The thread of what this device keeps waiting, or a new one.
  DeviceThread* ThreadFor(const PhysicalDevice& device) {
    for (size_t i = 0; i < physical_.size(); ++i)
      if (Overlap(physical_[i], device)) return threads_[i].get();
    physical_.push_back(device);
    threads_.push_back(std::make_unique<DeviceThread>(device, devices_.leave));
    return threads_.back().get();
  }
  int LaneOf(const DeviceThread* thread) const {
    for (size_t i = 0; i < threads_.size(); ++i)
      if (threads_[i].get() == thread) return int(i);
    return 0;
  }

  // Fills in chunk and later. `time` measures `count` tokens after `first`; `takes` says whether it can.
  void MeasureChunks(PrefillCost& cost, const std::function<bool(int first, int count)>& takes,
                     const std::function<double(int first, int count)>& time) {
    const auto start = Clock::now();
    // Every fourth length first: of a slow device few are measured, and they must tell of long prompts too.
    constexpr size_t kEvery = 4;
    for (size_t offset = kEvery; offset-- > 0;)
      for (size_t i = offset; i < std::size(kLengths); i += kEvery) {
        const int count = kLengths[i];
        const bool enough = cost.chunk.size() >= kLeastLengths && MillisecondsSince(start) > kBudgetMs;
        if (!enough && takes(0, count)) {
          cost.chunk.emplace_back(count, time(0, count));
          std::ranges::sort(cost.chunk);
        }
        Step();
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
      Step();
    }
  }

  // More never takes less: where it seems so, the difference is noise, and all of them take their mean (the
  // pool of adjacent violators: the rising curve next to what was measured, by squares).
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
      Step();
    }
    NeverFalls(costs_.decode.step);
    costs_.decode.context_ms =
        std::max(0.0, time(1, far) - costs_.decode.step.front().second) / std::max(1, far - near);
    for (auto& [rows, ms] : costs_.decode.step)
      ms = std::max(0.0, ms - costs_.decode.context_ms * rows * near);
    Step();
  }

  void MeasureUnit(size_t index) {
    PrefillDevice& unit = *devices_.units[index];
    DeviceThread& thread = *unit_threads_[index];
    PrefillCost cost;
    cost.device = unit.Info().name;
    cost.lane = LaneOf(&thread);
    std::vector<KvSegment> segments;
    thread.Do([&] {
      if (!unit.Shapes().empty()) {
        MeasureCalls(cost, unit);
      } else {
        MeasureChunks(cost, unit);
      }
      const Curve chunks = cost.FirstChunks();
      if (chunks.empty())
        throw Fail(ErrorKind::kUnsupported, "{}: takes no chunk of a length that is measured", cost.device);
      for (const int count : {chunks.front().first, chunks.back().first})
        segments.push_back(unit.Begin(count, {}, {})->Run(Tokens(count, spec_.vocab), 0));
    });
    decode_thread_->Do([&] { MeasureHandoff(cost, segments); });
    segments.clear();
    Step();
    if (cost.lane != 0) MeasureSlowdown(cost, unit, thread);
    Step();
    costs_.units.push_back(std::move(cost));
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

  // Each function by itself, with as much before it as it takes. Slow ones are run once, after a run that
  // opens them.
  void MeasureCalls(PrefillCost& cost, PrefillDevice& unit) {
    for (const PrefillShape& shape : unit.Shapes()) {
      unit.SetCallCost([&](const PrefillShape& other) { return other == shape ? 0.0 : 1.0; });
      const int first = std::min(shape.history, spec_.max_context - 1);
      const auto tokens = Tokens(std::min(shape.tokens, spec_.max_context - first), spec_.vocab);
      std::vector<KvSegment> past;
      if (first > 0) past.push_back(Zeros(spec_, unit.Info().kv_id, first));
      std::vector<double> times;
      double spent = 0;
      for (int run = 0; run <= kRuns && (run <= 1 || spent < kSlowCallsMs); ++run) {
        const auto session = unit.Begin(first + int(tokens.size()), {}, past);
        const auto start = Clock::now();
        session->Run(tokens, first);
        const double ms = MillisecondsSince(start);
        if (run > 0) times.push_back(ms), spent += ms;
      }
      std::ranges::sort(times);
      cost.calls.push_back({shape, Percentile(times, 50)});
      Step();
    }
    unit.SetCallCost(cost.CostOfCalls());
  }

  void MeasureHandoff(PrefillCost& cost, const std::vector<KvSegment>& segments) {
    const double small = TimeImport(*devices_.decode, segments[0], 5).median_ms;
    const double large = TimeImport(*devices_.decode, segments[1], 5).median_ms;
    const int more = segments[1].count() - segments[0].count();
    cost.handoff_token_ms = more > 0 ? std::max(0.0, large - small) / more : large / segments[1].count();
    cost.handoff_ms = std::max(0.0, small - cost.handoff_token_ms * segments[0].count());
  }

  // Steps beside a unit that never rests, against steps beside one that does.
  void MeasureSlowdown(PrefillCost& cost, PrefillDevice& unit, DeviceThread& thread) {
    const int rows = std::min(4, devices_.decode->Info().max_rows), chunk = cost.FirstChunks().back().first;
    const auto steps = [&] {
      double ms = 0;
      const int context = std::min(kContext, spec_.max_context - kSlowdownSteps - 2);
      decode_thread_->Do(
          [&] { ms = TimeStep(*devices_.decode, spec_.vocab, rows, context, kSlowdownSteps).median_ms; });
      return ms;
    };
    const double alone = steps();
    std::atomic<bool> stop = false;
    std::future<void> beside = thread.Start([&] {
      const auto tokens = Tokens(chunk, spec_.vocab);
      while (!stop) unit.Begin(chunk, {}, {})->Run(tokens, 0);
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
  std::vector<PhysicalDevice> physical_;  // of threads_; the decode device's first
  std::vector<std::unique_ptr<DeviceThread>> threads_;
  DeviceThread* decode_thread_ = nullptr;
  std::vector<DeviceThread*> unit_threads_;  // by unit
  int done_ = 0, total_ = 0;
  MachineCosts costs_;
};

}  // namespace

MachineCosts Calibrate(CalibrationDevices devices, const ModelSpec& spec,
                       const CalibrationProgress& progress) {
  return Calibration(std::move(devices), spec, progress).Run();
}

}  // namespace pd
