// What the engine sees of a device: tokens in, tokens out, KV segments across. Called once per chunk or step.
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

// In Rows::ids of a Step: the token that this row's slot sampled last, which may not have reached the host
// yet.
inline constexpr TokenId kLastSampled = -1;

using StepId = uint64_t;

// Rows to compute, and for each entry of rows.logits how to choose its token (sample.size() ==
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

// The hardware behind a device.
struct PhysicalDevice {
  enum class Kind : uint8_t { kCpu, kGpu, kNeuralEngine } kind = Kind::kCpu;
  int index = 0;
  std::vector<int> cores = {};  // of a CPU: those that its threads are bound to; empty: any
  bool operator==(const PhysicalDevice&) const = default;
};

// Whether work on one delays the other.
inline bool Overlap(const PhysicalDevice& a, const PhysicalDevice& b) {
  if (a.kind != b.kind || a.index != b.index) return false;
  const auto shared = [&](int core) { return std::ranges::find(b.cores, core) != b.cores.end(); };
  return a.cores.empty() || b.cores.empty() || std::ranges::any_of(a.cores, shared);
}

struct DeviceInfo {
  std::string name;  // "cpu"
  PhysicalDevice physical;
  int max_rows = 0;          // limit on the rows of one Step
  bool runs_ahead = false;   // Submit may return before the step is computed; else it is computed in Submit
  MemoryFormat memory = {};  // of its slots or sessions: MemoryBytes gives the size of a sequence
  bool even_slots = false;   // every slot takes the room of the longest, and none shrinks while one is open
  size_t weight_bytes = 0;   // read by one decode step
  KvIdentity kv_id = {};     // of its segments, with the default rope variant; LocalDevice fills it in
};

// Used by one thread (its lane). All methods throw Error: kBadRequest for a caller's mistake, kOutOfMemory,
// kDevice. After a throw the slots keep what they held before the call.
class DecodeDevice {
 public:
  virtual ~DecodeDevice() = default;
  virtual const DeviceInfo& Info() const = 0;

  // A slot for a sequence of at most `capacity` tokens.
  virtual SlotId Open(int capacity, const Variant& variant) = 0;
  virtual void Close(SlotId slot) = 0;
  virtual int Length(SlotId slot) const = 0;  // tokens held, including those of uncollected steps

  // At most two steps may be uncollected; they finish in order. Spans in `step` need to live only until
  // Submit returns.
  virtual StepId Submit(const Step& step) = 0;
  virtual std::vector<SampledRow> Collect(StepId id) = 0;  // one per entry of rows.logits, in order; waits
  virtual Logits RunLogits(const Rows& rows) = 0;  // logits instead of samples; no step may be uncollected

  virtual void Import(SlotId slot, const KvSegment& segment) = 0;   // the segment starts at Length(slot)
  virtual KvSegment Export(SlotId slot, int first, int count) = 0;  // rotated keys
  // Forgets all but the first `count` tokens; count must be at least RollbackFloor(slot). Keys and values can
  // be cut anywhere, a layer's state only where it was kept.
  virtual void Truncate(SlotId slot, int count) = 0;
  virtual int RollbackFloor(SlotId slot) const = 0;
};

// Computes the KV of one prompt, chunk after chunk.
class PrefillSession {
 public:
  virtual ~PrefillSession() = default;
  // The KV of `chunk`, which starts at position `first`: where the prefix or the previous chunk ended.
  virtual KvSegment Run(std::span<const TokenId> chunk, int first) = 0;
  // Ends the session; must be the last call. May throw; the destructor ends the session without reporting
  // errors.
  virtual void Close() {}
};

class PrefillDevice {
 public:
  virtual ~PrefillDevice() = default;
  virtual const DeviceInfo& Info() const = 0;
  // Why this device cannot prefill sequences of this variant; nullopt when it can.
  virtual std::optional<std::string> Refuses(const Variant& variant) const = 0;
  // The fixed-shape functions that compute chunks; empty: a chunk's time follows its number of tokens.
  virtual std::vector<PrefillShape> Shapes() const { return {}; }
  // Sets the call cost by which functions are chosen for a chunk, as in PlanCalls, instead of the device's
  // own estimate. Not while a session runs.
  virtual void SetCallCost(CallCost) {}  // NOLINT(performance-unnecessary-value-param): others keep it
  // The furthest end of a chunk that starts at token `first`; `first` itself when none can start there. The
  // decode device computes the rest. Constant for a device; any thread may call it.
  virtual int Reach(int /*first*/) const { return INT_MAX; }
  // A session for a prompt of at most `capacity` tokens that starts with `prefix`, given in order of
  // position. It must not outlive the device.
  virtual std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                                std::span<const KvSegment> prefix) = 0;
};

}  // namespace pd
