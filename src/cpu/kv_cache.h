// Keys and values of a device's sequences.
#pragma once
#include <memory>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "cpu/rope_table.h"
#include "device/device.h"
#include "kv/segment.h"

namespace pd::cpu {

// One sequence, in consecutive blocks of kKeyBlock tokens: [block][layer][keys, values][K][tokens of a
// block][D], binary16. Address space for the whole capacity, memory only for blocks with tokens. A block lies
// in few large pages: with pages of 4 KB, or layers whose tokens are far apart, attention spends its time on
// address translation.
class KvSlot {
 public:
  // Throws kOutOfMemory.
  KvSlot(const ModelSpec& spec, int capacity, RopeTables tables);

  int capacity() const { return capacity_; }
  const RopeTables& tables() const { return tables_; }
  RopeTable& TableOf(const RopeSpec& spec) const;

  // The row of one KV head and token, D halves. Rows of later tokens follow it up to BlockEnd.
  uint16_t* Keys(int layer, int head, int token) const {
    return Row(layers_[size_t(layer)].keys, layer, head, token);
  }
  uint16_t* Values(int layer, int head, int token) const {
    return Row(layers_[size_t(layer)].values, layer, head, token);
  }
  int BlockEnd(int token) const { return (token / block_tokens_ + 1) * block_tokens_; }

  // Call before rows up to `end` are written or rotated.
  void BeginWrite(int end);
  // A copy.
  KvSegment Export(int first, int count) const;
  // Fills rows from the segment, rotated if they are raw. Call BeginWrite first.
  void Import(const KvSegment& segment, const Kernels& kernels, ThreadPool& pool);

 private:
  struct LayerPlace {
    size_t keys, values;  // offsets in a block, in halves
    size_t dim;           // of a head
  };

  uint16_t* Row(size_t place, int layer, int head, int token) const {
    const size_t dim = layers_[size_t(layer)].dim, t = size_t(token), tokens = size_t(block_tokens_);
    return reinterpret_cast<uint16_t*>(pages_.data()) + t / tokens * block_halves_ + place +
           (size_t(head) * tokens + t % tokens) * dim;
  }

  const ModelSpec& spec_;
  const int capacity_;
  const int block_tokens_;  // kKeyBlock, or the capacity if that is less
  const RopeTables tables_;
  std::vector<LayerPlace> layers_;
  size_t block_halves_ = 0;
  Pages pages_;
};

}  // namespace pd::cpu
