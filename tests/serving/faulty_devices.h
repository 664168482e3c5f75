// Devices that fail on demand.
#pragma once
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "device/device.h"

namespace pd::test {

// Throws kDevice in every n-th call of Run and Import, on average, instead of the call; 0: never.
struct Faults {
  int prefill = 0, import = 0;
  unsigned seed = 1;
  bool close = false;  // every close of a slot or a session throws, after it has closed
};

class FaultyPrefill final : public PrefillDevice {
 public:
  FaultyPrefill(std::unique_ptr<PrefillDevice> device, const Faults& faults)
      : device_(std::move(device)), every_(faults.prefill), close_(faults.close), random_(faults.seed) {}
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
    void Close() override {
      session_->Close();
      if (device_.close_) throw Fail(ErrorKind::kDevice, "a fault of closing");
    }

   private:
    FaultyPrefill& device_;
    std::unique_ptr<PrefillSession> session_;
  };
  std::unique_ptr<PrefillDevice> device_;
  int every_;
  bool close_;
  std::mt19937 random_;
};

class FaultyDecode final : public DecodeDevice {
 public:
  FaultyDecode(std::unique_ptr<DecodeDevice> device, const Faults& faults)
      : device_(std::move(device)), every_(faults.import), close_(faults.close), random_(faults.seed + 1) {}
  const DeviceInfo& Info() const override { return device_->Info(); }
  SlotId Open(int capacity, const Variant& variant) override { return device_->Open(capacity, variant); }
  void Close(SlotId slot) override {
    device_->Close(slot);
    if (close_) throw Fail(ErrorKind::kDevice, "a fault of closing");
  }
  int Length(SlotId slot) const override { return device_->Length(slot); }
  StepId Submit(const Step& step) override { return device_->Submit(step); }
  std::vector<SampledRow> Collect(StepId id) override { return device_->Collect(id); }
  Logits RunLogits(const Rows& rows) override { return device_->RunLogits(rows); }
  void Import(SlotId slot, const KvSegment& segment) override {
    if (every_ > 0 && random_() % unsigned(every_) == 0) throw Fail(ErrorKind::kDevice, "a fault of import");
    device_->Import(slot, segment);
  }
  KvSegment Export(SlotId slot, int first, int count) override { return device_->Export(slot, first, count); }
  int RollbackFloor(SlotId slot) const override { return device_->RollbackFloor(slot); }
  void Truncate(SlotId slot, int count) override { device_->Truncate(slot, count); }

 private:
  std::unique_ptr<DecodeDevice> device_;
  int every_;
  bool close_;
  std::mt19937 random_;
};

}  // namespace pd::test
