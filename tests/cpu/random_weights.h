// Tensors of any type with values like a model's.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "model/tensor.h"

namespace pd::test {

// [n, k]; about 1 / sqrt(k) in size. Quantised types get random blocks, so every bit pattern of a value
// occurs.
inline TensorView RandomTensor(DType type, int64_t n, int64_t k, unsigned seed) {
  std::mt19937 generator(seed);
  auto memory = std::make_shared<std::vector<std::byte>>(size_t(n) * RowBytes(type, k));
  const float size = 1.5f / std::sqrt(float(k));
  if (!IsQuantised(type)) {
    std::normal_distribution<float> normal(0, size);
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t r = 0; r < n; ++r) {
      for (float& v : row) v = normal(generator);
      StoreRow(type, row, memory->data() + size_t(r) * RowBytes(type, k));
    }
  } else {
    const auto block = size_t(Info(type).block_bytes);
    for (std::byte& b : *memory) b = std::byte(generator());
    for (size_t at = 0; at < memory->size(); at += block) {
      const float steps = type == DType::kQ8_0 ? 73.f : 4.6f;  // root mean square of uniform quants
      const float scale = size / steps * (0.5f + float(generator() % 256) / 256.f);
      const F16 d = ToF16(scale), m = ToF16(-scale * (7 + float(generator() % 256) / 256.f));
      std::memcpy(memory->data() + at, &d, 2);
      if (type == DType::kQ4_1) std::memcpy(memory->data() + at + 2, &m, 2);
    }
  }
  return {"random", type, {n, k}, *memory, memory, 0};
}

}  // namespace pd::test
