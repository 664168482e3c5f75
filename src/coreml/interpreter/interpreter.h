// Executes Core ML programs on the CPU, op by op as written: the result of every op is rounded to its type,
// sums of convolutions and matrix products run in fp32.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coreml/package/package.h"
#include "cpu/pool.h"

namespace pd {

// An input tensor. Element (i, j, ...) lies i * strides[0] + j * strides[1] + ... elements after data; no
// strides: row-major without gaps. The caller keeps the data during the call.
struct InputTensor {
  mil::TensorType type;
  std::vector<int64_t> strides;
  const std::byte* data = nullptr;
};
// An output tensor: row-major without gaps. Its memory is not written again while a copy of `bytes` exists.
struct OutputTensor {
  mil::TensorType type;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};
using InputTensors = std::map<std::string, InputTensor>;    // by name
using OutputTensors = std::map<std::string, OutputTensor>;  // by name

// What a program keeps between runs, by the states' names; initially zero. Functions of a package that name
// the same state share it. Used by one run at a time.
class ProgramStates {
 public:
  // The bytes of a state, row-major. PD_CHECKs the name.
  std::vector<std::byte>& at(const std::string& name) const;

 private:
  friend class Interpreter;
  struct Content;
  std::shared_ptr<Content> content_;
};

struct InterpreterOptions {
  // Use only the reference form of every op, without kernels for the frequent cases.
  bool plain = false;
  // Size limit in bytes for the tensors of one function; 0: the machine's memory.
  size_t memory_limit = 0;
};

// A package prepared to run: every function planned, weights decompressed and packed. Functions share weights
// and working memory. Owned by one thread; others may use the pool between runs.
class Interpreter {
 public:
  // Throws kUnsupported, naming function, op and result, for what it cannot execute; kOutOfMemory.
  Interpreter(Package package, std::shared_ptr<ThreadPool> pool, const InterpreterOptions& options = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) = delete;

  // Throw kUnsupported when the package has no such function.
  const std::vector<mil::NamedType>& Inputs(const std::string& function) const;  // without states
  const std::vector<mil::NamedType>& Outputs(const std::string& function) const;

  // Throws kUnsupported when functions differ in the type of a state.
  ProgramStates MakeStates() const;

  // The inputs must be exactly those of the function (kBadRequest). A function with states needs them. Throws
  // kDevice for a run-time value that an op does not support: the states are then unspecified.
  OutputTensors Run(const std::string& function, const InputTensors& inputs,
                    const ProgramStates* states = nullptr);

  size_t working_bytes() const;  // for tensors between ops

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pd
