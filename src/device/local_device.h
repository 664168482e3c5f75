// Makes a decode device of a backend's operations and Forward.
#pragma once
#include <algorithm>
#include <concepts>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "device/device.h"
#include "model/forward.h"

namespace pd {

// What a backend adds to its Ops to become a device. It owns weights and KV memory, and has refused models
// that it cannot compute (model/support.h). LocalDevice validates slots, so a backend may PD_CHECK what it
// guarantees: open slots, gapless positions, lengths within capacity.
template <class B>
concept Backend = Ops<B> && requires(B b, const B& c, typename B::Tensor t, SlotId slot, const Rows& rows,
                                     const KvSegment& segment) {
  { c.Spec() } -> std::same_as<const ModelSpec&>;
  { c.ModelWeights() } -> std::same_as<const Weights<typename B::Weight>&>;
  { c.Identity() } -> std::same_as<KvIdentity>;          // with the default variant
  { b.OpenSlot(1, Variant{}) } -> std::same_as<SlotId>;  // throws kOutOfMemory
  { b.CloseSlot(slot) };
  { b.BeginRows(rows) };                                    // before each Forward: room for rows.count() rows
  { b.TruncateSlot(slot, 0) };                              // tokens kept
  { b.ImportRows(slot, segment) };                          // raw keys are rotated here
  { b.ExportRows(slot, 0, 1) } -> std::same_as<KvSegment>;  // id is filled in by the caller
  { b.ReadLogits(t) } -> std::convertible_to<std::span<const float>>;  // [rows, vocab], valid until BeginRows
};

// Optional members, all or none, of a backend that samples on its device and runs ahead of the host. Ids may
// then stay kLastSampled throughout Forward: the backend knows what each slot sampled last.
template <class B>
concept RunsAhead =
    Backend<B> && requires(B b, const std::optional<typename B::Tensor>& logits, const Rows& rows,
                           std::span<const SampleSpec> sample, typename B::Running running) {
      // After each Forward: starts the step; without logits if only keys and values are wanted.
      { b.Start(rows, logits, sample) } -> std::same_as<typename B::Running>;
      { b.Finish(std::move(running)) } -> std::same_as<std::vector<Sampled>>;  // waits for it
    };

template <class B>
struct StepResult {
  using Type = std::vector<Sampled>;
};
template <RunsAhead B>
struct StepResult<B> {
  using Type = typename B::Running;
};

template <Backend B>
class LocalDevice final : public DecodeDevice {
 public:
  LocalDevice(B backend, DeviceInfo info) : backend_(std::move(backend)), info_(std::move(info)) {
    info_.kv_id = backend_.Identity();
  }

  const DeviceInfo& Info() const override { return info_; }

  SlotId Open(int capacity, const Variant& variant) override {
    if (capacity < 1 || capacity > backend_.Spec().max_context)
      throw Fail(ErrorKind::kBadRequest, "{}: a sequence of {} tokens does not fit the model's context of {}",
                 info_.name, capacity, backend_.Spec().max_context);
    const SlotId slot = backend_.OpenSlot(capacity, variant);
    Slot& s = slots_[slot] = Slot();
    s.capacity = capacity;
    s.variant = variant;
    return slot;
  }

  void Close(SlotId slot) override {
    Get(slot);
    backend_.CloseSlot(slot);
    slots_.erase(slot);
  }

  int Length(SlotId slot) const override { return Get(slot).length; }

  StepId Submit(const Step& step) override {
    if (step.sample.size() != step.rows.logits.size())
      throw Fail(ErrorKind::kBadRequest, "{}: a step needs one sampling rule for each row of logits",
                 info_.name);
    if (results_.size() >= 2)
      throw Fail(ErrorKind::kBadRequest, "{}: two steps are uncollected; collect one first", info_.name);
    for (const SampleSpec& sample : step.sample) CheckSampleSpec(sample, backend_.Spec().vocab);
    const Rows rows = Resolve(step.rows);
    Uncollected step_result{next_step_, {}, Compute(rows, step.rows.ids, step.sample)};
    for (int32_t row : rows.logits) step_result.slots.push_back(rows.slot[size_t(row)]);
    Commit(rows);
    results_.push_back(std::move(step_result));
    return next_step_++;
  }

