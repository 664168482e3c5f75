// What one call of Forward computes: N rows, each a token at a position of a sequence.
#pragma once
#include <cstdint>
#include <span>

namespace pd {

using TokenId = int32_t;
using SlotId = int32_t;  // a sequence's place in a device's KV cache

// ids, pos and slot have N entries. Rows of one slot stand in ascending, gapless order of position, directly
// after what the slot holds. `logits` lists the rows that need logits, ascending; empty means keys and values
// only.
struct Rows {
  std::span<const TokenId> ids;
  std::span<const int32_t> pos;
  std::span<const SlotId> slot;
  std::span<const int32_t> logits;
  int count() const { return int(ids.size()); }
};

}  // namespace pd
