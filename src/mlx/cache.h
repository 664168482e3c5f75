// Keys and values of all slots: for each layer two arrays [slots, K, S, D].
#pragma once
#include <vector>

#include "device/device.h"
#include "mlx/arrays.h"
#include "model/spec.h"

namespace pd {

struct MlxLayerCache {
  mx::array k, v;  // [slots, K, S, D]; what lies behind a slot's length is never read
};

// Owned by one thread. Arrays grow when a step needs more room, slots by doubling, S in steps of kStep
// tokens; both never shrink while a slot is open.
class MlxCache {
 public:
  static constexpr int kStep = 256;

  MlxCache(const ModelSpec& spec, mx::Dtype type);

  SlotId Open();
  void Close(SlotId slot);  // frees the memory with the last one

  // Throws kOutOfMemory when `slots` slots of `tokens` tokens would pass MLX's memory limit.
  void CheckRoom(int slots, int tokens) const;
  // Makes room for `tokens` tokens in every open slot. Waits for running work if it has to grow.
  void Reserve(int tokens);

  // Waits until nothing on the device reads or writes the arrays.
  void Wait() const;
  // Forgets all contents, keeps the slots: after a failure, when nobody knows what the arrays hold.
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
