// Random models as model sources.
#pragma once
#include <utility>

#include "formats/model_source.h"
#include "tests/tiny_model.h"

namespace pd::test {

inline ModelSource SourceOf(TinyModel model) {
  ModelSource source;
  source.path = "random";
  source.family = "test";
  source.spec = std::move(model.spec);
  source.tensors = std::move(model.tensors);
  return source;
}

// Weights are stored as halves, so that an fp16 package keeps them exactly.
inline ModelSource RandomSource(const ModelSpec& spec) {
  TinyModel model = RandomModel(spec);
  ForEachWeight(model.spec, model.tensors, [](TensorView& t, const WeightInfo&) {
    const std::vector<float> values = t.ReadAll();
    auto halves = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(F16));
    StoreRow(DType::kF16, values, halves->data());
    t.type = DType::kF16;
    t.bytes = *halves;
    t.owner = std::move(halves);
  });
  return SourceOf(std::move(model));
}

}  // namespace pd::test
