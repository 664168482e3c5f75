// The constants of a package: decompressed and packed once, shared by all functions that use them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coreml/interpreter/product.h"
#include "coreml/mil/program.h"

namespace pd::interp {

using ConstantBytes = std::shared_ptr<const std::vector<std::byte>>;

// The constant behind a name, known before run time. Equal keys mean equal bytes.
struct Constant {
  mil::TensorType type;
  std::string key;
  const mil::Value* value = nullptr;    // of a const, whose package outlives it; nullptr: see make
  std::function<ConstantBytes()> make;  // computes a constexpr op's result

  // The bytes, dense and packed as described at mil::Value. `owner` keeps them alive.
  std::span<const std::byte> Bytes(ConstantBytes& owner) const;
};

// Operands of a constexpr op by parameter, including those kept in attributes.
using ConstantOperands = std::map<std::string, Constant, std::less<>>;

// Owned by an interpreter, used by its thread.
class Constants {
 public:
  explicit Constants(ThreadPool& pool) : pool_(pool) {}

  // The constant of a const op. The value must outlive it.
  static Constant Of(const mil::Value& value);
  // Result `index` of a constexpr op, of type `type`. Throws kUnsupported for operands that are not
  // supported.
  Constant Of(const std::string& op, ConstantOperands operands, size_t index, const mil::TensorType& type);

  // The bytes of an fp16 or fp32 constant as the factor [k, n] of products; element (i, j) lies at i * k_step
  // + j * n_step of the dense tensor, counted from element `offset`.
  std::shared_ptr<const PackedFactor> Packed(const Constant& constant, int64_t k, int64_t n, int64_t k_step,
                                             int64_t n_step, int64_t offset = 0);

 private:
  ThreadPool& pool_;
  std::map<std::string, std::weak_ptr<const std::vector<std::byte>>> computed_;  // by key
  std::map<std::string, std::shared_ptr<const PackedFactor>> packed_;            // by key and form
};

// The results of constexpr ops (constexpr.cc). `type` is the result's type.
ConstantBytes ComputeConstexpr(const std::string& op, const ConstantOperands& operands, size_t index,
                               const mil::TensorType& type, ThreadPool& pool);

}  // namespace pd::interp
