// Inputs for a prediction whose result does not matter.
#pragma once
#include <algorithm>
#include <vector>

#include "coreml/runtime/core_ml.h"

namespace pd {

// Every input of a function, all zeros, sharing one memory of the largest input's size.
class ZeroInputs {
 public:
  explicit ZeroInputs(const FunctionInterface& interface) {
    int64_t most = 0;
    for (const auto& [name, shape] : interface.inputs)
      most = std::max(most, mil::Elements({mil::DataType::kF16, shape}));
    zeros_.assign(size_t(most), F16{0});
    for (const auto& [name, shape] : interface.inputs)
      tensors_[name] = {shape, mil::DenseStrides(shape), zeros_.data(), nullptr};
  }
  ZeroInputs(const ZeroInputs&) = delete;
  ZeroInputs& operator=(const ZeroInputs&) = delete;
  const HalfTensors& tensors() const { return tensors_; }

 private:
  std::vector<F16> zeros_;
  HalfTensors tensors_;
};

}  // namespace pd
