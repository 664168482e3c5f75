// Convolutions over one to three axes.
#pragma once
#include <array>

#include "coreml/interpreter/machine.h"
#include "coreml/interpreter/product.h"
#include "coreml/interpreter/view.h"

namespace pd::interp {

// Axes that a convolution lacks have size 1.
struct ConvShape {
  using Extent = std::array<int64_t, 3>;
  int64_t samples = 0, in_channels = 0, out_channels = 0, groups = 1;
  Extent in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};

  int64_t positions() const { return out[0] * out[1] * out[2]; }
  // Terms of each output's sum: channel by channel, each in the kernel's order.
  int64_t depth() const { return in_channels / groups * kernel[0] * kernel[1] * kernel[2]; }
  bool IsPointwise() const;  // 1x1: each output position depends on one input position
};

// y [samples, out_channels, out...] from x [samples, in_channels, in...] and weights [out_channels,
// in_channels / groups, kernel...]; fp16 or fp32 each. bias [out_channels], padded to tiles, or nullptr.
// Terms that lie in the padding are zero.
struct ConvJob {
  ConvShape shape;
  View x, weight, y;
  const float* bias = nullptr;
  const PackedFactor* packed = nullptr;  // the weights as factor [depth, out_channels], if they are constant
};
// One group only.
void Conv(Machine& machine, const ConvJob& job);
// In plain loops, with the same bits.
void PlainConv(Machine& machine, const ConvJob& job);

}  // namespace pd::interp
