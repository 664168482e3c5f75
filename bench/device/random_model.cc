#include "bench/device/random_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"

namespace pd::bench {
namespace {

ModelSpec Llama(int width, int layers, int heads, int kv_heads, int hidden, int vocab) {
  AttentionSpec attention;
  attention.heads = heads, attention.kv_heads = kv_heads, attention.head_dim = width / heads;
  attention.scale = 1 / std::sqrt(float(attention.head_dim));
  attention.rope = RopeSpec{10000, attention.head_dim};
  ModelSpec spec;
  spec.width = width, spec.vocab = vocab, spec.max_context = 32768;
  spec.layers.assign(size_t(layers), PreNormLayer({}, attention, {.hidden = hidden}));
  return spec;
}

ModelSpec SpecOf(const std::string& shape) {
  if (shape == "tiny") return Llama(2048, 22, 32, 4, 5632, 32000);
  if (shape == "7b") return Llama(4096, 32, 32, 8, 14336, 32000);
  if (shape == "small") return Llama(512, 3, 8, 2, 1536, 4000);
  throw Fail(ErrorKind::kBadRequest, "--shape {}: choose tiny, 7b or small", shape);
}

DType TypeOf(const std::string& weights) {
  if (weights == "q4") return DType::kQ4_0;
  if (weights == "q8") return DType::kQ8_0;
  if (weights == "f16") return DType::kF16;
  throw Fail(ErrorKind::kBadRequest, "--weights {}: choose q4, q8 or f16", weights);
}

// Values of deviation 0.02, so that activations keep a size that 16 bits hold.
std::vector<std::byte> RandomBytes(DType type, size_t bytes) {
  std::mt19937_64 generator(1);
  std::vector<std::byte> out(bytes + 8);
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = generator();
    std::memcpy(&out[at], &word, 8);
  }
  out.resize(bytes);
  if (type == DType::kF16) {
    std::vector<uint16_t> normal(1 << 16);
    std::normal_distribution<float> distribution(0, 0.02f);
    for (uint16_t& v : normal) v = ToF16(distribution(generator)).bits;
    for (size_t at = 0; at + 2 <= bytes; at += 2) {
      uint16_t which;
      std::memcpy(&which, &out[at], 2);
      std::memcpy(&out[at], &normal[which], 2);
    }
    return out;
  }
  // Codes without the one that has no opposite: a mean that is not zero adds up over a row, and over the
  // layers until f16 overflows.
  for (std::byte& b : out) {
    if (type == DType::kQ8_0) {
      if (b == std::byte(0x80)) b = std::byte(0);
    } else {
      if ((b & std::byte(0x0f)) == std::byte(0)) b |= std::byte(0x08);
      if ((b & std::byte(0xf0)) == std::byte(0)) b |= std::byte(0x80);
    }
  }
  const F16 scale = ToF16(type == DType::kQ4_0 ? 0.0046f : 0.00027f);
  const auto block = size_t(Info(type).block_bytes);
  for (size_t at = 0; at < bytes; at += block) std::memcpy(&out[at], &scale, 2);
  return out;
}

}  // namespace

RandomModel MakeRandomModel(const std::string& shape, const std::string& weights) {
  RandomModel model{shape + " " + weights, SpecOf(shape), {}};
  const DType type = TypeOf(weights);
  size_t largest = 0;
  for (const WeightInfo& info : ListWeights(model.spec))
    if (info.shape.size() == 2)
      largest = std::max(largest, size_t(info.shape[0]) * RowBytes(type, info.shape[1]));
  const auto bytes = std::make_shared<std::vector<std::byte>>(RandomBytes(type, largest));
  const auto ones = std::make_shared<std::vector<float>>(size_t(model.spec.width), 1.f);
  MakeRoom(model.spec, model.tensors);
  ForEachWeight(model.spec, model.tensors, [&](TensorView& t, const WeightInfo& info) {
    if (info.shape.size() == 1) {
      t = {info.Name(), DType::kF32, info.shape, std::as_bytes(std::span(*ones)), ones, 0};
    } else {
      const size_t size = size_t(info.shape[0]) * RowBytes(type, info.shape[1]);
      t = {info.Name(), type, info.shape, std::span(*bytes).first(size), bytes, 0};
    }
  });
  return model;
}

}  // namespace pd::bench
