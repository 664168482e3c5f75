// The parts of Core ML that this program uses, in plain C++. core_ml.mm implements them with Apple's classes;
// tests run the same file with stand-ins. Nothing here throws, and no call leaks an object.
#pragma once
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coreml/device/predictor.h"
#include "coreml/mil/program.h"
#include "coreml/runtime/placement.h"
#include "coreml/runtime/status.h"

namespace pd {

// Which hardware a function may use. Never all of it: with the GPU allowed, whole models were moved there.
enum class Units : uint8_t { kCpuOnly, kCpuAndNeuralEngine };

// Inputs, outputs and states of a loaded function, as Core ML describes them. All are halves.
struct FunctionInterface {
  std::map<std::string, mil::Dims> inputs, outputs, states;  // shapes by name
};

// Memory for one result of halves that Core ML fills without a copy. It may be read only between Lock and
// Unlock, and neither read nor filled during a prediction. It may outlive the CoreMl that made it.
class Surface {
 public:
  virtual ~Surface() = default;
  virtual const mil::Dims& shape() const = 0;
  virtual const std::vector<int64_t>& strides() const = 0;  // in elements, including its padding
  virtual const F16* Lock() = 0;                            // nullptr if it cannot be read
  virtual void Unlock() = 0;
  virtual bool FillWithNan() = 0;  // false if it cannot be written
};

// One result of a prediction.
struct Result {
  bool in_surface = false;  // it is in the offered surface, which has shape and strides
  // Otherwise, as Core ML reports it, unverified:
  bool half = true;  // its elements are halves
  mil::Dims shape;
  std::vector<int64_t> strides;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // a copy of all its memory
};

// States between predictions, initially zero. Used by one prediction at a time.
class ModelState {
 public:
  virtual ~ModelState() = default;
};

// A loaded function. Used by one thread at a time; the destructor unloads it.
class LoadedFunction {
 public:
  virtual ~LoadedFunction() = default;
  virtual const FunctionInterface& Interface() const = 0;
  // `surfaces`: offers by result; Core ML may ignore any. `state`: only for a function with states.
  virtual Status Predict(const HalfTensors& inputs, const std::map<std::string, Surface*>& surfaces,
                         ModelState* state, std::map<std::string, Result>* results) = 0;
  virtual Status NewState(std::unique_ptr<ModelState>* state) = 0;
};

// The unnamed function of a package that has only one.
inline constexpr const char* kDefaultFunction = "main";

// Called several times a second while a call waits; true ends the wait with kCancelled.
using CancelCheck = std::function<bool()>;

// Any thread may call; calls are independent of each other. The late result of a cancelled call is discarded.
class CoreMl {
 public:
  virtual ~CoreMl() = default;
  // Compiles a package into a temporary folder *compiled, which the caller then owns. May take minutes.
  virtual Status Compile(const std::filesystem::path& package, const CancelCheck& cancelled,
                         std::filesystem::path* compiled) = 0;
  // Loads a function of a compiled model, kDefaultFunction for a single-function package. The first load on a
  // machine may take minutes, since the system specialises the function. kBadResult for a function with
  // inputs, outputs or states other than halves of a fixed shape.
  virtual Status Load(const std::filesystem::path& compiled, const std::string& function, Units units,
                      const CancelCheck& cancelled, std::unique_ptr<LoadedFunction>* loaded) = 0;
  // Where Core ML plans to run the operations of a function.
  virtual Status Plan(const std::filesystem::path& compiled, const std::string& function,
                      const CancelCheck& cancelled, Placement* placement) = 0;
  // nullptr if no memory of that shape is available.
  virtual std::unique_ptr<Surface> MakeSurface(const mil::Dims& shape) = 0;
  virtual bool HasNeuralEngine() = 0;
};

// With Apple's classes, or with the stand-ins that it is linked with. Only where core_ml.mm is built.
std::unique_ptr<CoreMl> MakeCoreMl();

// This system's Core ML; nullptr if there is none.
std::unique_ptr<CoreMl> SystemCoreMl();

}  // namespace pd
