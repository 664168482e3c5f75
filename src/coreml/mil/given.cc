#include "coreml/mil/given.h"

#include <set>

namespace pd::mil {

std::string Show(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

const std::vector<Operand>* Given::FindAll(std::string_view parameter) const {
  const auto it = operands_.find(parameter);
  return it == operands_.end() ? nullptr : &it->second;
}

const Operand* Given::Find(std::string_view parameter) const {
  const auto* all = FindAll(parameter);
  if (!all) return nullptr;
  if (all->size() != 1) throw Wrong("'{}' takes one value, not {}", parameter, all->size());
  return &all->front();
}

const TensorType& Given::Type(std::string_view parameter) const {
  const Operand* operand = Find(parameter);
  if (!operand) throw Wrong("'{}' is missing", parameter);
  return operand->type;
}

std::optional<std::vector<int64_t>> Given::IntsIfKnown(std::string_view parameter) const {
  const Operand* operand = Find(parameter);
  if (!operand) throw Wrong("'{}' is missing", parameter);
  const TensorType& type = operand->type;
  if (type.shape.size() > 1 || IsFloat(type.dtype) || type.dtype == DataType::kString)
    throw Wrong("'{}' must be integers, found {}", parameter, ToString(type));
  if (!operand->value) return std::nullopt;
  return ReadInts(*operand->value);
}

std::vector<int64_t> Given::Ints(std::string_view parameter) const {
  auto values = IntsIfKnown(parameter);
  if (!values) throw Wrong("'{}' must be a constant", parameter);
  return std::move(*values);
}

std::vector<int64_t> Given::IntsOr(std::string_view parameter, std::vector<int64_t> fallback) const {
  return Find(parameter) ? Ints(parameter) : std::move(fallback);
}

int64_t Given::Int(std::string_view parameter) const {
  const auto values = Ints(parameter);
  if (values.size() != 1) throw Wrong("'{}' must be one number, found {}", parameter, values.size());
  return values.front();
}

int64_t Given::IntOr(std::string_view parameter, int64_t fallback) const {
  return Find(parameter) ? Int(parameter) : fallback;
}

std::string Given::StringOr(std::string_view parameter, const char* fallback) const {
  const Operand* operand = Find(parameter);
  if (!operand) return fallback;
  if (!operand->value || operand->type.dtype != DataType::kString)
    throw Wrong("'{}' must be a constant string", parameter);
  return ReadStrings(*operand->value).at(0);
}

DataType Given::DataTypeOr(std::string_view parameter, const char* fallback) const {
  const std::string name = StringOr(parameter, fallback);
  const auto dtype = DataTypeOf(name);
  if (!dtype) throw Wrong("'{}' names no data type: '{}'", parameter, name);
  return *dtype;
}

size_t Axis(int64_t axis, size_t rank) {
  const int64_t from_front = axis < 0 ? axis + int64_t(rank) : axis;
  if (from_front < 0 || from_front >= int64_t(rank))
    throw Wrong("axis {} of a tensor of rank {}", axis, rank);
  return size_t(from_front);
}

std::vector<size_t> Axes(const std::vector<int64_t>& axes, size_t rank) {
  std::set<size_t> seen;
  std::vector<size_t> result;
  for (int64_t a : axes) {
    result.push_back(Axis(a, rank));
    if (!seen.insert(result.back()).second) throw Wrong("axis {} is named twice", a);
  }
  return result;
}

void WantSameType(const TensorType& x, const TensorType& y) {
  if (x.dtype != y.dtype)
    throw Wrong("operands of {} and {} must have the same type", Name(x.dtype), Name(y.dtype));
}

void WantRank(const TensorType& x, size_t least, size_t most) {
  if (x.shape.size() < least || x.shape.size() > most)
    throw Wrong("rank {} is outside {} to {}", x.shape.size(), least, most);
}

}  // namespace pd::mil
