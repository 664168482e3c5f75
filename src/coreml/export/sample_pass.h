// A pass over sample text in float, layer by layer, with weights read as they are needed: how large
// activations get, which input channels matter, and what keys and values come out.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "coreml/export/encode.h"
#include "cpu/pool.h"
#include "model/rows.h"
#include "model/tensor.h"

namespace pd {

// A weight that is read a row at a time and kept nowhere.
struct StreamedWeight {
  WeightInfo info;
  std::function<void(int64_t row, std::span<float> values)> read;  // canonical rows, as in TensorView
  std::function<void()> forget;  // after the last row: its pages may leave memory
};
// Of the source, rounded to fp16: what an fp16 package computes with. The tensors must outlive the weights.
Weights<StreamedWeight> StreamSource(const ModelSpec& spec, const Weights<TensorView>& tensors);
// Of a weight file, as its constants decode, without what was folded in; `tensors` gives the embedding. The
// arguments must outlive the weights.
Weights<StreamedWeight> StreamEncoded(const ModelSpec& spec, const Weights<TensorView>& tensors,
                                      const mil::RangeScales& scales,
                                      const Weights<mil::EncodedWeight>& encoded,
                                      const std::vector<const BlobFile*>& file_of_layer);

// Of one layer: the largest magnitudes, and the keys (rotated) and values.
struct LayerSample {
  float stream = 0;                 // the residual stream at the layer's begin and between its two blocks
  float attn_out = 0;               // what attention's last projection gives
  float hidden = 0;                 // act(gate) * up, and up alone
  float mlp_out = 0;                // what the MLP's last projection gives
  float other = 0;                  // normed streams, q, k, v, scores, attention's outputs, gate
  std::vector<float> keys, values;  // [tokens, K*D]
};

struct SamplePass {
  std::vector<LayerSample> layers;
  Importance importance;
};
// layer_done(n) is called after each layer, on the caller's thread; `read` of the weights on any of the
// pool's, and it must not throw there.
SamplePass RunSample(const ModelSpec& spec, const Weights<StreamedWeight>& weights,
                     std::span<const TokenId> tokens, ThreadPool& pool,
                     const std::function<void(int)>& layer_done);

// Of two equally long lists.
double Cosine(std::span<const float> a, std::span<const float> b);
double RmsRatio(std::span<const float> a, std::span<const float> b);  // rms(a) / rms(b)

}  // namespace pd
