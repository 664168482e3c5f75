// Runs the functions of one package: the interpreter, or Core ML on a Mac.
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
      owner;  // keeps the data alive and unchanged; nullptr: the caller does so during the call
};
using HalfTensors = std::map<std::string, HalfTensor>;  // by name

// What a stateful program keeps between predictions; initially zero. Used by one prediction at a time, of
// functions that name the same states.
class PredictorState {
 public:
  virtual ~PredictorState() = default;
};

// One prediction at a time; called only by its device's thread.
class Predictor {
 public:
  virtual ~Predictor() = default;
  // The names of a function's inputs. Throws kUnsupported when the package has no such function.
  virtual std::vector<std::string> Inputs(const std::string& function) = 0;
  // Runs a function of the package on inputs with exactly its names and shapes, and on the states that it
  // names (nullptr: it has none). Outputs own their memory, which is not written again while any copy of them
  // exists. Throws kDevice, after which the states are unspecified.
  virtual HalfTensors Predict(const std::string& function, const HalfTensors& inputs,
                              PredictorState* state) = 0;
  // States for a function. Throws kUnsupported when it has none, kDevice.
  virtual std::unique_ptr<PredictorState> NewState(const std::string& function) = 0;

  // Announces a function that is needed soon: preparing its first prediction may begin now. Returns at once.
  virtual void Prepare(const std::string& /*function*/) {}
  // Why a function is disabled; nullopt while it may run.
  virtual std::optional<std::string> GivenUp(const std::string& /*function*/) { return std::nullopt; }
  // Reports that a function's results cannot be right: the function is disabled.
  virtual void Distrust(const std::string& /*function*/, const std::string& /*why*/) {}
};

// Opens a package of a bundle.
using PredictorFactory = std::function<std::unique_ptr<Predictor>(const std::filesystem::path& package)>;

}  // namespace pd
