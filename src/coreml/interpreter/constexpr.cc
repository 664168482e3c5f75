// Decompresses the weights of a program.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "coreml/interpreter/constants.h"
#include "coreml/interpreter/numbers.h"

namespace pd::interp {
namespace {

using Buffer = std::vector<std::byte>;

// The operands of one op.
class Stored {
 public:
  explicit Stored(const ConstantOperands& operands) : operands_(operands) {}

  const Constant* Find(std::string_view parameter) const {
    const auto it = operands_.find(parameter);
    return it == operands_.end() ? nullptr : &it->second;
  }
  const Constant& Get(std::string_view parameter) const {
    const Constant* constant = Find(parameter);
    if (!constant) throw Fail(ErrorKind::kCorruptFile, "'{}' is missing", parameter);
    return *constant;
  }
  const Dims& ShapeOf(std::string_view parameter) const { return Get(parameter).type.shape; }

 private:
  const ConstantOperands& operands_;
};

uint64_t BitsAt(std::span<const std::byte> bytes, int64_t i, int bits) {
  if (bits == 8) return uint8_t(bytes[size_t(i)]);
  if (bits == 4) return uint8_t(bytes[size_t(i / 2)]) >> i % 2 * 4 & 15;
  uint64_t value = 0;
  for (int b = 0; b < bits; ++b) {
    const int64_t at = i * bits + b;
    value |= uint64_t(uint8_t(bytes[size_t(at / 8)]) >> at % 8 & 1) << b;
  }
  return value;
}

// Elements of a constant of any float or integer type up to 32 bits, sub-byte ones included.
class Elements {
 public:
  explicit Elements(const Constant& constant) : type_(constant.type), bytes_(constant.Bytes(owner_)) {
    if (bytes_.size() != mil::ByteSize(type_))
      throw Fail(ErrorKind::kCorruptFile, "{} in {} bytes", ToString(type_), bytes_.size());
    const bool whole = mil::Bits(type_.dtype) >= 8;
    if (whole && !IsRunTimeType(type_.dtype))
      throw Fail(ErrorKind::kUnsupported, "a constant of type {}", mil::Name(type_.dtype));
    if (whole) view_ = MakeView(type_.dtype, {}, {}, const_cast<std::byte*>(bytes_.data()));
  }
  int64_t count() const { return mil::Elements(type_); }
  const Dims& shape() const { return type_.shape; }
  std::span<const std::byte> bytes() const { return bytes_; }
  // Elements [first, first + n).
  void Load(int64_t first, int64_t n, double* out) const {
    if (view_.data) return LoadDoubles(view_, first, 1, n, out);
    const int bits = mil::Bits(type_.dtype);
    const bool is_signed = type_.dtype == DataType::kI4;
    for (int64_t i = 0; i < n; ++i) {
      const auto value = int64_t(BitsAt(bytes_, first + i, bits));
      out[i] = double(is_signed && value >= 8 ? value - 16 : value);
    }
  }
  std::vector<double> All() const {
    std::vector<double> all(static_cast<size_t>(count()));
    Load(0, count(), all.data());
    return all;
  }

 private:
  mil::TensorType type_;
  ConstantBytes owner_;
  std::span<const std::byte> bytes_;
  View view_;
};

// Makes the result piece by piece: f(first, n, out).
template <class F>
ConstantBytes Fill(const mil::TensorType& type, ThreadPool& pool, F f) {
  if (mil::Bits(type.dtype) < 8 || !IsRunTimeType(type.dtype))
    throw Fail(ErrorKind::kUnsupported, "a result of type {}", mil::Name(type.dtype));
  constexpr int64_t kPiece = 512;
  auto bytes = std::make_shared<Buffer>(mil::ByteSize(type));
  const View out = MakeView(type.dtype, {}, {}, bytes->data());
  pool.Split(mil::Elements(type), 8 * kPiece, [&](int64_t begin, int64_t end) {
    double piece[kPiece];
    for (int64_t first = begin; first < end; first += kPiece) {
      const int64_t n = std::min(kPiece, end - first);
      f(first, n, piece);
      StoreDoubles(out, first, 1, n, piece);
    }
  });
  return bytes;
}

// A tensor cut into blocks of equal size on every axis: each has one scale, offset or table.
class Blocks {
 public:
  Blocks(const Dims& shape, const Dims& blocks) : shape_(shape) {
    for (size_t a = 0; a < shape.size(); ++a) {
      if (blocks[a] < 1 || shape[a] % blocks[a] != 0)
        throw Fail(ErrorKind::kCorruptFile, "{} blocks on an axis of {}", blocks[a], shape[a]);
      sizes_.push_back(shape[a] / blocks[a]);
    }
    strides_ = DenseStrides(Dims(blocks.begin(), blocks.begin() + std::ptrdiff_t(shape.size())));
    for (size_t a = shape.size(); a-- > 0;) {
      run_ *= std::max<int64_t>(sizes_[a], 1);
      if (blocks[a] != 1) break;
    }
  }
  // The block of element i.
  int64_t Of(int64_t i) const {
    int64_t at = 0;
    for (size_t a = shape_.size(); a-- > 0;) {
      at += i % shape_[a] / sizes_[a] * strides_[a];
      i /= shape_[a];
    }
    return at;
  }
  // Calls f(block, i) for the n elements from `first`; i counts from `first`.
  template <class F>
  void ForEach(int64_t first, int64_t n, F f) const {
    for (int64_t i = 0; i < n;) {
      const int64_t block = Of(first + i), end = std::min(n, i + run_ - (first + i) % run_);
      for (; i < end; ++i) f(block, i);
    }
  }

