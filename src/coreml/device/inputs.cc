#include "coreml/device/inputs.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/rope.h"

namespace pd {

std::vector<F16>& InputMaker::Buffer(const std::string& name, size_t elements) {
  std::vector<F16>& buffer = buffers_[name];
  buffer.assign(elements, F16{0});
  return buffer;
}

void InputMaker::Add(const std::string& name, const mil::Dims& shape, HalfTensors& inputs) const {
  const std::vector<F16>& buffer = buffers_.at(name);
  inputs[name] = {shape, mil::DenseStrides(shape), buffer.data(), nullptr};
}

void InputMaker::AddEmbedded(const PlannedCall& call, std::span<const TokenId> ids, HalfTensors& inputs) {
  PD_CHECK(int(ids.size()) == call.count && call.count <= call.shape.tokens);
  const auto width = size_t(spec_.width), tokens = size_t(call.shape.tokens);
  std::vector<F16>& x = Buffer(mil::kHidden, width * tokens);
  std::vector<float> row(width);
  for (size_t t = 0; t < ids.size(); ++t) {
    if (ids[t] < 0 || ids[t] >= spec_.vocab)
      throw Fail(ErrorKind::kBadRequest, "token {} is outside the vocabulary of {}", ids[t], spec_.vocab);
    embed_.ReadRow(ids[t], row);
    for (size_t c = 0; c < width; ++c) x[c * tokens + t] = ToF16(scale_ * row[c]);
  }
  Add(mil::kHidden, {1, int64_t(width), 1, int64_t(tokens)}, inputs);
}

void InputMaker::AddTables(const PlannedCall& call, const RopeVariant& variant, HalfTensors& inputs) {
  const mil::PrefillInterface interface = mil::InterfaceOf(spec_, call.shape.history);
  const int64_t tokens = call.shape.tokens;
  for (const mil::RopeInput& rope : interface.ropes) {
    FillRope(rope, call, variant);
    Add(rope.cos, {1, 1, rope.head_dim, tokens}, inputs);
    Add(rope.sin, {1, 1, rope.head_dim, tokens}, inputs);
  }
  for (const mil::MaskInput& mask : interface.masks) {
    FillMask(mask, call);
    const int64_t keys = mask.past + tokens;
    const bool channels = form_ == mil::AttentionForm::kChannels;
    Add(mask.name, channels ? mil::Dims{1, keys, 1, tokens} : mil::Dims{1, 1, tokens, keys}, inputs);
  }
}

void InputMaker::FillRope(const mil::RopeInput& input, const PlannedCall& call, const RopeVariant& variant) {
  const auto tokens = size_t(call.shape.tokens), d = size_t(input.head_dim),
             half = size_t(input.rope.dims) / 2;
  const RopeFrequencies f = Frequencies(input.rope, variant);
  std::vector<F16>& cos = Buffer(input.cos, d * tokens);
  std::vector<F16>& sin = Buffer(input.sin, d * tokens);
  for (size_t i = 0; i < half; ++i)
    for (size_t t = 0; t < tokens; ++t) {
      const double angle = double(call.first + int(t)) * f.inverse[i];
      cos[i * tokens + t] = cos[(i + half) * tokens + t] = ToF16(float(std::cos(angle) * f.scale));
      sin[(i + half) * tokens + t] = ToF16(float(std::sin(angle) * f.scale));
      sin[i * tokens + t] = ToF16(-float(std::sin(angle) * f.scale));
    }
  std::fill(cos.begin() + std::ptrdiff_t(2 * half * tokens), cos.end(),
            ToF16(1));  // dimensions that are not rotated
}

// Column c < past holds token base + c, column past + j token first + j. A row sees itself and earlier tokens
// within its window. The same goes for padding rows, whose results are ignored.
void InputMaker::FillMask(const mil::MaskInput& input, const PlannedCall& call) {
  const int tokens = call.shape.tokens, past = input.past, keys = past + tokens;
  const int base = std::max(0, call.first - past);
  std::vector<F16>& mask = Buffer(input.name, size_t(tokens) * size_t(keys));
  const F16 hidden = ToF16(mil::kMasked);
  const bool channels = form_ == mil::AttentionForm::kChannels;
  for (int r = 0; r < tokens; ++r) {
    const int row = call.first + r, oldest = input.window ? row - input.window->size + 1 : 0;
    for (int c = 0; c < keys; ++c) {
      const int token = c < past ? base + c : call.first + c - past;
      const bool held = c >= past || token < call.first;
      if (held && token >= oldest && token <= row) continue;
      mask[channels ? size_t(c) * size_t(tokens) + size_t(r) : size_t(r) * size_t(keys) + size_t(c)] = hidden;
    }
  }
}

}  // namespace pd
