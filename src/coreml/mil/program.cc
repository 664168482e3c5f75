#include "coreml/mil/program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace pd::mil {
namespace {

static_assert(std::endian::native == std::endian::little, "values are stored as they lie in memory");

enum class Kind : uint8_t { kBool, kString, kFloat, kSigned, kUnsigned };

struct TypeInfo {
  DataType type;
  const char* name;
  int bits;
  Kind kind;
};

constexpr std::array kTypes = {
    TypeInfo{DataType::kBool, "bool", 8, Kind::kBool},
    TypeInfo{DataType::kString, "string", 0, Kind::kString},
    TypeInfo{DataType::kF16, "fp16", 16, Kind::kFloat},
    TypeInfo{DataType::kF32, "fp32", 32, Kind::kFloat},
    TypeInfo{DataType::kF64, "fp64", 64, Kind::kFloat},
    TypeInfo{DataType::kBF16, "bf16", 16, Kind::kFloat},
    TypeInfo{DataType::kI8, "int8", 8, Kind::kSigned},
    TypeInfo{DataType::kI16, "int16", 16, Kind::kSigned},
    TypeInfo{DataType::kI32, "int32", 32, Kind::kSigned},
    TypeInfo{DataType::kI64, "int64", 64, Kind::kSigned},
    TypeInfo{DataType::kI4, "int4", 4, Kind::kSigned},
    TypeInfo{DataType::kU8, "uint8", 8, Kind::kUnsigned},
    TypeInfo{DataType::kU16, "uint16", 16, Kind::kUnsigned},
    TypeInfo{DataType::kU32, "uint32", 32, Kind::kUnsigned},
    TypeInfo{DataType::kU64, "uint64", 64, Kind::kUnsigned},
    TypeInfo{DataType::kU4, "uint4", 4, Kind::kUnsigned},
    TypeInfo{DataType::kU2, "uint2", 2, Kind::kUnsigned},
    TypeInfo{DataType::kU1, "uint1", 1, Kind::kUnsigned},
    TypeInfo{DataType::kU6, "uint6", 6, Kind::kUnsigned},
    TypeInfo{DataType::kU3, "uint3", 3, Kind::kUnsigned},
    TypeInfo{DataType::kF8E4M3, "fp8e4m3fn", 8, Kind::kFloat},
    TypeInfo{DataType::kF8E5M2, "fp8e5m2", 8, Kind::kFloat},
};

const TypeInfo* Find(DataType type) {
  const auto it =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& t) { return t.type == type; });
  return it == kTypes.end() ? nullptr : &*it;
}

const TypeInfo& Info(DataType type) {
  const TypeInfo* info = Find(type);
  PD_CHECK(info);
  return *info;
}

template <class T>
Value Immediate(DataType type, Dims shape, std::span<const T> elements) {
  const auto bytes = std::as_bytes(elements);
  return {{type, std::move(shape)}, std::vector(bytes.begin(), bytes.end())};
}

// Element i of a bit stream of `bits`-wide elements, lowest bit first.
uint64_t ReadBits(std::span<const std::byte> bytes, int64_t i, int bits) {
  uint64_t result = 0;
  for (int b = 0; b < bits; ++b) {
    const size_t at = size_t(i) * size_t(bits) + size_t(b);
    result |= uint64_t(uint8_t(bytes[at / 8]) >> at % 8 & 1) << b;
  }
  return result;
}

template <class T>
T Load(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

}  // namespace

const char* Name(DataType type) {
  const TypeInfo* info = Find(type);
  return info ? info->name : nullptr;
}

std::optional<DataType> DataTypeOf(std::string_view name) {
  for (const TypeInfo& t : kTypes)
    if (name == t.name) return t.type;
  return std::nullopt;
}

int Bits(DataType type) { return Info(type).bits; }
bool IsFloat(DataType type) { return Info(type).kind == Kind::kFloat; }

int64_t Elements(const TensorType& type) {
  int64_t count = 1;
  for (int64_t d : type.shape) {
    PD_CHECK(d >= 0 && (d == 0 || count <= INT64_MAX / d));
    count *= d;
  }
  return count;
}

