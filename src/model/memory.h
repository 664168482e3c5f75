// What sequences take in a device's memory: the only count of these bytes.
#pragma once
#include <cstddef>

#include "base/dtype.h"
#include "model/spec.h"

namespace pd {

// How a device keeps the memory of layers.
struct MemoryFormat {
  DType kv = DType::kF16;     // of keys and values
  DType state = DType::kF32;  // of states and the tails of convolutions
};

// Bytes that these layers keep of one sequence of `tokens` tokens: rows of keys and values, and states, which
// do not grow. Without padding.
size_t MemoryBytes(const ModelSpec& spec, LayerRange range, const MemoryFormat& format, int tokens);
size_t MemoryBytes(const ModelSpec& spec, const MemoryFormat& format, int tokens);  // of all layers

// Entries of keys and values that one token adds to a layer; 0 for layers without rows of their own.
size_t KvEntries(const LayerSpec& layer);
// Entries of a layer's state, and of its convolution's tail; 0 where there is none.
size_t StateEntries(const LayerSpec& layer);
size_t TailEntries(const LayerSpec& layer);

}  // namespace pd
