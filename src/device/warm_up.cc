#include "device/warm_up.h"

#include <numeric>
#include <vector>

#include "device/scoped_slot.h"

namespace pd {
namespace {

// Two steps of `batch` sequences.
void WarmUpSteps(DecodeDevice& device, int batch) {
  std::vector<ScopedSlot> slots;
  std::vector<SlotId> ids;
  for (int i = 0; i < batch; ++i) ids.push_back(slots.emplace_back(device, 2).id());
  const std::vector<SampleSpec> greedy(static_cast<size_t>(batch));
  std::vector<int32_t> rows(static_cast<size_t>(batch));
  std::iota(rows.begin(), rows.end(), 0);
  for (int at = 0; at < 2; ++at) {
    const std::vector<TokenId> tokens(size_t(batch), at == 0 ? TokenId(0) : kLastSampled);
    const std::vector<int32_t> pos(static_cast<size_t>(batch), at);
    device.Collect(device.Submit({{tokens, pos, ids, rows}, greedy}));
  }
  for (ScopedSlot& slot : slots) slot.Close();
}

// A prompt of `chunk` tokens.
void WarmUpPrompt(DecodeDevice& device, int chunk) {
  ScopedSlot slot(device, chunk);
  const std::vector<TokenId> tokens(size_t(chunk), 0);
  const std::vector<SlotId> slots(size_t(chunk), slot.id());
  std::vector<int32_t> pos(static_cast<size_t>(chunk));
  std::iota(pos.begin(), pos.end(), 0);
  device.Collect(device.Submit({{tokens, pos, slots, {}}, {}}));
  slot.Close();
}

}  // namespace

void WarmUp(DecodeDevice& device, std::span<const int> batches, std::span<const int> chunks) {
  for (const int batch : batches) WarmUpSteps(device, batch);
  for (const int chunk : chunks) WarmUpPrompt(device, chunk);
}

}  // namespace pd
