// Runs sample text in float, layer by layer, reading weights as needed. Measures how large activations get
// and which input channels matter, and keeps the keys and values.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "coreml/export/encode.h"
#include "cpu/pool.h"
#include "model/rows.h"
#include "model/tensor.h"

namespace pd {

// A weight that is read row by row and not kept in memory.
struct StreamedWeight {
  WeightInfo info;
  std::function<void(int64_t row, std::span<float> values)> read;  // canonical rows, as in TensorView
  std::function<void()> forget;  // call after the last row: its pages may leave memory
};
// The source's weights, rounded to fp16: what an fp16 package computes with. The tensors must outlive the
// result.
Weights<StreamedWeight> StreamSource(const ModelSpec& spec, const Weights<TensorView>& tensors);
// Weights decoded from a weight file's constants, without the folded factors; `tensors` provides the
// embedding. The arguments must outlive the result.
Weights<StreamedWeight> StreamEncoded(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                      const mil::RangeScales& scales,
                                      const Weights<mil::EncodedWeight>& encoded,
                                      const std::vector<const BlobFile*>& file_of_layer);

// For one layer: the largest magnitudes, and the keys (rotated) and values.
struct LayerSample {
  float stream = 0;    // the residual stream at the start of the layer and between its two blocks
  float attn_out = 0;  // output of attention's last projection
  float hidden = 0;    // act(gate) * up, and up alone
  float mlp_out = 0;   // output of the MLP's last projection
  float other = 0;     // normed streams, q, k, v, scores, attention's outputs, gate
  std::vector<float> keys, values;  // [tokens, K*D]
};

struct SamplePass {
  std::vector<LayerSample> layers;
  Importance importance;
};
// Calls layer_done(n) after each layer, on the caller's thread. The weights' `read` is called on any of the
// pool's threads, and must not throw there.
SamplePass RunSample(const ModelSpec& spec, const Weights<StreamedWeight>& weights,
                     std::span<const TokenId> tokens, ThreadPool& pool,
                     const std::function<void(int)>& layer_done);

// For two lists of equal length.
double Cosine(std::span<const float> a, std::span<const float> b);
double RmsRatio(std::span<const float> a, std::span<const float> b);  // rms(a) / rms(b)

}  // namespace pd
