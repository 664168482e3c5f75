#include "device/warm_up.h"

#include <numeric>

#include "base/error.h"

namespace pd {
namespace {

// Slots that close with it, whatever happens.
class Slots {
 public:
  Slots(DecodeDevice& device, int count, int capacity) : device_(device) {
    for (int i = 0; i < count; ++i) ids_.push_back(device.Open(capacity, {}));
  }
  ~Slots() {
    for (SlotId id : ids_) {
      try {
        device_.Close(id);
      } catch (const Error&) {  // NOLINT(bugprone-empty-catch): what ends the warm-up is under way already
      }
    }
  }
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  std::span<const SlotId> ids() const { return ids_; }

 private:
  DecodeDevice& device_;
  std::vector<SlotId> ids_;
};

}  // namespace

void WarmUp(DecodeDevice& device, std::span<const int> batches, std::span<const int> chunks) {
  for (int batch : batches) {
    const Slots slots(device, batch, 2);
    const std::vector<SampleSpec> greedy(static_cast<size_t>(batch));
    std::vector<int32_t> rows(static_cast<size_t>(batch));
    std::iota(rows.begin(), rows.end(), 0);
    for (int at = 0; at < 2; ++at) {
      const std::vector<TokenId> ids(size_t(batch), at == 0 ? TokenId(0) : kLastSampled);
      const std::vector<int32_t> pos(static_cast<size_t>(batch), at);
      device.Collect(device.Submit({{ids, pos, slots.ids(), rows}, greedy}));
    }
  }
  for (int chunk : chunks) {
    const Slots slots(device, 1, chunk);
    const std::vector<TokenId> ids(size_t(chunk), 0);
    const std::vector<SlotId> same(size_t(chunk), slots.ids()[0]);
    std::vector<int32_t> pos(static_cast<size_t>(chunk));
    std::iota(pos.begin(), pos.end(), 0);
    device.Collect(device.Submit({{ids, pos, same, {}}, {}}));
  }
}

}  // namespace pd