 private:
  Dims shape_, sizes_, strides_;
  int64_t run_ = 1;  // consecutive elements of one block
};

int64_t AxisOf(const Elements& axis, size_t rank) {
  const auto given = int64_t(axis.All().at(0));
  const int64_t a = given < 0 ? given + int64_t(rank) : given;
  if (a < 0 || a >= int64_t(rank)) throw Fail(ErrorKind::kCorruptFile, "axis {} of rank {}", given, rank);
  return a;
}

// scale * (data - offset) in the scale's type, rounded once: differences of stored integers are exact.
ConstantBytes BlockwiseShiftScale(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const Elements data(in.Get("data"));
  const Constant& scales = in.Get("scale");
  const Blocks blocks(data.shape(), scales.type.shape);
  const auto scale = Elements(scales).All();
  const Constant* given = in.Find("offset");
  const auto offset = given ? Elements(*given).All() : std::vector<double>(scale.size());
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    data.Load(first, n, out);
    blocks.ForEach(first, n,
                   [&](int64_t b, int64_t i) { out[i] = scale[size_t(b)] * (out[i] - offset[size_t(b)]); });
  });
}

// The older form: scale and zero point are scalars, or vectors along an axis.
ConstantBytes AffineDequantize(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const Elements data(in.Get("quantized_data"));
  const auto scale = Elements(in.Get("scale")).All(), zero = Elements(in.Get("zero_point")).All();
  const Dims& shape = data.shape();
  const auto axis = size_t(AxisOf(Elements(in.Get("axis")), shape.size()));
  const int64_t inner = DenseStrides(shape)[axis], size = shape[axis];
  for (const auto* values : {&scale, &zero})
    if (values->size() != 1 && int64_t(values->size()) != size)
      throw Fail(ErrorKind::kCorruptFile, "{} scales or zero points for an axis of {}", values->size(), size);
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    data.Load(first, n, out);
    for (int64_t i = 0; i < n; ++i) {
      const auto c = size_t((first + i) / inner % size);
      out[i] = scale[scale.size() == 1 ? 0 : c] * (out[i] - zero[zero.size() == 1 ? 0 : c]);
    }
  });
}

// The older form: packed bytes, one table; as many bits as the table needs.
ConstantBytes PackedLookUp(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const Elements indices(in.Get("indices"));
  const auto table = Elements(in.Get("lut")).All();
  int bits = 0;
  while (bits < 8 && size_t(1) << bits < table.size()) ++bits;
  if (table.size() != size_t(1) << bits || bits == 0)
    throw Fail(ErrorKind::kCorruptFile, "a table of {} entries", table.size());
  if (int64_t(indices.bytes().size()) * 8 < mil::Elements(type) * bits)
    throw Fail(ErrorKind::kCorruptFile, "{} bytes of indices for {}", indices.bytes().size(), ToString(type));
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    for (int64_t i = 0; i < n; ++i) out[i] = table[size_t(BitsAt(indices.bytes(), first + i, bits))];
  });
}

void WantUnsigned(const Constant& indices) {
  const DataType t = indices.type.dtype;
  if (mil::IsFloat(t) || t == DataType::kI4 || t == DataType::kI8)
    throw Fail(ErrorKind::kCorruptFile, "indices of type {}", mil::Name(t));
}

// Index (i, j, ...) chooses a vector in the table of its block; vectors lie along vector_axis.
ConstantBytes LookUp(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  if (in.Find("shape")) return PackedLookUp(in, type, pool);
  WantUnsigned(in.Get("indices"));
  const Elements indices(in.Get("indices"));
  const Constant& tables = in.Get("lut");
  const auto table = Elements(tables).All();
  const size_t rank = indices.shape().size();
  const int64_t entries = tables.type.shape.at(rank), vector = tables.type.shape.at(rank + 1);
  const Blocks blocks(indices.shape(), tables.type.shape);
  if (vector == 1)
    return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
      indices.Load(first, n, out);
      blocks.ForEach(first, n,
                     [&](int64_t b, int64_t i) { out[i] = table[size_t(b * entries + int64_t(out[i]))]; });
    });
  const auto axis = size_t(AxisOf(Elements(in.Get("vector_axis")), rank));
  const int64_t inner = DenseStrides(type.shape)[axis], size = type.shape[axis];
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = first + i, outer = at / (inner * size), along = at / inner % size;
      const int64_t index = (outer * (size / vector) + along / vector) * inner + at % inner;
      double entry;
      indices.Load(index, 1, &entry);
      out[i] = table[size_t((blocks.Of(index) * entries + int64_t(entry)) * vector + along % vector)];
    }
  });
}

