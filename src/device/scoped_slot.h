// A slot that is always closed.
#pragma once
#include <utility>

#include "device/device.h"

namespace pd {

// Close() reports errors. The destructor closes too but ignores errors, since it may run during another
// exception. Not thread-safe; the device must outlive it.
class ScopedSlot {
 public:
  // Throws what DecodeDevice::Open throws.
  ScopedSlot(DecodeDevice& device, int capacity, const Variant& variant = {})
      : device_(&device), id_(device.Open(capacity, variant)) {}
  ScopedSlot(ScopedSlot&& other) noexcept : device_(std::exchange(other.device_, nullptr)), id_(other.id_) {}
  ScopedSlot& operator=(ScopedSlot&&) = delete;
  ~ScopedSlot() {
    try {
      Close();
    } catch (...) {  // NOLINT(bugprone-empty-catch): see above
    }
  }

  // Throws what DecodeDevice::Close throws; the slot counts as closed even then. A second call does nothing.
  void Close() {
    if (DecodeDevice* device = std::exchange(device_, nullptr)) device->Close(id_);
  }
  SlotId id() const { return id_; }

 private:
  DecodeDevice* device_;  // nullptr: closed
  SlotId id_;
};

}  // namespace pd
