#include "model/tensor.h"

#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace pd {

int64_t TensorView::rows() const {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

RowLayout TensorView::Layout() const {
  if (layout) return *layout;
  const auto row = int64_t(row_bytes());
  return {shape.size() == 3 ? shape[1] * row : 0, row, 0};
}

const std::byte* TensorView::RowBegin(int64_t r) const {
  PD_CHECK(r >= 0 && r < rows());
  if (interleaved_heads > 0) {  // half-split row (head, half, i) is stored at (head, i, half)
    const int64_t head_rows = rows() / interleaved_heads, half_rows = head_rows / 2;
    const int64_t head = r / head_rows, within = r % head_rows;
    r = head * head_rows + within % half_rows * 2 + within / half_rows;
  }
  const RowLayout l = Layout();
  if (shape.size() < 3) return bytes.data() + r * l.row;
  return bytes.data() + r / shape[1] * l.matrix + r % shape[1] * l.row;
}

const std::byte* TensorView::Row(int64_t r) const {
  PD_CHECK(has_whole_rows());
  return RowBegin(r);
}

void TensorView::CopyRow(int64_t r, std::byte* out) const {
  const std::byte* from = RowBegin(r);
  if (has_whole_rows()) {
    std::memcpy(out, from, row_bytes());
    return;
  }
  const size_t size = RowBytes(type, 1);
  for (int64_t c = 0; c < columns(); ++c, from += layout->column, out += size) std::memcpy(out, from, size);
}

TensorView TensorView::RowRange(int64_t first, int64_t count) const {
  PD_CHECK(shape.size() >= 2 && interleaved_heads == 0);
  const int64_t all = shape[shape.size() - 2];
  PD_CHECK(first >= 0 && count >= 0 && first + count <= all);
  TensorView part = shape.size() == 3 || layout ? EveryRow(first, 1) : *this;
  part.shape[shape.size() - 2] = count;
  if (part.layout) return part;
  part.bytes = bytes.subspan(size_t(first) * row_bytes(), size_t(count) * row_bytes());
  if (affine) {
    const size_t row = RowBytes(affine->type, columns() / affine->group);
    part.affine->scales = affine->scales.subspan(size_t(first) * row, size_t(count) * row);
    part.affine->biases = affine->biases.subspan(size_t(first) * row, size_t(count) * row);
  }
  return part;
}

TensorView TensorView::EveryRow(int64_t first, int64_t step) const {
  PD_CHECK(shape.size() >= 2 && interleaved_heads == 0 && !affine);
  const int64_t count = shape[shape.size() - 2];
  PD_CHECK(step >= 1 && first >= 0 && first < count);
  TensorView part = *this;
  RowLayout l = Layout();
  part.bytes = bytes.subspan(size_t(first * l.row));
  l.row *= step;
  part.layout = l;
  part.shape[shape.size() - 2] = (count - first + step - 1) / step;
  return part;
}

TensorView TensorView::Transposed() const {
  PD_CHECK(shape.size() >= 2 && !IsQuantised(type) && !layout && interleaved_heads == 0);
  TensorView turned = *this;
  const size_t last = shape.size() - 1;
  std::swap(turned.shape[last], turned.shape[last - 1]);
  const auto size = int64_t(RowBytes(type, 1));
  turned.layout = RowLayout{shape[last] * shape[last - 1] * size, size, shape[last] * size};
  return turned;
}

size_t TensorView::stored_bytes() const {
  return bytes.size() + (affine ? affine->scales.size() + affine->biases.size() : 0);
}

std::vector<float> TensorView::ReadGroups(std::span<const std::byte> all, int64_t r) const {
  PD_CHECK(affine && r >= 0 && r < rows());
  std::vector<float> values(size_t(columns() / affine->group));
  DequantizeRow(affine->type, all.data() + size_t(r) * RowBytes(affine->type, int64_t(values.size())),
                values);
  return values;
}
std::vector<float> TensorView::ReadScales(int64_t r) const { return ReadGroups(affine->scales, r); }
std::vector<float> TensorView::ReadBiases(int64_t r) const { return ReadGroups(affine->biases, r); }

void TensorView::ReadRow(int64_t r, std::span<float> out) const {
  if (!has_whole_rows()) {
    std::vector<std::byte> row(row_bytes());
    CopyRow(r, row.data());
    return DequantizeRow(type, row.data(), out);
  }
  if (!affine) return DequantizeRow(type, Row(r), out);
  const std::vector<float> scales = ReadScales(r), biases = ReadBiases(r);
  const std::byte* codes = Row(r);
  const int bits = AffineBits(type);
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t g = i / size_t(affine->group);
    out[i] = scales[g] * float(ReadCode(codes, bits, int64_t(i))) + biases[g];
  }
}

std::vector<float> TensorView::ReadAll() const {
  std::vector<float> all(size_t(rows() * columns()));
  for (int64_t r = 0; r < rows(); ++r)
    ReadRow(r, std::span(all).subspan(size_t(r * columns()), size_t(columns())));
  return all;
}

void TensorView::Forget() const {
  if (mapped) MappedFile::Forget(bytes);
}

TensorView WithOneAdded(const TensorView& gain) {
  PD_CHECK(gain.shape.size() == 1);
  auto values = std::make_shared<std::vector<float>>(gain.ReadAll());
  for (float& v : *values) v += 1.f;
  return {.name = gain.name,
          .type = DType::kF32,
          .shape = gain.shape,
          .bytes = std::as_bytes(std::span(*values)),
          .owner = values};
}

uint64_t WeightsDigest(const ModelSpec& spec, const Weights<TensorView>& tensors) {
  uint64_t digest = 0;
  ForEachWeight(spec, tensors, [&](const TensorView& t, const WeightInfo& info) {
    digest = Digest(
        fmt::format("{} {} {} {}", info.Name(), Name(t.type), fmt::join(t.shape, "x"), t.interleaved_heads),
        digest);
    if (t.layout)
      digest = Digest(fmt::format("{} {} {}", t.layout->matrix, t.layout->row, t.layout->column), digest);
    digest = Digest(t.bytes, digest);
    if (t.affine) {
      digest = Digest(fmt::format("{} {}", t.affine->group, Name(t.affine->type)), digest);
      digest = Digest(t.affine->biases, Digest(t.affine->scales, digest));
    }
    t.Forget();
  });
  return digest;
}

}  // namespace pd
