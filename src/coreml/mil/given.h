// Typed access to an op's operands, shared by the rules of type inference.
#pragma once
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "coreml/mil/infer.h"

namespace pd::mil {

template <class... Args>
Error Wrong(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(ErrorKind::kCorruptFile, format, std::forward<Args>(args)...);
}

std::string Show(const Dims& dims);

// An op's operands by parameter. Throws kCorruptFile when one is missing or has another kind than requested.
class Given {
 public:
  explicit Given(const Operands& operands) : operands_(operands) {}

  const std::vector<Operand>* FindAll(std::string_view parameter) const;  // nullptr if not given
  const Operand* Find(std::string_view parameter) const;                  // the only operand
  const TensorType& Type(std::string_view parameter) const;
  // Integers known before run time: a scalar or a vector. nullopt when bound to a run-time value.
  std::optional<std::vector<int64_t>> IntsIfKnown(std::string_view parameter) const;
  std::vector<int64_t> Ints(std::string_view parameter) const;
  std::vector<int64_t> IntsOr(std::string_view parameter, std::vector<int64_t> fallback) const;
  int64_t Int(std::string_view parameter) const;
  int64_t IntOr(std::string_view parameter, int64_t fallback) const;
  std::string StringOr(std::string_view parameter, const char* fallback) const;
  DataType DataTypeOr(std::string_view parameter, const char* fallback) const;  // given as a string

 private:
  const Operands& operands_;
};

// Axes counted from the front; negative ones count from the back. Axes() also refuses duplicates.
size_t Axis(int64_t axis, size_t rank);
std::vector<size_t> Axes(const std::vector<int64_t>& axes, size_t rank);

void WantSameType(const TensorType& x, const TensorType& y);
void WantRank(const TensorType& x, size_t least, size_t most);

using Types = std::vector<TensorType>;
using Rule = Types (*)(const Given&);
using Rules = std::map<std::string_view, Rule>;
// For ops that move data and change shapes.
const Rules& MovementRules();

}  // namespace pd::mil
