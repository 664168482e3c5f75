#include "model/tensor.h"

#include <fmt/ranges.h>
#include "base/digest.h"
#include "base/error.h"
#include "base/mapped_file.h"

namespace pd {

const std::byte* TensorView::Row(int64_t r) const {
  PD_CHECK(r >= 0 && r < rows());
  if (interleaved_heads > 0) {  // half-split row (head, half, i) is stored at (head, i, half)
    const int64_t head_rows = rows() / interleaved_heads, half_rows = head_rows / 2;
    const int64_t head = r / head_rows, within = r % head_rows;
    r = head * head_rows + within % half_rows * 2 + within / half_rows;
  }
  return bytes.data() + size_t(r) * row_bytes();
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

uint64_t WeightsDigest(const ModelSpec& spec, Weights<TensorView>& tensors) {
  uint64_t digest = 0;
  ForEachWeight(spec, tensors, [&](TensorView& t, const WeightInfo& info) {
    digest = Digest(
        fmt::format("{} {} {} {}", info.name, Name(t.type), fmt::join(t.shape, "x"), t.interleaved_heads),
        digest);
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
