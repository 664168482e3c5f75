// What this program wants of Core ML, in plain C++. core_ml.mm implements it with Apple's classes; tests run
// the same file over stand-ins of them. Nothing here throws, and no call leaves an object behind.
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

// Which silicon a function may use. Never all of it: with the GPU among them whole models were moved there.
enum class Units : uint8_t { kCpuOnly, kCpuAndNeuralEngine };

// What a loaded function takes, gives and keeps, as Core ML describes it. Halves, each of them.
struct FunctionInterface {
  std::map<std::string, mil::Dims> inputs, outputs, states;  // shapes by name
};

// Memory for one result of halves that Core ML fills without a copy. It is read between Lock and Unlock only,
// and neither read nor filled during a prediction. May be let go of after the CoreMl that made it.
class Surface {
 public:
  virtual ~Surface() = default;
  virtual const mil::Dims& shape() const = 0;
  virtual const std::vector<int64_t>& strides() const = 0;  // in elements, of any padding that it has
  virtual const F16* Lock() = 0;                            // nullptr when it cannot be read
  virtual void Unlock() = 0;
  virtual bool FillWithNan() = 0;  // false when it cannot be written
};

// One result of a prediction.
struct Result {
  bool in_surface = false;  // it lies in the surface that was offered for it, which says how
  // Otherwise, as Core ML reports it and not yet believed:
  bool half = true;  // its elements are
  mil::Dims shape;
  std::vector<int64_t> strides;
  std::shared_ptr<const std::vector<std::byte>> bytes;  // a copy of the whole memory behind it
};

// States between predictions, zero at first. One prediction at a time uses it.
class ModelState {
 public:
  virtual ~ModelState() = default;
};

// A function, loaded. Used by one thread at a time; letting go of it unloads it.
class LoadedFunction {
 public:
  virtual ~LoadedFunction() = default;
  virtual const FunctionInterface& Interface() const = 0;
  // `surfaces` are offers, by result; Core ML may ignore any. `state` only for a function that has states.
  virtual Status Predict(const HalfTensors& inputs, const std::map<std::string, Surface*>& surfaces,
                         ModelState* state, std::map<std::string, Result>* results) = 0;
  virtual Status NewState(std::unique_ptr<ModelState>* state) = 0;
};

// The function of a package that has only one and gives it no name.
inline constexpr const char* kDefaultFunction = "main";

// Asked several times a second while a call waits; true ends the wait with kCancelled.
using CancelCheck = std::function<bool()>;

// Any thread may call; calls are independent of each other. What a cancelled call would have returned is
// thrown away when it comes.
class CoreMl {
 public:
  virtual ~CoreMl() = default;
  // Compiles a package into a temporary folder, which then is the caller's: *compiled. May take minutes.
  virtual Status Compile(const std::filesystem::path& package, const CancelCheck& cancelled,
                         std::filesystem::path* compiled) = 0;
  // Loads a function of a compiled model, kDefaultFunction for that of a single-function package. The first
  // time on a machine it may take minutes, for then it is specialised. kBadResult for a function with inputs,
  // outputs or states other than halves of a fixed shape.
  virtual Status Load(const std::filesystem::path& compiled, const std::string& function, Units units,
                      const CancelCheck& cancelled, std::unique_ptr<LoadedFunction>* loaded) = 0;
  // Where Core ML means to run the operations of a function.
  virtual Status Plan(const std::filesystem::path& compiled, const std::string& function,
                      const CancelCheck& cancelled, Placement* placement) = 0;
  // nullptr when there is no memory of that shape.
  virtual std::unique_ptr<Surface> MakeSurface(const mil::Dims& shape) = 0;
  virtual bool HasNeuralEngine() = 0;
};

// Over Apple's classes, or the stand-ins that it is linked with. Only where core_ml.mm is built.
std::unique_ptr<CoreMl> MakeCoreMl();

// This system's; nullptr where there is no Core ML.
std::unique_ptr<CoreMl> SystemCoreMl();

}  // namespace pd
