#include "coreml/interpreter/op.h"

#include <algorithm>
#include <cstring>

#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

template <class T>
void CopyTyped(Machine& machine, const View& from, const View& to) {
  const Rows<2> rows({&from, &to});
  rows.Run(machine.pool, [&](const auto& at, int64_t n) {
    const auto& step = rows.steps();
    const T* in = from.as<T>() + at[0];
    T* out = to.as<T>() + at[1];
    if (step[0] == 1 && step[1] == 1) {
      std::memcpy(out, in, size_t(n) * sizeof(T));
      return;
    }
    for (int64_t i = 0; i < n; ++i) out[i * step[1]] = in[i * step[0]];
  });
}

}  // namespace

const mil::TensorType& Site::Type(std::string_view parameter, size_t i) const {
  const auto* all = given_.FindAll(parameter);
  if (!all || i >= all->size()) throw Fail(ErrorKind::kCorruptFile, "'{}' is missing", parameter);
  return (*all)[i].type;
}

size_t Site::Count(std::string_view parameter) const {
  const auto* all = given_.FindAll(parameter);
  return all ? all->size() : 0;
}

size_t Site::In(std::string_view parameter, size_t i) {
  const mil::TensorType& type = Type(parameter, i);
  if (!IsRunTimeType(type.dtype))
    throw Fail(ErrorKind::kUnsupported, "'{}' has type {}, which the interpreter does not support", parameter,
               mil::Name(type.dtype));
  asked_.emplace_back(parameter, i);
  return asked_.size() - 1;
}

const Constant* Site::Known(std::string_view parameter) const {
  const auto it = known_.find(parameter);
  return it == known_.end() || it->second.empty() ? nullptr : it->second.front();
}

double Site::Number(std::string_view parameter, double fallback) const {
  if (!Has(parameter)) return fallback;
  const Constant* constant = Known(parameter);
  if (!constant || mil::Elements(constant->type) != 1 || !IsRunTimeType(constant->type.dtype))
    throw Fail(ErrorKind::kUnsupported, "'{}' must be a constant scalar", parameter);
  ConstantBytes owner;
  const auto bytes = constant->Bytes(owner);
  PD_CHECK(bytes.size() == mil::ByteSize(constant->type));
  return LoadScalar(MakeView(constant->type.dtype, {}, {}, const_cast<std::byte*>(bytes.data())));
}

void Site::Want(std::string_view parameter, std::initializer_list<DataType> types) const {
  for (size_t i = 0; i < std::max<size_t>(1, Count(parameter)); ++i) {
    const DataType found = Type(parameter, i).dtype;
    if (std::find(types.begin(), types.end(), found) == types.end())
      throw Fail(ErrorKind::kUnsupported, "'{}' of type {}", parameter, mil::Name(found));
  }
}

Maker FindMaker(std::string_view op) {
  for (const Makers* makers : {&ElementwiseMakers(), &LineMakers(), &ProductMakers(), &MovementMakers(),
                               &IndexMakers(), &QuantizeMakers()})
    if (const auto it = makers->find(op); it != makers->end()) return it->second;
  return nullptr;
}

void CopyElements(Machine& machine, const View& from, const View& to) {
  switch (ElementBytes(from.dtype)) {
    case 1:
      return CopyTyped<uint8_t>(machine, from, to);
    case 2:
      return CopyTyped<uint16_t>(machine, from, to);
    case 4:
      return CopyTyped<uint32_t>(machine, from, to);
    default:
      PD_CHECK(!"an element of 1, 2 or 4 bytes");
  }
}

}  // namespace pd::interp
