// Properties that every decode device must have, whatever computes behind it. Each returns logits to compare.
#pragma once
#include <numeric>
#include <vector>

#include "device/device.h"

namespace pd::test {

inline std::vector<TokenId> SomeTokens(int count, int vocab, unsigned step = 7) {
  std::vector<TokenId> ids(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    ids[size_t(i)] = TokenId((unsigned(i) * step + unsigned(i) * unsigned(i) % 5) % unsigned(vocab));
  return ids;
}

// Feeds ids[from, to) to the slot in pieces of `chunk` rows; returns the logits of the last row only.
inline std::vector<float> Feed(DecodeDevice& device, SlotId slot, std::span<const TokenId> ids, int from,
                               int to, int chunk) {
  std::vector<float> last;
  for (int at = from; at < to; at += chunk) {
    const int n = std::min(chunk, to - at);
    std::vector<int32_t> pos(static_cast<size_t>(n));
    std::iota(pos.begin(), pos.end(), at);
    const std::vector<SlotId> slots(size_t(n), slot);
    const std::vector<int32_t> wanted = at + n == to ? std::vector<int32_t>{n - 1} : std::vector<int32_t>{};
    last = device.RunLogits({ids.subspan(size_t(at), size_t(n)), pos, slots, wanted}).values;
  }
  return last;
}

// Logits of the last token of ids, computed alone in a fresh slot.
inline std::vector<float> Alone(DecodeDevice& device, std::span<const TokenId> ids, int chunk,
                                const Variant& variant = {}) {
  const SlotId slot = device.Open(int(ids.size()), variant);
  auto logits = Feed(device, slot, ids, 0, int(ids.size()), chunk);
  device.Close(slot);
  return logits;
}

}  // namespace pd::test
