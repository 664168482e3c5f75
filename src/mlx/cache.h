// Keys and values of all slots: for each layer two arrays [slots, K, S, D].
#pragma once
#include <vector>

#include "device/device.h"
#include "mlx/arrays.h"
#include "model/spec.h"

namespace pd {

struct MlxLayerCache {
  mx::array k, v;  // [slots, K, S, D]; the part past a slot's length is never read
};

// Owned by one thread. Arrays grow when a step needs more room: the number of slots doubles, S grows in steps
// of kStep tokens. Neither shrinks while a slot is open.
class MlxCache {
 public:
  static constexpr int kStep = 256;

  MlxCache(const ModelSpec& spec, mx::Dtype type);

  SlotId Open();
  void Close(SlotId slot);  // closing the last slot frees the memory

  // Throws kOutOfMemory when `slots` slots of `tokens` tokens would exceed MLX's memory limit.
  void CheckRoom(int slots, int tokens) const;
  // Makes room for `tokens` tokens in every open slot. Waits for running work if the arrays must grow.
  void Reserve(int tokens);

  // Waits until nothing on the device reads or writes the arrays.
  void Wait() const;
  // Discards all contents but keeps the slots: after a failure the contents of the arrays are unknown.
  void Reset();

  static MemoryFormat Format(mx::Dtype type);

  std::vector<MlxLayerCache> layers;

 private:
  void Resize(int slots, int tokens);
  bool HasRoom(int slots, int tokens) const;
  size_t Bytes(int slots, int tokens) const;
  size_t Others() const;

  const ModelSpec& spec_;
  mx::Dtype type_;
  int slots_ = 0, tokens_ = 0, used_ = 0;
  std::vector<bool> open_;
};

}  // namespace pd
