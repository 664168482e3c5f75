// A session's keys and values so far, in the form of the past inputs of prefill programs.
#pragma once
#include <vector>

#include "coreml/device/predictor.h"
#include "kv/segment.h"
#include "model/rope.h"
#include "model/spec.h"

namespace pd {

// Per layer, keys (rotated) and values as (1, K*D, 1, width) halves: column c holds token base + c. A layer
// with a window keeps only its last tokens. Owned by one thread.
class History {
 public:
  // For a history of at most `capacity` tokens.
  History(const ModelSpec& spec, const RopeVariant& variant, int capacity);

  int count() const { return count_; }

  // Adds a segment, which starts at token count(); rotates raw keys. Drops tokens beyond the capacity: no
  // function takes them.
  void Append(const KvSegment& segment);

  // The past inputs of a layer for a function with this history, which is at least count(): views of its
  // first columns. Columns without a token have arbitrary finite values.
  HalfTensor Keys(int layer, int history) const;
  HalfTensor Values(int layer, int history) const;

 private:
  struct Layer {
    int width = 0;                  // columns
    int base = 0;                   // the token of column 0
    std::vector<F16> keys, values;  // [K*D, width]
    RopeFrequencies rope;           // no pairs: keys are not rotated
  };
  HalfTensor View(int layer, const std::vector<F16>& values, int history) const;
  void AppendLayer(Layer& layer, const AttentionSpec& attn, const KvSegment& segment, size_t index, int kept);

  const ModelSpec& spec_;
  int capacity_, count_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace pd
