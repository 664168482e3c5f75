// What runs the functions of one package: our interpreter, or Core ML on a Mac.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "coreml/mil/program.h"

namespace pd {

// A tensor of halves; element (i, j, ...) lies i * strides[0] + j * strides[1] + ... elements after data.
struct HalfTensor {
  mil::Dims shape;
  std::vector<int64_t> strides;
  const F16* data = nullptr;
  std::shared_ptr<const void>
      owner;  // keeps the data alive and unchanged; null: the caller does, during the call
};
using HalfTensors = std::map<std::string, HalfTensor>;  // by name

// Row-major strides of a shape.
std::vector<int64_t> DenseStrides(const mil::Dims& shape);

// One prediction at a time; called by its device's thread only.
class Predictor {
 public:
  virtual ~Predictor() = default;
  // The names of a function's inputs. Throws kUnsupported when the package has no such function.
  virtual std::vector<std::string> Inputs(const std::string& function) = 0;
  // Runs a function of the package on inputs of exactly the names and shapes that it has. Outputs own their
  // memory: it is not written again while any copy of them lives. Throws kDevice.
  virtual HalfTensors Predict(const std::string& function, const HalfTensors& inputs) = 0;
};

// Opens a package of a bundle.
using PredictorFactory = std::function<std::unique_ptr<Predictor>(const std::filesystem::path& package)>;

}  // namespace pd
