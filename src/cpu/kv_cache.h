// Keys and values of a device's sequences.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "cpu/rope_table.h"
#include "device/device.h"
#include "kv/segment.h"

namespace pd::cpu {

// One sequence: for each layer, keys [K][capacity][D] and values likewise, binary16. Address space for the
// whole capacity, memory only where tokens are.
//
// Export publishes rows without copying them. The memory is then shared with the segment, and rows it covers
// do not change: a write that would hit them (after Truncate) first moves the slot to memory of its own.
class KvSlot {
 public:
  KvSlot(const ModelSpec& spec, int capacity, RopeVariant variant, RopeTables tables);

  int capacity() const { return capacity_; }
  const RopeTables& tables() const { return tables_; }
  RopeTable& TableOf(const RopeSpec& spec) const;

  // [capacity][D] of one KV head, rows D halves apart.
  uint16_t* Keys(int layer, int head) const { return Half(layers_[size_t(layer)].keys, layer, head); }
  uint16_t* Values(int layer, int head) const { return Half(layers_[size_t(layer)].values, layer, head); }

  // Before rows from `first` on are written: they become writable, rotations up to `end` readable. Throws
  // kOutOfMemory with nothing changed.
  void BeginWrite(int first, int end);
  KvSegment Export(int first, int count);
  // Rows become what the segment holds, rotated if they are raw. Call BeginWrite first.
  void Import(const KvSegment& segment, const Kernels& kernels, ThreadPool& pool);

 private:
  struct LayerPlace {
    size_t keys, values;  // halves into the memory
  };
  struct Memory {
    Pages pages;
    std::atomic<int> published = 0;  // segments alive; falls on whatever thread drops the last copy of one
    int published_end = 0;           // rows that some of them may cover
  };
  struct Publication;

  uint16_t* Half(size_t place, int layer, int head) const;
  std::shared_ptr<Memory> Allocate() const;

  const ModelSpec& spec_;
  const int capacity_;
  const RopeVariant variant_;
  const RopeTables tables_;
  std::vector<LayerPlace> layers_;
  size_t halves_ = 0;
  std::shared_ptr<Memory> memory_;
};

}  // namespace pd::cpu
