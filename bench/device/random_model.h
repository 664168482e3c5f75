// Models of a published shape with random weights, for measuring speed: no file, the same for everyone.
#pragma once
#include <string>

#include "model/tensor.h"

namespace pd::bench {

struct RandomModel {
  std::string name;
  ModelSpec spec;
  Weights<TensorView> tensors;  // all matrices view the same random bytes: a device keeps its own copies
};

// shape: "tiny" (TinyLlama 1.1B), "7b" (7.24B: width 4096, 32 layers, 32 heads over 8, MLP 14336) or "small"
// (for checks). weights: "q4" (Q4_0), "q8" (Q8_0) or "f16". Throws kBadRequest for others.
RandomModel MakeRandomModel(const std::string& shape, const std::string& weights);

}  // namespace pd::bench
