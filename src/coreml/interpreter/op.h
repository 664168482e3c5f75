// Turns an op of a program into something that runs.
#pragma once
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "coreml/interpreter/constants.h"
#include "coreml/interpreter/machine.h"
#include "coreml/interpreter/numbers.h"
#include "coreml/interpreter/view.h"
#include "coreml/mil/given.h"

namespace pd::interp {

// One execution of an op: the operands requested by its maker with Site::In, in that order, and the results.
struct Call {
  std::span<const View> in, out;
  Machine& machine;
};
// Results may have any strides, and share no memory with operands. Throws kDevice for run-time values that
// the op does not support, such as an index beyond its axis.
using Kernel = std::function<void(const Call&)>;

// An op that is being planned: its types and what is known about its operands.
class Site {
 public:
  Site(const mil::Operation& op, const mil::Operands& operands,
       std::map<std::string, std::vector<const Constant*>, std::less<>> known, Constants& constants,
       bool plain)
      : op_(op), given_(operands), known_(std::move(known)), constants_(constants), plain_(plain) {}

  const std::string& name() const { return op_.type; }
  const mil::Given& given() const { return given_; }
  bool Has(std::string_view parameter) const { return given_.FindAll(parameter) != nullptr; }
  const mil::TensorType& Type(std::string_view parameter, size_t i = 0) const;
  const mil::TensorType& Result(size_t i = 0) const { return op_.outputs.at(i).type; }
  size_t Count(std::string_view parameter) const;  // tensors under one parameter

  // Requests an operand at run time; returns its index in Call::in.
  size_t In(std::string_view parameter, size_t i = 0);
  // The operand if it is known now.
  const Constant* Known(std::string_view parameter) const;
  double Number(std::string_view parameter, double fallback) const;  // a scalar that must be known now

  Constants& constants() const { return constants_; }
  bool plain() const { return plain_; }  // use only the reference forms
  const std::vector<std::pair<std::string, size_t>>& asked() const { return asked_; }

  // Throws kUnsupported unless an operand has one of these types.
  void Want(std::string_view parameter, std::initializer_list<DataType> types) const;
  void WantFloat(std::string_view parameter) const { Want(parameter, {DataType::kF16, DataType::kF32}); }

 private:
  const mil::Operation& op_;
  mil::Given given_;
  std::map<std::string, std::vector<const Constant*>, std::less<>> known_;
  Constants& constants_;
  bool plain_;
  std::vector<std::pair<std::string, size_t>> asked_;
};

// Makes the kernel of one op. Throws kUnsupported or kCorruptFile, without the place.
using Maker = Kernel (*)(Site&);
using Makers = std::map<std::string_view, Maker>;

// nullptr for an unknown op. The planner handles ops that only reinterpret a tensor, and states.
Maker FindMaker(std::string_view op);

const Makers& ElementwiseMakers();
const Makers& LineMakers();      // reductions, norms, and other ops along axes
const Makers& ProductMakers();   // conv, matmul and similar ops
const Makers& MovementMakers();  // move parts of tensors
const Makers& IndexMakers();     // places known only at run time
const Makers& QuantizeMakers();

// to = from, for elements of one type and shape.
void CopyElements(Machine& machine, const View& from, const View& to);

}  // namespace pd::interp