// For every element, its index among the stored nonzero elements; -1 if it is zero.
std::vector<int64_t> PlacesOf(const Constant& mask, int64_t count, int64_t stored) {
  const Elements bits(mask);
  if (int64_t(bits.bytes().size()) * 8 < count)
    throw Fail(ErrorKind::kCorruptFile, "a mask of {} bytes for {} elements", bits.bytes().size(), count);
  std::vector<int64_t> places(size_t(count), -1);
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i)
    if (BitsAt(bits.bytes(), i, 1)) places[size_t(i)] = next++;
  if (next != stored)
    throw Fail(ErrorKind::kCorruptFile, "a mask with {} ones for {} elements", next, stored);
  return places;
}

ConstantBytes SparseToDense(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const auto data = Elements(in.Get("nonzero_data")).All();
  const auto places = PlacesOf(in.Get("mask"), mil::Elements(type), int64_t(data.size()));
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = places[size_t(first + i)];
      out[i] = at < 0 ? 0 : data[size_t(at)];
    }
  });
}

ConstantBytes CopyOf(const Constant& constant) {
  ConstantBytes owner;
  const auto bytes = constant.Bytes(owner);
  return std::make_shared<Buffer>(bytes.begin(), bytes.end());
}

// The positions of the stored elements in the dense tensor.
std::vector<int64_t> Positions(const Constant& mask, int64_t stored) {
  const auto places = PlacesOf(mask, mil::Elements(mask.type), stored);
  std::vector<int64_t> positions(static_cast<size_t>(stored));
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i] >= 0) positions[size_t(places[i])] = int64_t(i);
  return positions;
}

ConstantBytes SparseLookUp(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const Constant &mask = in.Get("indices_mask"), &stored = in.Get("indices_nonzero_data"),
                 &tables = in.Get("lut");
  WantUnsigned(stored);
  const auto indices = Elements(stored).All(), table = Elements(tables).All();
  const size_t rank = mask.type.shape.size();
  if (tables.type.shape.size() != rank + 2 || tables.type.shape[rank + 1] != 1)
    throw Fail(ErrorKind::kUnsupported, "a sparse table of vectors");
  const int64_t entries = tables.type.shape[rank];
  if (entries != int64_t(1) << mil::Bits(stored.type.dtype))
    throw Fail(ErrorKind::kCorruptFile, "a table of {} entries", entries);
  const Blocks blocks(mask.type.shape, tables.type.shape);
  const auto positions = Positions(mask, int64_t(indices.size()));
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = size_t(first + i);
      out[i] = table[size_t(blocks.Of(positions[at]) * entries + int64_t(indices[at]))];
    }
  });
}

ConstantBytes SparseShiftScale(const Stored& in, const mil::TensorType& type, ThreadPool& pool) {
  const Constant &mask = in.Get("data_mask"), &scales = in.Get("scale");
  const auto data = Elements(in.Get("nonzero_data")).All(), scale = Elements(scales).All();
  const Constant* given = in.Find("offset");
  const auto offset = given ? Elements(*given).All() : std::vector<double>(scale.size());
  if (scales.type.shape.size() != mask.type.shape.size() || offset.size() != scale.size())
    throw Fail(ErrorKind::kCorruptFile, "the scales and offsets do not match the mask");
  const Blocks blocks(mask.type.shape, scales.type.shape);
  const auto positions = Positions(mask, int64_t(data.size()));
  return Fill(type, pool, [&](int64_t first, int64_t n, double* out) {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = size_t(first + i), b = size_t(blocks.Of(positions[at]));
      out[i] = scale[b] * (data[at] - offset[b]);
    }
  });
}

}  // namespace

ConstantBytes ComputeConstexpr(const std::string& op, const ConstantOperands& operands, size_t index,
                               const mil::TensorType& type, ThreadPool& pool) {
  const Stored in(operands);
  if (op == "constexpr_blockwise_shift_scale") return BlockwiseShiftScale(in, type, pool);
  if (op == "constexpr_affine_dequantize") return AffineDequantize(in, type, pool);
  if (op == "constexpr_lut_to_dense") return LookUp(in, type, pool);
  if (op == "constexpr_sparse_to_dense") return SparseToDense(in, type, pool);
  if (op == "constexpr_lut_to_sparse")
    return index == 0 ? CopyOf(in.Get("indices_mask")) : SparseLookUp(in, type, pool);
  if (op == "constexpr_sparse_blockwise_shift_scale")
    return index == 0 ? CopyOf(in.Get("data_mask")) : SparseShiftScale(in, type, pool);
  if (op == "constexpr_cast") {
    const Elements source(in.Get("source_val"));
    return Fill(type, pool, [&](int64_t first, int64_t n, double* out) { source.Load(first, n, out); });
  }
  throw Fail(ErrorKind::kUnsupported, "the interpreter does not support this constexpr op");
}

}  // namespace pd::interp
