// Cosines and sines by position, computed once.
#pragma once
#include <memory>
#include <vector>

#include "cpu/pages.h"
#include "model/rope.h"

namespace pd::cpu {

// For one RopeSpec in one variant. Grows on demand, without moving and without malloc. Owned by one backend,
// used by its thread; any thread may read between calls of Fill.
class RopeTable {
 public:
  // Reserves address space for `positions`; throws kOutOfMemory.
  RopeTable(const RopeSpec& spec, RopeVariant variant, int positions);

  const RopeSpec& spec() const { return spec_; }
  RopeVariant variant() const { return variant_; }
  int half() const { return spec_.dims / 2; }

  void Fill(int positions);  // makes rows [0, positions) readable
  const float* Cos(int position) const { return data() + int64_t(position) * spec_.dims; }
  const float* Sin(int position) const { return Cos(position) + half(); }

 private:
  float* data() const { return reinterpret_cast<float*>(pages_.data()); }

  RopeSpec spec_;
  RopeVariant variant_;
  RopeFrequencies frequencies_;
  Pages pages_;     // [positions][2][half]
  int capacity_;    // positions
  int filled_ = 0;  // positions
};

// The tables that a slot needs, one for each distinct RopeSpec of the model.
using RopeTables = std::vector<std::shared_ptr<RopeTable>>;

}  // namespace pd::cpu
