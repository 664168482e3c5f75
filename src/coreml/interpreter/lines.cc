#include "coreml/interpreter/lines.h"

namespace pd::interp {

Lines::Lines(const View& v, std::span<const size_t> axes) {
  kept_.dtype = along_.dtype = v.dtype;
  kept_.data = along_.data = v.data;
  for (size_t a = 0; a < v.rank; ++a)
    if (std::find(axes.begin(), axes.end(), a) == axes.end()) kept_.AddAxis(v.shape[a], v.strides[a]);
  // Joins axes that are contiguous with each other, so that one axis remains in the usual cases.
  for (size_t a : axes) {
    if (v.shape[a] == 1) continue;
    const size_t last = along_.rank - 1;
    if (along_.rank > 0 && along_.strides[last] == v.shape[a] * v.strides[a])
      along_.shape[last] *= v.shape[a], along_.strides[last] = v.strides[a];
    else
      along_.AddAxis(v.shape[a], v.strides[a]);
  }
}

int64_t Lines::OffsetOf(int64_t line) const {
  int64_t at = 0;
  for (size_t a = kept_.rank; a-- > 0;) {
    at += line % kept_.shape[a] * kept_.strides[a];
    line /= kept_.shape[a];
  }
  return at;
}

void Lines::Load(int64_t line, double* out) const {
  const int64_t base = OffsetOf(line);
  const Rows<1> rows({&along_});
  rows.ForEach(0, rows.count(), [&](const auto& at, int64_t n) {
    LoadDoubles(along_, base + at[0], rows.steps()[0], n, out);
    out += n;
  });
}

void Lines::Store(int64_t line, const double* x) const {
  const int64_t base = OffsetOf(line);
  const Rows<1> rows({&along_});
  rows.ForEach(0, rows.count(), [&](const auto& at, int64_t n) {
    StoreDoubles(along_, base + at[0], rows.steps()[0], n, x);
    x += n;
  });
}

bool Lines::Turns() const {
  return kept_.dtype == DataType::kF16 && along_.rank == 1 && along_.strides[0] != 1 && kept_.rank > 0 &&
         kept_.strides[kept_.rank - 1] == 1;
}

int64_t Lines::Beside(int64_t first) const {
  if (!Turns()) return 1;
  const int64_t size = kept_.shape[kept_.rank - 1];
  return size - first % size;
}

void Lines::LoadFloats(const cpu::Kernels& kernels, int64_t first, int64_t n, float* out,
                       int64_t stride) const {
  if (Turns()) {
    kernels.transpose_from_half(kept_.as<uint16_t>() + OffsetOf(first), along_.strides[0], int(length()),
                                int(n), out, stride);
    return;
  }
  for (int64_t i = 0; i < n; ++i, out += stride) {
    const int64_t base = OffsetOf(first + i);
    float* to = out;
    const Rows<1> rows({&along_});
    rows.ForEach(0, rows.count(), [&](const auto& at, int64_t count) {
      interp::LoadFloats(kernels, along_, base + at[0], rows.steps()[0], count, to);
      to += count;
    });
  }
}

void Lines::StoreFloats(const cpu::Kernels& kernels, int64_t first, int64_t n, const float* x,
                        int64_t stride) const {
  if (Turns()) {
    kernels.transpose_to_half(x, stride, int(n), int(length()), kept_.as<uint16_t>() + OffsetOf(first),
                              along_.strides[0]);
    return;
  }
  for (int64_t i = 0; i < n; ++i, x += stride) {
    const int64_t base = OffsetOf(first + i);
    const float* from = x;
    const Rows<1> rows({&along_});
    rows.ForEach(0, rows.count(), [&](const auto& at, int64_t count) {
      interp::StoreFloats(kernels, along_, base + at[0], rows.steps()[0], count, from);
      from += count;
    });
  }
}

}  // namespace pd::interp
