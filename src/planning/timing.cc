#include "planning/timing.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <numeric>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/percentile.h"
#include "device/scoped_slot.h"

namespace pd {
namespace {

using Clock = std::chrono::steady_clock;

// A slot whose prompt can be computed, forgotten and computed again.
class TimedSlot {
 public:
  TimedSlot(DecodeDevice& device, int capacity, int vocab)
      : device_(device), capacity_(capacity), vocab_(vocab) {
    slot_.emplace(device, capacity);
  }
  SlotId id() const { return slot_->id(); }

  // Appends `count` tokens without logits, at most `chunk` at a time and no more than the device takes.
  void Read(int count, int chunk = INT_MAX) {
    const auto tokens = MeaninglessTokens(count, vocab_);
    const int most = std::min(chunk, device_.Info().max_rows);
    for (int done = 0; done < count; done += most) {
      const int n = std::min(most, count - done);
      std::vector<int32_t> pos(static_cast<size_t>(n));
      std::iota(pos.begin(), pos.end(), device_.Length(id()));
      const std::vector<SlotId> slots(size_t(n), id());
      device_.Collect(
          device_.Submit({{std::span(tokens).subspan(size_t(done), size_t(n)), pos, slots, {}}, {}}));
    }
  }

  // Back to the first `count` tokens. Where a windowed layer has dropped some of them, they are computed
  // again.
  void Rewind(int count) {
    try {
      device_.Truncate(id(), count);
    } catch (const Error&) {
      slot_->Close();
      slot_.emplace(device_, capacity_);
      Read(count);
    }
  }

  void Close() { slot_->Close(); }

 private:
  DecodeDevice& device_;
  int capacity_, vocab_;
  std::optional<ScopedSlot> slot_;
};

// Computes the tokens from position `first` on. Returns a segment for each chunk.
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

std::vector<TokenId> MeaninglessTokens(int count, int vocab) {
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) tokens[size_t(i)] = TokenId((i * 31 + 7) % vocab);
  return tokens;
}

Timing TimeRuns(const Repeat& repeat, const std::function<double()>& run) {
  Timing timing;
  timing.first_ms = run();
  std::vector<double> times;
  for (double ms = 0; int(times.size()) < repeat.least || ms < repeat.ms; ms += times.back())
    times.push_back(run());
  timing.median_ms = Median(times);
  const auto [least, most] = std::ranges::minmax(times);
  timing.least_ms = least, timing.most_ms = most;
  return timing;
}

Timing TimePrompt(DecodeDevice& device, int vocab, int history, int count, int chunk, const Repeat& repeat) {
  TimedSlot slot(device, history + count, vocab);
  slot.Read(history);
  const Timing timing = TimeRuns(repeat, [&] {
    const auto start = Clock::now();
    slot.Read(count, chunk);
    const double ms = MillisecondsSince(start);
    slot.Rewind(history);
    return ms;
  });
  slot.Close();
  return timing;
}

Timing TimePrefill(PrefillDevice& device, int vocab, int history, int count, int chunk,
                   const Repeat& repeat) {
  std::vector<KvSegment> prefix;
  if (history > 0) {
    const auto session = device.Begin(history, {}, {});
    prefix = RunChunks(*session, MeaninglessTokens(history, vocab), 0, chunk);
    session->Close();
  }
  const auto tokens = MeaninglessTokens(count, vocab);
  return TimeRuns(repeat, [&] {
    const auto session = device.Begin(history + count, {}, prefix);
    const auto start = Clock::now();
    RunChunks(*session, tokens, history, chunk);
    const double ms = MillisecondsSince(start);
    session->Close();
    return ms;
  });
}

bool TakesPrompt(const PrefillDevice& device, int count, int chunk) {
  for (int first = 0; first < count; first += chunk)
    if (device.Reach(first) < std::min(first + chunk, count)) return false;
  return true;
}

Timing TimeStep(DecodeDevice& device, int vocab, int rows, int context, int runs) {
  std::vector<TimedSlot> slots;
  std::vector<SlotId> ids;
  for (int i = 0; i < rows; ++i) {
    TimedSlot& slot = slots.emplace_back(device, context + runs + 1, vocab);
    slot.Read(context);
    ids.push_back(slot.id());
  }
  const std::vector<TokenId> tokens(size_t(rows), TokenId(vocab / 2));
  std::vector<int32_t> logits(static_cast<size_t>(rows));
  std::iota(logits.begin(), logits.end(), 0);
  const std::vector<SampleSpec> samples(static_cast<size_t>(rows));
  int position = context;
  const Timing timing = TimeRuns({runs}, [&] {
    const std::vector<int32_t> pos(size_t(rows), position++);
    const auto start = Clock::now();
    device.Collect(device.Submit({{tokens, pos, ids, logits}, samples}));
    return MillisecondsSince(start);
  });
  for (TimedSlot& slot : slots) slot.Close();
  return timing;
}

Timing TimeImport(DecodeDevice& device, const KvSegment& segment, int runs) {
  PD_CHECK(segment.first == 0);
  TimedSlot slot(device, segment.count, 1);
  const Timing timing = TimeRuns({runs}, [&] {
    const auto start = Clock::now();
    device.Import(slot.id(), segment);
    const double ms = MillisecondsSince(start);
    slot.Rewind(0);
    return ms;
  });
  slot.Close();
  return timing;
}

}  // namespace pd
