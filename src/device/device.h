// What the engine sees of a device: tokens in, tokens out, KV segments across. Called once a chunk or a step.
#pragma once
#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/chunk_plan.h"
#include "kv/segment.h"
#include "model/rows.h"
#include "sample/sampler.h"

namespace pd {

// In Rows::ids of a Step: the token this row's slot sampled last, perhaps still on its way.
inline constexpr TokenId kLastSampled = -1;

using StepId = uint64_t;

// Rows to compute, and for each entry of rows.logits how its token is chosen (sample.size() ==
// rows.logits.size()).
struct Step {
  Rows rows;
  std::span<const SampleSpec> sample;
};

struct SampledRow {
  SlotId slot = 0;
  Sampled sampled;
};

struct Logits {
  int rows = 0, vocab = 0;
  std::vector<float> values;  // [rows, vocab]
};

// The silicon behind a device.
struct PhysicalDevice {
  enum class Kind : uint8_t { kCpu, kGpu, kNeuralEngine } kind = Kind::kCpu;
  int index = 0;
  std::vector<int> cores = {};  // of a CPU, that its threads are bound to; empty: any
  bool operator==(const PhysicalDevice&) const = default;
};

// Whether work on one keeps the other waiting.
inline bool Overlap(const PhysicalDevice& a, const PhysicalDevice& b) {
  if (a.kind != b.kind || a.index != b.index) return false;
  const auto shared = [&](int core) { return std::ranges::find(b.cores, core) != b.cores.end(); };
  return a.cores.empty() || b.cores.empty() || std::ranges::any_of(a.cores, shared);
}

struct DeviceInfo {
  std::string name;  // "cpu"
  PhysicalDevice physical;
  int max_rows = 0;          // rows of one Step at most
  bool runs_ahead = false;   // Submit may return before the step is computed; else it is computed in Submit
  MemoryFormat memory = {};  // of its slots or sessions: MemoryBytes says what a sequence takes
  bool even_slots = false;   // each slot takes the room of the longest, and none shrinks while one is open
  size_t weight_bytes = 0;   // read by one decode step
  KvIdentity kv_id = {};     // of its segments, with the default rope variant; LocalDevice fills it in
};

// Owned and called by one thread (its lane). All throw Error: kBadRequest for a caller's mistake,
// kOutOfMemory, kDevice. After a throw the slots keep what they held before the call.
class DecodeDevice {
 public:
  virtual ~DecodeDevice() = default;
  virtual const DeviceInfo& Info() const = 0;

  // A slot for a sequence of at most `capacity` tokens.
  virtual SlotId Open(int capacity, const Variant& variant) = 0;
  virtual void Close(SlotId slot) = 0;
  virtual int Length(SlotId slot) const = 0;  // tokens held, those of uncollected steps included

  // At most two steps uncollected; they finish in order. Spans in `step` need to live only until Submit
  // returns.
  virtual StepId Submit(const Step& step) = 0;
  virtual std::vector<SampledRow> Collect(
      StepId id) = 0;                              // one for each entry of rows.logits, in order; waits
  virtual Logits RunLogits(const Rows& rows) = 0;  // instead of sampling; no step may be uncollected

  virtual void Import(SlotId slot, const KvSegment& segment) = 0;   // the segment starts at Length(slot)
  virtual KvSegment Export(SlotId slot, int first, int count) = 0;  // rotated keys
  // Forgets all but the first `count` tokens, which are at least RollbackFloor(slot): keys and values can be
  // cut anywhere, a layer's state only where it was kept.
  virtual void Truncate(SlotId slot, int count) = 0;
  virtual int RollbackFloor(SlotId slot) const = 0;
};

// Computes the KV of one prompt, chunk after chunk.
class PrefillSession {
 public:
  virtual ~PrefillSession() = default;
  // KV of `chunk`, which starts at position `first`: where the prefix or the last chunk ended.
  virtual KvSegment Run(std::span<const TokenId> chunk, int first) = 0;
  // Ends the session; the last call. May throw, unlike the destructor, which ends it without a report.
  virtual void Close() {}
};

class PrefillDevice {
 public:
  virtual ~PrefillDevice() = default;
  virtual const DeviceInfo& Info() const = 0;
  // Why this device cannot prefill sequences of this variant; nothing when it can.
  virtual std::optional<std::string> Refuses(const Variant& variant) const = 0;
  // The functions that chunks are computed by, where they have fixed shapes; empty: the time of a chunk
  // follows its tokens.
  virtual std::vector<PrefillShape> Shapes() const { return {}; }
  // By what calls of them cost the functions for a chunk are chosen, as PlanCalls does, instead of the
  // device's own estimate. Not while a session runs.
  virtual void SetCallCost(CallCost) {}  // NOLINT(performance-unnecessary-value-param): others keep it
  // Where a chunk that starts at token `first` must end at the latest; `first` itself when none can start
  // there. What follows is the decode device's. Always the same for one device; any thread may ask.
  virtual int Reach(int /*first*/) const { return INT_MAX; }
  // A prompt of at most `capacity` tokens that starts with what `prefix` holds, in order of position. The
  // session must not outlive the device.
  virtual std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                                std::span<const KvSegment> prefix) = 0;
};

}  // namespace pd