  std::vector<SampledRow> Collect(StepId id) override {
    if (results_.empty() || results_.front().id != id)
      throw Fail(ErrorKind::kBadRequest, "{}: step {} is not the oldest uncollected one", info_.name, id);
    Uncollected step = std::move(results_.front());
    results_.pop_front();
    std::vector<Sampled> sampled;
    if constexpr (RunsAhead<B>) {
      sampled = backend_.Finish(std::move(step.result));
    } else {
      sampled = std::move(step.result);
    }
    std::vector<SampledRow> rows;
    for (size_t i = 0; i < sampled.size(); ++i) rows.push_back({step.slots[i], std::move(sampled[i])});
    return rows;
  }

  Logits RunLogits(const Rows& asked) override {
    if (!results_.empty())
      throw Fail(ErrorKind::kBadRequest, "{}: a step is uncollected; collect it first", info_.name);
    const Rows rows = Resolve(asked);
    const auto logits = RunForward(rows);
    std::span<const float> values;
    if (logits) {
      values = backend_.ReadLogits(*logits);
    } else if constexpr (RunsAhead<B>) {
      backend_.Finish(backend_.Start(rows, logits, {}));
    }
    Commit(rows);
    return {int(rows.logits.size()), backend_.Spec().vocab, {values.begin(), values.end()}};
  }

  void Import(SlotId slot, const KvSegment& segment) override {
    Slot& s = Get(slot);
    CheckSegment(segment, backend_.Spec(), IdentityOf(s));
    if (segment.first != s.length)
      throw Fail(ErrorKind::kBadRequest, "{}: a segment starts at token {}, the slot holds {}", info_.name,
                 segment.first, s.length);
    Reserve(s, segment.count);
    backend_.ImportRows(slot, segment);
    s.length += segment.count;
  }

  KvSegment Export(SlotId slot, int first, int count) override {
    const Slot& s = Get(slot);
    if (first < 0 || count < 0 || first > s.length - count)
      throw Fail(ErrorKind::kBadRequest, "{}: tokens {} to {} asked for, the slot holds {}", info_.name,
                 first, int64_t(first) + count, s.length);
    KvSegment segment = backend_.ExportRows(slot, first, count);
    segment.id = IdentityOf(s);
    return segment;
  }

  // Backends keep keys and values of every token, so they can be cut anywhere.
  int RollbackFloor(SlotId slot) const override {
    Get(slot);
    return 0;
  }

  void Truncate(SlotId slot, int count) override {
    Slot& s = Get(slot);
    if (count < RollbackFloor(slot) || count > s.length)
      throw Fail(ErrorKind::kBadRequest, "{}: cannot keep {} tokens: the slot holds {} and can go back to {}",
                 info_.name, count, s.length, RollbackFloor(slot));
    backend_.TruncateSlot(slot, count);
    s.length = count;
  }

 private:
  struct Slot {
    int capacity = 0, length = 0;
    int added = 0;  // rows of the running step
    Variant variant;
    bool has_sampled = false;
    TokenId last_sampled = 0;  // unused if the backend runs ahead and knows it
  };

  struct Uncollected {
    StepId id;
    std::vector<SlotId> slots;  // of the rows with logits
    typename StepResult<B>::Type result;
  };

  const Slot& Get(SlotId slot) const { return Find(slots_, slot); }
  Slot& Get(SlotId slot) { return Find(slots_, slot); }
  template <class Slots>
  auto& Find(Slots& slots, SlotId slot) const {
    const auto it = slots.find(slot);
    if (it == slots.end()) throw Fail(ErrorKind::kBadRequest, "{}: slot {} is not open", info_.name, slot);
    return it->second;
  }

  KvIdentity IdentityOf(const Slot& slot) const {
    KvIdentity id = backend_.Identity();
    id.variant = slot.variant;
    return id;
  }

  void Reserve(const Slot& slot, int tokens) const {
    if (tokens > slot.capacity - slot.length)
      throw Fail(ErrorKind::kBadRequest, "{}: {} more tokens do not fit a slot of {} that holds {}",
                 info_.name, tokens, slot.capacity, slot.length);
  }

