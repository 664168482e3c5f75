// Engines of cpu devices on a tiny model, with faults on demand.
#pragma once
#include <atomic>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "cpu/cpu_device.h"
#include "device/prefill_via.h"
#include "engine/engine.h"
#include "tests/tiny_model.h"

namespace pd::test {

// Throws kDevice instead of every n-th call of Run and Import, on average; 0: never.
struct Faults {
  int prefill = 0, import = 0;
  unsigned seed = 1;
};

class FaultyPrefill final : public PrefillDevice {
 public:
  FaultyPrefill(std::unique_ptr<PrefillDevice> device, const Faults& faults)
      : device_(std::move(device)), every_(faults.prefill), random_(faults.seed) {}
  const DeviceInfo& Info() const override { return device_->Info(); }
  std::optional<std::string> Refuses(const Variant& variant) const override {
    return device_->Refuses(variant);
  }
  int Reach(int first) const override { return device_->Reach(first); }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override {
    return std::make_unique<Session>(*this, device_->Begin(capacity, variant, prefix));
  }

 private:
  class Session final : public PrefillSession {
   public:
    Session(FaultyPrefill& device, std::unique_ptr<PrefillSession> session)
        : device_(device), session_(std::move(session)) {}
    KvSegment Run(std::span<const TokenId> chunk, int first) override {
      if (device_.every_ > 0 && device_.random_() % unsigned(device_.every_) == 0)
        throw Fail(ErrorKind::kDevice, "a fault of prefill");
      return session_->Run(chunk, first);
    }

   private:
    FaultyPrefill& device_;
    std::unique_ptr<PrefillSession> session_;
  };
  std::unique_ptr<PrefillDevice> device_;
  int every_;
  std::mt19937 random_;
};

class FaultyDecode final : public DecodeDevice {
 public:
  FaultyDecode(std::unique_ptr<DecodeDevice> device, const Faults& faults)
      : device_(std::move(device)), every_(faults.import), random_(faults.seed + 1) {}
  const DeviceInfo& Info() const override { return device_->Info(); }
  SlotId Open(int capacity, const Variant& variant) override { return device_->Open(capacity, variant); }
  void Close(SlotId slot) override { device_->Close(slot); }
  int Length(SlotId slot) const override { return device_->Length(slot); }
  StepId Submit(const Step& step) override { return device_->Submit(step); }
  std::vector<SampledRow> Collect(StepId id) override { return device_->Collect(id); }
  Logits RunLogits(const Rows& rows) override { return device_->RunLogits(rows); }
  void Import(SlotId slot, const KvSegment& segment) override {
    if (every_ > 0 && random_() % unsigned(every_) == 0) throw Fail(ErrorKind::kDevice, "a fault of import");
    device_->Import(slot, segment);
  }
  KvSegment Export(SlotId slot, int first, int count) override { return device_->Export(slot, first, count); }
  void Truncate(SlotId slot, int count) override { device_->Truncate(slot, count); }

 private:
  std::unique_ptr<DecodeDevice> device_;
  int every_;
  std::mt19937 random_;
};

class CpuModelForTests {
 public:
  explicit CpuModelForTests(const ModelSpec& model_spec = MixedSpec())
      : tiny_(RandomModel(model_spec)), pool_(std::make_shared<ThreadPool>(1)) {
    model_ = LoadCpuModel(tiny_.spec, tiny_.tensors, *pool_);
  }
  const ModelSpec& spec() const { return tiny_.spec; }

  // On a pool of its own. Devices with different numbers are on different silicon.
  std::unique_ptr<DecodeDevice> Open(int processor, int max_rows = 64) const {
    CpuDeviceOptions options;
    options.max_rows = max_rows;
    options.cores = {processor};
    return OpenCpuDevice(model_, std::make_shared<ThreadPool>(1), options);
  }

  EngineDevices Devices(int lanes, const Faults& faults = {}, int max_rows = 64) const {
    EngineDevices devices;
    devices.prefill.push_back(
        std::make_unique<FaultyPrefill>(std::make_unique<PrefillVia>(Open(lanes == 1 ? 0 : 1)), faults));
    devices.decode = std::make_unique<FaultyDecode>(Open(0, max_rows), faults);
    return devices;
  }

  // The greedy continuation, computed alone by the plainest means.
  std::vector<TokenId> GreedyText(std::span<const TokenId> prompt, int count) const {
    const auto device = Open(0, 1024);
    const SlotId slot = device->Open(int(prompt.size()) + count, {});
    std::vector<TokenId> rest(prompt.begin(), prompt.end()), text;
    for (int position = 0; int(text.size()) < count; position += int(rest.size()), rest = {text.back()}) {
      std::vector<int32_t> pos(rest.size());
      for (size_t i = 0; i < pos.size(); ++i) pos[i] = position + int32_t(i);
      const std::vector<SlotId> slots(rest.size(), slot);
      const int32_t last = int32_t(rest.size()) - 1;
      const auto logits = device->RunLogits({rest, pos, slots, {&last, 1}}).values;
      text.push_back(TokenId(std::ranges::max_element(logits) - logits.begin()));
    }
    return text;
  }

 private:
  TinyModel tiny_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<const CpuModel> model_;
};

}  // namespace pd::test
