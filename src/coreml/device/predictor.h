// What runs the functions of one package: our interpreter, or Core ML on a Mac.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

// What a stateful program keeps between predictions; zero at first. For one prediction at a time, of
// functions that name the same states.
class PredictorState {
 public:
  virtual ~PredictorState() = default;
};

// One prediction at a time; called by its device's thread only.
class Predictor {
 public:
  virtual ~Predictor() = default;
  // The names of a function's inputs. Throws kUnsupported when the package has no such function.
  virtual std::vector<std::string> Inputs(const std::string& function) = 0;
  // Runs a function of the package on inputs of exactly the names and shapes that it has, and on the states
  // that it names (nullptr: it has none). Outputs own their memory: it is not written again while any copy of
  // them lives. Throws kDevice, after which the states are unspecified.
  virtual HalfTensors Predict(const std::string& function, const HalfTensors& inputs,
                              PredictorState* state) = 0;
  // States for a function. Throws kUnsupported when it has none, kDevice.
  virtual std::unique_ptr<PredictorState> NewState(const std::string& function) = 0;

  // A function that will be wanted next: what its first prediction waits for may begin now. Returns at once.
  virtual void Prepare(const std::string& /*function*/) {}
  // Why a function will not run any more; nothing while it may.
  virtual std::optional<std::string> GivenUp(const std::string& /*function*/) { return std::nullopt; }
  // Told by whoever found that a function's results cannot be right: it is given up.
  virtual void Distrust(const std::string& /*function*/, const std::string& /*why*/) {}
};

// Opens a package of a bundle.
using PredictorFactory = std::function<std::unique_ptr<Predictor>(const std::filesystem::path& package)>;

}  // namespace pd