Dims DenseStrides(const Dims& shape) {
  Dims strides(shape.size(), 1);
  for (size_t a = shape.size(); a-- > 1;) strides[a - 1] = strides[a] * shape[a];
  return strides;
}

size_t ByteSize(const TensorType& type) {
  const auto bits = size_t(Bits(type.dtype));
  PD_CHECK(bits > 0);
  const auto count = size_t(Elements(type));
  return bits >= 8 ? count * (bits / 8) : (count * bits + 7) / 8;
}

std::span<const std::byte> Value::bytes() const {
  if (const Blob* b = blob()) return b->bytes;
  const auto* immediate = std::get_if<std::vector<std::byte>>(&data);
  PD_CHECK(immediate);
  return *immediate;
}

Value Scalar(bool value) { return {{DataType::kBool, {}}, std::vector{std::byte(value)}}; }
Value Scalar(int32_t value) { return Immediate<int32_t>(DataType::kI32, {}, {&value, 1}); }
Value Scalar(const char* value) { return Scalar(std::string(value)); }
Value Scalar(std::string value) { return {{DataType::kString, {}}, std::vector{std::move(value)}}; }
Value ScalarF16(float value) {
  const F16 half = ToF16(value);
  return Immediate<F16>(DataType::kF16, {}, {&half, 1});
}
Value Vector(const std::vector<int32_t>& values) {
  return Immediate<int32_t>(DataType::kI32, {int64_t(values.size())}, values);
}
Value Vector(const std::vector<bool>& values) {
  std::vector<std::byte> bytes(values.size());
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(bool(values[i]));
  return {{DataType::kBool, {int64_t(values.size())}}, std::move(bytes)};
}
Value Packed(TensorType type, std::vector<std::byte> bytes) {
  PD_CHECK(bytes.size() == ByteSize(type));
  return {std::move(type), std::move(bytes)};
}

std::vector<int64_t> ReadInts(const Value& value) {
  const TypeInfo& info = Info(value.type.dtype);
  PD_CHECK(info.kind == Kind::kSigned || info.kind == Kind::kUnsigned || info.kind == Kind::kBool);
  const auto bytes = value.bytes();
  PD_CHECK(bytes.size() == ByteSize(value.type));
  std::vector<int64_t> result(size_t(Elements(value.type)));
  for (size_t i = 0; i < result.size(); ++i) {
    uint64_t bits = ReadBits(bytes, int64_t(i), info.bits);
    const bool negative = info.kind == Kind::kSigned && info.bits < 64 && bits >> (info.bits - 1) & 1;
    if (negative) bits |= ~uint64_t(0) << info.bits;
    result[i] = int64_t(bits);
  }
  return result;
}

std::vector<float> ReadFloats(const Value& value) {
  const auto bytes = value.bytes();
  PD_CHECK(bytes.size() == ByteSize(value.type));
  std::vector<float> result(size_t(Elements(value.type)));
  for (size_t i = 0; i < result.size(); ++i) {
    switch (value.type.dtype) {
      case DataType::kF16:
        result[i] = ToFloat(Load<F16>(bytes, i));
        break;
      case DataType::kBF16:
        result[i] = ToFloat(Load<BF16>(bytes, i));
        break;
      case DataType::kF32:
        result[i] = Load<float>(bytes, i);
        break;
      case DataType::kF64:
        result[i] = float(Load<double>(bytes, i));
        break;
      default:
        PD_CHECK(!"a float type of 16 bits or more");
    }
  }
  return result;
}

const std::vector<std::string>& ReadStrings(const Value& value) {
  const auto* strings = std::get_if<std::vector<std::string>>(&value.data);
  PD_CHECK(strings);
  return *strings;
}

bool Operation::operator==(const Operation&) const = default;

const Binding* Operation::Find(std::string_view parameter) const {
  const auto it = inputs.find(std::string(parameter));
  return it == inputs.end() || it->second.empty() ? nullptr : &it->second.front();
}

}  // namespace pd::mil
