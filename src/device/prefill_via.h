// Any decode device, used for prefill.
#pragma once
#include <memory>

#include "device/device.h"

namespace pd {

// A session opens a slot, runs rows without logits, and exports each chunk.
class PrefillVia final : public PrefillDevice {
 public:
  explicit PrefillVia(std::unique_ptr<DecodeDevice> device) : device_(std::move(device)) {}
  const DeviceInfo& Info() const override { return device_->Info(); }
  std::optional<std::string> Refuses(const Variant&) const override { return std::nullopt; }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override;

 private:
  std::unique_ptr<DecodeDevice> device_;
};

}  // namespace pd