  // Checks rows; replaces kLastSampled by the token if the host has it.
  Rows Resolve(const Rows& rows) {
    Check(rows);
    for (SlotId slot : rows.slot) Get(slot).added = 0;
    ids_.assign(rows.ids.begin(), rows.ids.end());
    for (size_t i = 0; i < ids_.size(); ++i) {
      Slot& slot = Get(rows.slot[i]);
      const int expected = slot.length + slot.added++;
      if (rows.pos[i] != expected)
        throw Fail(ErrorKind::kBadRequest, "{}: row {} is at position {}, its slot continues at {}",
                   info_.name, i, rows.pos[i], expected);
      if (ids_[i] == kLastSampled) {
        if (!slot.has_sampled)
          throw Fail(ErrorKind::kBadRequest, "{}: slot {} has sampled nothing yet", info_.name, rows.slot[i]);
        if constexpr (RunsAhead<B>) continue;
        ids_[i] = slot.last_sampled;
      }
      if (ids_[i] < 0 || ids_[i] >= backend_.Spec().vocab)
        throw Fail(ErrorKind::kBadRequest, "{}: token {} is outside the vocabulary of {}", info_.name,
                   ids_[i], backend_.Spec().vocab);
    }
    for (SlotId slot : rows.slot) Reserve(Get(slot), Get(slot).added);
    return {ids_, rows.pos, rows.slot, rows.logits};
  }

  auto RunForward(const Rows& rows) {
    backend_.BeginRows(rows);
    return Forward(backend_, backend_.Spec(), backend_.ModelWeights(), rows);
  }

  // Runs a step, or starts it when the backend runs ahead. `asked`: its ids before kLastSampled was resolved.
  typename StepResult<B>::Type Compute(const Rows& rows, std::span<const TokenId> asked,
                                       std::span<const SampleSpec> sample) {
    const auto logits = RunForward(rows);
    if constexpr (RunsAhead<B>) {
      auto running = backend_.Start(rows, logits, sample);
      for (int32_t row : rows.logits) Get(rows.slot[size_t(row)]).has_sampled = true;
      return running;
    } else {
      std::vector<Sampled> sampled(sample.size());
      if (!logits) return sampled;
      const std::span<const float> values = backend_.ReadLogits(*logits);
      const size_t vocab = size_t(backend_.Spec().vocab);
      for (size_t i = 0; i < sampled.size(); ++i) {
        const auto row = size_t(rows.logits[i]);
        // The host has not seen the tokens it sent as kLastSampled: it learns of them when it collects the
        // step.
        const bool unseen = asked[row] == kLastSampled;
        sampled[i] = sampler_.Sample(values.subspan(i * vocab, vocab), sample[i],
                                     {&ids_[row], unseen ? size_t(1) : size_t(0)});
        Slot& slot = Get(rows.slot[row]);
        slot.last_sampled = sampled[i].token;
        slot.has_sampled = true;
      }
      return sampled;
    }
  }

  void Commit(const Rows& rows) {
    for (SlotId slot : rows.slot) ++Get(slot).length;
  }

  void Check(const Rows& rows) const {
    const size_t n = rows.ids.size();
    if (n == 0 || n > size_t(info_.max_rows) || rows.pos.size() != n || rows.slot.size() != n)
      throw Fail(ErrorKind::kBadRequest, "{}: a step needs 1 to {} rows, each with token, position and slot",
                 info_.name, info_.max_rows);
    for (size_t i = 0; i < rows.logits.size(); ++i)
      if (rows.logits[i] < 0 || size_t(rows.logits[i]) >= n ||
          (i > 0 && rows.logits[i] <= rows.logits[i - 1]))
        throw Fail(ErrorKind::kBadRequest, "{}: rows of logits must ascend within the step", info_.name);
  }

  B backend_;
  DeviceInfo info_;
  Sampler sampler_;
  std::map<SlotId, Slot> slots_;
  std::vector<TokenId> ids_;  // of the running step
  std::deque<Uncollected> results_;
  StepId next_step_ = 1;
};

}  // namespace pd
