#include "coreml/interpreter/constants.h"

#include "base/digest.h"
#include "base/error.h"

namespace pd::interp {

std::span<const std::byte> Constant::Bytes(ConstantBytes& owner) const {
  if (value) return value->bytes();
  owner = make();
  return *owner;
}

Constant Constants::Of(const mil::Value& value) {
  Constant constant{value.type, mil::ToString(value.type), &value, {}};
  if (const mil::Blob* blob = value.blob()) {
    constant.key += fmt::format("@{}:{}", blob->file, blob->offset);
  } else if (value.type.dtype == DataType::kString) {
    for (const std::string& text : mil::ReadStrings(value)) constant.key += "'" + text + "'";
  } else {
    constant.key += fmt::format("#{:x}:{}", Digest(value.bytes()), value.bytes().size());
  }
  return constant;
}

Constant Constants::Of(const std::string& op, ConstantOperands operands, size_t index,
                       const mil::TensorType& type) {
  std::string key = fmt::format("{}.{}(", op, index);
  for (const auto& [parameter, operand] : operands) key += parameter + "=" + operand.key + ";";
  key += ")";
  const auto make = [this, op, operands = std::move(operands), index, type, key] {
    std::weak_ptr<const std::vector<std::byte>>& known = computed_[key];
    ConstantBytes bytes = known.lock();
    if (!bytes) known = bytes = ComputeConstexpr(op, operands, index, type, pool_);
    return bytes;
  };
  return {type, std::move(key), nullptr, make};
}

std::shared_ptr<const PackedFactor> Constants::Packed(const Constant& constant, int64_t k, int64_t n,
                                                      int64_t k_step, int64_t n_step, int64_t offset) {
  auto& packed = packed_[fmt::format("{}[{},{},{},{},{}]", constant.key, k, n, k_step, n_step, offset)];
  if (packed) return packed;
  ConstantBytes owner;
  const std::span<const std::byte> bytes = constant.Bytes(owner);
  PD_CHECK(bytes.size() == mil::ByteSize(constant.type));
  const Matrix factor{
      constant.type.dtype,
      const_cast<std::byte*>(bytes.data()) + offset * int64_t(ElementBytes(constant.type.dtype)),
      k,
      n,
      k_step,
      n_step};
  auto fresh = std::make_shared<PackedFactor>();
  const size_t size = PackedBytes(factor);
  fresh->pages = cpu::Pages(
      size, size >= (size_t(8) << 20) ? cpu::Pages::Size::kHuge : cpu::Pages::Size::kSmall, "packed weights");
  fresh->tiles = PackInto(fresh->pages.data(), pool_, factor);
  return packed = fresh;
}

}  // namespace pd::interp
