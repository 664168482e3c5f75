// Weights in the forms that MLX multiplies, made from a file's tensors.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "mlx/arrays.h"
#include "model/tensor.h"

namespace pd {

// A gain or bias [n], a plain matrix [out, in], or affine codes: value = scale * code + bias, with a scale
// and a bias for each group of neighbours in a row.
struct MlxWeight {
  std::optional<mx::array> values;          // the values, or `bits`-bit codes in u32 words, the first lowest:
                                            // [out, in * bits / 32]
  std::optional<mx::array> scales, biases;  // of codes: [out, in / group]
  int bits = 0, group = 0;                  // bits 0: plain
  // This matrix is some rows of a larger one: q over k over v, gate over up. One product computes all of
  // them.
  std::shared_ptr<const LinearWeights<MlxWeight>> stack;
  int stack_row = 0;  // first row in the stack

  int out() const { return values->shape(0); }
};

struct MlxWeightOptions {
  mx::Dtype activations = mx::float32;  // scales, biases and plain values take this type
  int quantise_bits = 0;                // MlxOptions
};

// Changes to matrices that the device holds in another form than the file.
struct MlxWeightChanges {
  struct Change {
    int matrices = 0;
    size_t file_bytes = 0, device_bytes = 0;
    float rounding = 0;  // largest relative error of scales and biases
  };
  std::map<DType, Change> rounded;  // codes unchanged, scales and biases rounded to the activations' type
  std::map<DType, Change> plain;    // held as values of the activations' type
  Change requantised;
};

// Bytes in the device's memory.
size_t BytesOf(const TensorView& tensor, const WeightInfo& info, const MlxWeightOptions& options);

// All weights, evaluated, in the device's memory.
// Throws kUnsupported when a scale is beyond the activations' range; the remedy is another activation type.
Weights<MlxWeight> LoadWeights(const ModelSpec& spec, const Weights<TensorView>& tensors,
                               const MlxWeightOptions& options, MlxWeightChanges* changes = nullptr,
                               const std::function<void(size_t done, size_t total)>& progress = {});

// [n, in] in the type of the activations: rows `ids` [n] of a table.
mx::array TakeRows(const MlxWeight& table, const mx::array& ids, mx::Dtype activations);

// x [N, in] * w^T: [N, out].
mx::array Product(const mx::array& x, const MlxWeight& w);

}  // namespace pd
