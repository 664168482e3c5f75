// Uses any decode device for prefill.
#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "device/device.h"

namespace pd {

// A session opens a slot, runs rows without logits, and exports each chunk.
class PrefillVia final : public PrefillDevice {
 public:
  // `cancelled` is asked before each step of the device; true ends the chunk with kCancelled. Empty: never.
  explicit PrefillVia(std::unique_ptr<DecodeDevice> device, std::function<bool()> cancelled = {})
      : device_(std::move(device)), cancelled_(std::move(cancelled)) {}
  const DeviceInfo& Info() const override { return device_->Info(); }
  std::optional<std::string> Refuses(const Variant&) const override { return std::nullopt; }
  std::unique_ptr<PrefillSession> Begin(int capacity, const Variant& variant,
                                        std::span<const KvSegment> prefix) override;

 private:
  std::unique_ptr<DecodeDevice> device_;
  std::function<bool()> cancelled_;
};

}  // namespace pd
