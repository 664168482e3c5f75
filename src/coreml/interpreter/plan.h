// A function prepared to run: kernels in order, and the place of every tensor.
#pragma once
#include <string>
#include <vector>

#include "coreml/interpreter/constants.h"
#include "coreml/interpreter/layout.h"
#include "coreml/interpreter/op.h"

namespace pd::interp {

// Memory of tensors. An arena holds results of ops: tensors that are never needed at the same time share its
// bytes.
struct Storage {
  enum class Kind : uint8_t { kArena, kInput, kState, kConstant, kOutput };
  Kind kind = Kind::kArena;
  size_t index = 0;                 // of the input, state or output in the plan
  size_t bytes = 0, offset = 0;     // within the arena
  const std::byte* data = nullptr;  // of a constant
};

struct TensorPlace {
  size_t storage = 0;
  View view;           // data is unset
  int64_t offset = 0;  // bytes from the storage's start
};

struct PlannedOp {
  std::string place;  // "main: op 12 (conv 'y')", for messages
  Kernel kernel;
  std::vector<TensorPlace> in, out;
};

// Inputs and outputs are dense. Immutable once made.
struct Plan {
  std::vector<mil::NamedType> inputs, states, outputs;
  std::vector<Storage> storages;
  std::vector<PlannedOp> steps;
  size_t arena_bytes = 0;
  std::vector<ConstantBytes> constants;  // decompressed, read by steps
};

struct PlanOptions {
  bool plain = false;       // use only the reference form of every op
  size_t memory_limit = 0;  // bytes of the arena
};

// `function` must have passed mil::CheckProgram and outlive the plan, as must `constants`. Throws
// kUnsupported for an unsupported op, type or shape, kCorruptFile for operands that do not match,
// kOutOfMemory; the message names function, op and result.
Plan MakePlan(const std::string& name, const mil::Function& function, Constants& constants,
              const PlanOptions& options);

}  // namespace pd::interp
