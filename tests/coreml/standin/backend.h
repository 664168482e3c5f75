// What stands behind the stand-ins of Core ML's classes: our interpreter, and a director who has them
// misbehave as Core ML was seen to. Plain C++; nothing here throws into Objective-C.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coreml/mil/program.h"

namespace pd::standin {

enum class Call : uint8_t { kCompile, kLoad, kPlan, kPredict, kNewState, kSurface, kLock };
inline constexpr int kCalls = 7;

enum class Kind : uint8_t {
  kNone,
  // any call that can fail
  kError,      // an error of code `value` in MLModelErrorDomain
  kPosix,      // likewise in NSPOSIXErrorDomain
  kCocoa,      // likewise in NSCocoaErrorDomain
  kBehind,     // an error that says nothing, with a POSIX one of code `value` behind it
  kSilent,     // nil without an error
  kException,  // an Objective-C exception
  kNoMemory,   // NSMallocException
  kSlow,       // as it should, after `value` ms
  kKilled,     // the process ends by a signal
  // compile
  kHollow,  // a compiled model without its program
  // predict
  kZeroStrides,        // in memory of its own, strides reported as zeros
  kPaddedZeroStrides,  // likewise, in memory with padded rows
  kPaddedStrides,      // in memory of its own, rows padded
  kNegativeStrides,
  kOverlappingStrides,
  kHugeStrides,
  kFewStrides,     // fewer than axes
  kIgnoreBacking,  // dense, in memory of its own
  kIgnoreOne,      // likewise for the first result only
  kWrongShape,
  kTransposedShape,  // the same number of elements
  kWrongType,        // floats
  kMissing,          // the first result is not there
  kUnwritten,        // the offered memory comes back as it was
  kHalfWritten,      // likewise, from the middle on
  kNotANumber,       // the first value
  kExtra,            // one more result than declared
  // plan
  kOnCpu,        // every `value`-th operation
  kOnGpu,        // likewise
  kNoProgram,    // the model's structure is another kind's
  kNoFunctions,  // the program has none of that name
  kNoOperations,
  kNoUsage,  // devices are not known
  kNoCosts,
  // surface
  kStrangeStrides,  // the array over it reports zeros
};
struct Fault {
  Kind kind = Kind::kNone;
  int value = 0;
};

// One for the process, as the classes are. Any thread.
class Director {
 public:
  static Director& The();

  // The `nth` call from now on (1 is the next; 0: every one from now on).
  void On(Call call, int nth, Fault fault);
  Fault Next(Call call);
  int Calls(Call call) const;  // since the last Reset
  void Reset();                // forgets faults and counts

  // Live objects of the classes, and buffers.
  std::atomic<int> live{0};
  // Of a prediction by the virtual clock, in milliseconds.
  std::atomic<int> engine_ms{1}, cpu_ms{10};
  std::atomic<int64_t> clock_us{0};
  double Milliseconds() const { return double(clock_us) / 1000; }
  // How often somebody touched memory that a prediction had been offered.
  std::atomic<int> touched{0};

  // Runs something on a thread of its own; Settle waits for all of them.
  void Async(std::function<void()> work);
  void Settle();

 private:
  mutable std::mutex mutex_;
  std::map<int, Fault> faults_[kCalls];  // by the number of the call; every one from `always_from_` on
  Fault always_[kCalls];
  int calls_[kCalls] = {};
  std::vector<std::thread> threads_;
};

// ---- the programs ----

// A compiled model is a folder with the package in it. Empty: it failed.
std::filesystem::path Compile(const std::filesystem::path& package, bool hollow);

struct Tensor {
  mil::DataType dtype = mil::DataType::kF16;
  mil::Dims shape, strides;  // empty strides: dense
  const std::byte* data = nullptr;
  std::shared_ptr<const void> owner;
};

class Program;  // a loaded model: interpreters are shared between functions
class States;

class Model {
 public:
  // nullptr when it cannot be loaded; *error says why.
  static std::unique_ptr<Model> Load(const std::filesystem::path& compiled, const std::string& function,
                                     bool cpu_only, std::string* error);
  ~Model();
  const std::vector<mil::NamedType>& inputs() const { return inputs_; }
  const std::vector<mil::NamedType>& outputs() const { return outputs_; }
  const std::vector<mil::NamedType>& states() const { return states_; }
  std::shared_ptr<States> NewStates(std::string* error) const;
  // Empty when it failed.
  std::map<std::string, Tensor> Predict(const std::map<std::string, Tensor>& inputs, States* states,
                                        std::string* error) const;

 private:
  Model() = default;
  std::shared_ptr<Program> program_;
  std::string function_;
  bool cpu_only_ = false;
  std::vector<mil::NamedType> inputs_, outputs_, states_;
};

struct Op {
  std::string type, result;
};
// The operations of a compiled model by function; empty when it cannot be read.
std::map<std::string, std::vector<Op>> Operations(const std::filesystem::path& compiled);

// Copies a tensor's elements to where strides say.
void Write(const Tensor& from, std::byte* to, const mil::Dims& strides);

}  // namespace pd::standin
