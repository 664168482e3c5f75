// A model's weights as constants of a program, and the factors folded into them when they are written.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "coreml/mil/program.h"
#include "model/weights.h"

namespace pd::mil {

// Input channels [first, first + inputs) of a matrix, or a whole vector: a "const" with operand "val", or a
// constexpr op with its operands.
struct EncodedPart {
  int64_t first = 0, inputs = 0;
  std::string op;
  std::vector<std::pair<std::string, Value>> operands;
};

// A matrix [out, in] is stored as [out, inputs, 1, 1] in one part, or several when one convolution would be
// slow (see SplitInputs). Gains over the stream are [1, n, 1, 1], head gains [1, 1, D, 1], biases [n].
struct EncodedWeight {
  WeightInfo info;
  std::vector<EncodedPart> parts;
};

// Powers of two that keep activations within fp16. They are folded into weights and epsilons, which is exact,
// since norms divide the scale out again, or the projections that read without one.
struct LayerScales {
  float hidden = 1;    // of act(gate) * up; down removes it
  float attn_out = 1;  // of the attention's output before its own norm; 1 without that norm
  float mlp_out = 1;   // of the MLP's output before its own norm; 1 without that norm
  bool operator==(const LayerScales&) const = default;
};
struct RangeScales {
  float stream = 1;  // of the residual stream
  std::vector<LayerScales> layers;
  bool operator==(const RangeScales&) const = default;
};

// The factor of a weight when it is stored. The score scale is in the last factor of queries; a range scale
// is in the weight that produces the scaled activations, and its inverse in a projection that reads the
// stream without a norm.
float FoldedScale(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& info);
// The epsilon of a norm of scaled activations, by the part of its gain.
float FoldedEpsilon(const ModelSpec& spec, const RangeScales& scales, const WeightInfo& gain,
                    const NormSpec& norm);

// Widths of the slabs of input channels that a matrix [out, in] is cut into: few, of equal width, and none
// deeper than the reduction depth up to which convolutions run at full speed. With `half` (fp16 weights),
// none streams a multiple of 1 MiB for each of 16 cores, give or take 16 KiB, where streaming was seen to
// drop to a third.
std::vector<int64_t> SplitInputs(int64_t out, int64_t in, bool half);
bool InDmaNotch(int64_t out, int64_t in);
inline constexpr int64_t kMostDepth = 14336;

// The identifier of a weight's constant: "layers_3_q".
std::string Identifier(const WeightInfo& info);

}  // namespace pd::mil
