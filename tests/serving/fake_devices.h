// Devices that compute nothing: they follow a script and record the calls.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "serving/engine.h"

namespace pd::test {

using Journal = std::vector<std::string>;

// One layer of one head of two values.
inline ModelSpec FakeSpec(int context = 1000) {
  ModelSpec spec;
  spec.width = 2, spec.vocab = 100, spec.max_context = context;
  AttentionSpec attention;
  attention.heads = attention.kv_heads = 1, attention.head_dim = 2;
  spec.layers = {PreNormLayer({}, attention, {.hidden = 2})};
  return spec;
}

inline KvSegment FakeSegment(int first, int count) {
  static const std::vector<float> kZeros(1 << 16);
  const auto* bytes = reinterpret_cast<const std::byte*>(kZeros.data());
  KvSegment segment{.first = first, .count = count};
  segment.layers.push_back(KvLayerView{bytes, bytes, DType::kF32, 2, 2, 1});
  return segment;
}

// Samples the tokens of its script in turn, whatever its input, and throws at the end of the script. Checks
// that the caller keeps the contract of DecodeDevice.
class FakeDecode final : public DecodeDevice {
 public:
  FakeDecode(Journal& journal, std::vector<TokenId> script) : journal_(journal), script_(std::move(script)) {}

  const DeviceInfo& Info() const override { return info_; }
  SlotId Open(int capacity, const Variant&) override {
    journal_.push_back(fmt::format("open {}", capacity));
    capacity_ = capacity, length_ = 0;
    return kSlot;
  }
  void Close(SlotId) override {
    PD_CHECK(waiting_.empty() || failed_);
    journal_.emplace_back("close");
  }
  int Length(SlotId) const override { return length_; }

  StepId Submit(const Step& step) override {
    PD_CHECK(waiting_.size() < 2 && step.rows.pos[0] == length_ && length_ + step.rows.count() <= capacity_);
    if (step.sample.empty()) {
      journal_.push_back(fmt::format("rows {}+{}", length_, step.rows.count()));
      length_ += step.rows.count();
      waiting_.push_back(kNoSample);
      return kNoSample;
    }
    PD_CHECK(step.rows.count() == 1 && step.rows.logits.size() == 1 && step.rows.logits[0] == 0);
    const SampleSpec& sample = step.sample[0];
    std::string line = fmt::format("submit {} at {} draw {}", step.rows.ids[0], length_, sample.draw);
    if (!sample.penalties.Off())
      line += fmt::format(" knows {} of {}, {} biased", sample.penalties.context.size(),
                          sample.penalties.prompt_tokens, sample.bias.size());
    journal_.push_back(std::move(line));
    ++length_;
    waiting_.push_back(next_);
    return next_++;
  }
  std::vector<SampledRow> Collect(StepId id) override {
    PD_CHECK(waiting_.front() == id);
    waiting_.pop_front();
    if (id == kNoSample) return {};
    journal_.push_back(fmt::format("collect {}", id));
    if (failed_ || id >= script_.size()) {
      failed_ = true;
      throw Fail(ErrorKind::kDevice, "the fake device broke");
    }
    return {{kSlot, {script_[id], -0.5f, {}}}};
  }
  Logits RunLogits(const Rows&) override { return {}; }
  void Import(SlotId, const KvSegment& segment) override {
    PD_CHECK(segment.first == length_ && length_ + segment.count <= capacity_);
    length_ += segment.count;
    journal_.push_back(fmt::format("import {}+{}", segment.first, segment.count));
  }
  KvSegment Export(SlotId, int first, int count) override { return FakeSegment(first, count); }
  int RollbackFloor(SlotId) const override { return 0; }
  void Truncate(SlotId, int count) override {
    PD_CHECK(count <= length_ && waiting_.empty());
    length_ = count;
    journal_.push_back(fmt::format("truncate {}", count));
  }

 private:
  static constexpr SlotId kSlot = 7;
  static constexpr StepId kNoSample = 1 << 30;
  DeviceInfo info_{"fake", {}, 16, true};
  Journal& journal_;
  std::vector<TokenId> script_;
  std::deque<StepId> waiting_;
  StepId next_ = 0;
  int length_ = 0, capacity_ = 0;
  bool failed_ = false;
};

class FakePrefill final : public PrefillDevice {
 public:
  explicit FakePrefill(Journal& journal) : journal_(journal) {}
  std::optional<std::string> refusal;
  int max_tokens = INT_MAX;

  const DeviceInfo& Info() const override { return info_; }
  std::optional<std::string> Refuses(const Variant&) const override { return refusal; }
  int Reach(int first) const override { return std::max(first, max_tokens); }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant&,
                                        std::span<const KvSegment> prefix) override {
    PD_CHECK(prefix.empty());
    journal_.push_back(fmt::format("begin {}", capacity));
    return std::make_unique<Session>(*this);
  }

 private:
  class Session final : public PrefillSession {
   public:
    explicit Session(FakePrefill& device) : device_(device) {}
    ~Session() override { device_.journal_.emplace_back("end prefill"); }
    KvSegment Run(std::span<const TokenId> chunk, int first) override {
      device_.journal_.push_back(
          fmt::format("prefill {}+{} from token {}", first, chunk.size(), chunk.front()));
      return FakeSegment(first, int(chunk.size()));
    }

   private:
    FakePrefill& device_;
  };
  DeviceInfo info_{"fake-prefill", {}, 16, false};
  Journal& journal_;
};

// Both on one lane, so that only one thread uses the journal until the engine is gone.
struct FakeDevices {
  FakeDevices(Journal& journal, std::vector<TokenId> script) {
    auto made = std::make_unique<FakePrefill>(journal);
    prefill = made.get();
    devices.prefill.push_back(std::move(made));
    devices.decode = std::make_unique<FakeDecode>(journal, std::move(script));
  }
  EngineDevices Take() { return std::move(devices); }

  FakePrefill* prefill;  // to change before an engine has it
  EngineDevices devices;
};

}  // namespace pd::test
