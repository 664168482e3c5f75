// Activations in eight bits.
#include <cmath>
#include <limits>

#include "coreml/interpreter/op.h"
#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

// A scalar, or a vector along an axis, broadcast to x's shape.
View Along(const View& parameter, const View& x, size_t axis) {
  View wide = x;
  wide.data = parameter.data, wide.dtype = parameter.dtype;
  for (size_t a = 0; a < x.rank; ++a)
    wide.strides[a] = parameter.rank == 1 && a == axis ? parameter.strides[0] : 0;
  return wide;
}

struct Parameters {
  size_t axis = 0;
  bool zero_point = false;
};
Parameters Ask(Site& site) {
  const Dims& x = site.Type("input").shape;
  Parameters p;
  site.In("input"), site.In("scale");
  site.WantFloat("scale");
  p.zero_point = site.Has("zero_point");
  if (site.Has("axis")) p.axis = mil::Axis(site.given().Int("axis"), x.size());
  for (const char* parameter : {"scale", "zero_point"}) {
    if (!site.Has(parameter)) continue;
    const Dims& shape = site.Type(parameter).shape;
    if (!shape.empty() && (shape.size() != 1 || x.empty() || shape[0] != x[p.axis]))
      throw Fail(ErrorKind::kCorruptFile, "{} {} for {}", parameter, mil::Show(shape), mil::Show(x));
  }
  if (p.zero_point) site.In("zero_point");
  return p;
}

// y = f(x, scale, zero point), element by element.
template <class F>
void Run(const Call& call, const Parameters& p, F f) {
  const View &x = call.in[0], &y = call.out[0];
  const View scale = Along(call.in[1], x, p.axis);
  const View zero = Along(call.in[p.zero_point ? 2 : 1], x, p.axis);
  const Rows<4> rows({&x, &scale, &zero, &y});
  rows.Run(call.machine.pool, [&](const auto& at, int64_t n) {
    const auto& step = rows.steps();
    for (int64_t i = 0; i < n; ++i) {
      double v, s, z = 0;
      LoadDoubles(x, at[0] + i * step[0], 1, 1, &v);
      LoadDoubles(scale, at[1] + i * step[1], 1, 1, &s);
      if (p.zero_point) LoadDoubles(zero, at[2] + i * step[2], 1, 1, &z);
      v = f(v, s, z);
      StoreDoubles(y, at[3] + i * step[3], 1, 1, &v);
    }
  });
}

// Ties to even; out-of-range values saturate when stored.
Kernel MakeQuantize(Site& site) {
  site.WantFloat("input");
  if (site.Result().dtype != DataType::kI8 && site.Result().dtype != DataType::kU8)
    throw Fail(ErrorKind::kUnsupported, "a result of type {}", mil::Name(site.Result().dtype));
  return [p = Ask(site)](const Call& call) {
    Run(call, p, [](double x, double scale, double zero) { return std::nearbyint(x / scale) + zero; });
  };
}

Kernel MakeDequantize(Site& site) {
  site.Want("input", {DataType::kI8, DataType::kU8});
  return [p = Ask(site)](const Call& call) {
    Run(call, p, [](double x, double scale, double zero) { return (x - zero) * scale; });
  };
}

}  // namespace

const Makers& QuantizeMakers() {
  static const Makers makers = {{"quantize", MakeQuantize}, {"dequantize", MakeDequantize}};
  return makers;
}

}  // namespace pd::interp
