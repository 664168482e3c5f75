#include "coreml/interpreter/conv.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "coreml/interpreter/numbers.h"

namespace pd::interp {
namespace {

float FloatAt(const View& v, int64_t at) {
  return v.dtype == DataType::kF16 ? ToFloat(v.as<F16>()[at]) : v.as<float>()[at];
}

// Strides of samples, channels and the three spatial axes.
struct Steps {
  int64_t sample, channel;
  ConvShape::Extent at;

  explicit Steps(const View& v) : sample(v.strides[0]), channel(v.strides[1]), at{} {
    for (size_t a = 2; a < v.rank; ++a) at[a + 1 - (v.rank - 2)] = v.strides[a];
  }
  int64_t Of(const ConvShape::Extent& place) const {
    return place[0] * at[0] + place[1] * at[1] + place[2] * at[2];
  }
};

ConvShape::Extent PlaceOf(int64_t position, const ConvShape::Extent& size) {
  return {position / (size[1] * size[2]), position / size[2] % size[1], position % size[2]};
}

// Calls f(term, offset) for the terms of an output that lie inside x: their index within the depth, and their
// offset from the channel's start.
template <class F>
void ForTerms(const ConvShape& s, const Steps& x, const ConvShape::Extent& place, F f) {
  const auto inside = [&](size_t a, int64_t k) {
    const int64_t i = place[a] * s.stride[a] - s.pad[a] + k * s.dilation[a];
    return i >= 0 && i < s.in[a] ? i : -1;
  };
  for (int64_t a = 0; a < s.kernel[0]; ++a)
    for (int64_t b = 0; b < s.kernel[1]; ++b)
      for (int64_t c = 0; c < s.kernel[2]; ++c) {
        const ConvShape::Extent at = {inside(0, a), inside(1, b), inside(2, c)};
        if (std::min({at[0], at[1], at[2]}) >= 0) f((a * s.kernel[1] + b) * s.kernel[2] + c, x.Of(at));
      }
}

// The step from position to position if it is constant; else 0.
int64_t PositionStep(const Steps& steps, const ConvShape::Extent& size) {
  int64_t step = 1, next = -1;  // next: the required step of the axis above
  for (size_t a = 3; a-- > 0;) {
    if (size[a] == 1) continue;
    if (next < 0)
      step = steps.at[a];
    else if (steps.at[a] != next)
      return 0;
    next = steps.at[a] * size[a];
  }
  return step;
}

// Calls f(sample, position, count, done) for the parts of rows [first, first + count) in one sample each.
template <class F>
void BySample(int64_t first, int64_t count, int64_t positions, F f) {
  for (int64_t done = 0; done < count;) {
    const int64_t at = (first + done) % positions, n = std::min(positions - at, count - done);
    f((first + done) / positions, at, n, done);
    done += n;
  }
}

class Runner {
 public:
  Runner(Machine& machine, const ConvJob& job)
      : kernels_(machine.kernels), job_(job), s_(job.shape), x_(job.x), y_(job.y) {
    x_step_ = s_.IsPointwise() ? PositionStep(x_, s_.in) : 0;
    y_step_ = PositionStep(y_, s_.out);
  }

  // One row per output position: the terms of its sum.
  void Load(int64_t first, int64_t count, float* out, int64_t stride) const {
    BySample(first, count, s_.positions(), [&](int64_t sample, int64_t at, int64_t n, int64_t done) {
      if (x_step_ != 0) {
        LoadRows(kernels_, Of(job_.x, sample * x_.sample, x_step_, x_.channel, s_.in_channels), at, n,
                 out + done * stride, stride);
        return;
      }
      for (int64_t i = 0; i < n; ++i) LoadPatch(sample, PlaceOf(at + i, s_.out), out + (done + i) * stride);
    });
  }

  void Store(int64_t first, int64_t count, int64_t column, int n, const float* values, int64_t stride) const {
    BySample(first, count, s_.positions(), [&](int64_t sample, int64_t at, int64_t rows, int64_t done) {
      const float* from = values + done * stride;
      if (y_step_ != 0) {
        StoreColumns(kernels_, Of(job_.y, sample * y_.sample, y_step_, y_.channel, s_.out_channels), at, rows,
                     column, n, from, stride);
        return;
      }
      for (int64_t i = 0; i < rows; ++i)
        StoreFloats(kernels_, job_.y,
                    sample * y_.sample + column * y_.channel + y_.Of(PlaceOf(at + i, s_.out)), y_.channel, n,
                    from + i * stride);
    });
  }

 private:
  // Positions by channels.
  Matrix Of(const View& v, int64_t offset, int64_t position_step, int64_t channel_step,
            int64_t channels) const {
    return {v.dtype,        v.data + offset * int64_t(ElementBytes(v.dtype)),
            s_.positions(), channels,
            position_step,  channel_step};
  }
  void LoadPatch(int64_t sample, const ConvShape::Extent& place, float* out) const {
    std::fill_n(out, s_.depth(), 0.f);
    const int64_t taps = s_.depth() / s_.in_channels;
    ForTerms(s_, x_, place, [&](int64_t term, int64_t offset) {
      const int64_t at = sample * x_.sample + offset;
      for (int64_t c = 0; c < s_.in_channels; ++c)
        out[c * taps + term] = FloatAt(job_.x, at + c * x_.channel);
    });
  }

  const cpu::Kernels& kernels_;
  const ConvJob& job_;
  const ConvShape& s_;
  const Steps x_, y_;
  int64_t x_step_ = 0, y_step_ = 0;
};

}  // namespace

bool ConvShape::IsPointwise() const {
  return groups == 1 && kernel == Extent{1, 1, 1} && stride == Extent{1, 1, 1} && pad == Extent{0, 0, 0} &&
         in == out;
}

void Conv(Machine& machine, const ConvJob& job) {
  const ConvShape& s = job.shape;
  PD_CHECK(s.groups == 1);
  if (job.y.count() == 0) return;
  const Runner runner(machine, job);
  Product product;
  product.rows = s.samples * s.positions();
  product.bias = job.bias;
  if (job.packed) {
    product.factor = job.packed->tiles;
  } else {
    // Weights computed at run time: the last axes of a whole tensor.
    const Matrix factor = {job.weight.dtype, job.weight.data, s.depth(), s.out_channels, 1, s.depth()};
    auto* memory = reinterpret_cast<std::byte*>(machine.tiles.Take((PackedBytes(factor) + 3) / 4));
    product.factor = PackInto(memory, machine.pool, factor);
  }
  product.load = [&](int64_t first, int64_t count, float* out, int64_t stride) {
    runner.Load(first, count, out, stride);
  };
  product.store = [&](int64_t first, int64_t count, int64_t column, int n, const float* values,
                      int64_t stride) { runner.Store(first, count, column, n, values, stride); };
  Multiply(machine, product);
}

void PlainConv(Machine& machine, const ConvJob& job) {
  const ConvShape& s = job.shape;
  const Steps x(job.x), y(job.y), w(job.weight);
  const int64_t in_group = s.in_channels / s.groups, out_group = s.out_channels / s.groups;
  const int64_t outputs = job.y.count();
  machine.pool.Split(outputs, 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = i % s.positions(), o = i / s.positions() % s.out_channels,
                    sample = i / s.positions() / s.out_channels;
      const ConvShape::Extent place = PlaceOf(position, s.out);
      float sum = 0;
      for (int64_t c = 0; c < in_group; ++c) {
        const int64_t channel = sample * x.sample + (o / out_group * in_group + c) * x.channel;
        ForTerms(s, x, place, [&](int64_t term, int64_t offset) {
          const int64_t weight = o * w.sample + c * w.channel + w.Of(PlaceOf(term, s.kernel));
          sum = std::fma(FloatAt(job.x, channel + offset), FloatAt(job.weight, weight), sum);
        });
      }
      if (job.bias) sum += job.bias[o];
      const int64_t at = sample * y.sample + o * y.channel + y.Of(place);
      StoreFloats(machine.kernels, job.y, at, 1, 1, &sum);
    }
  });
}

}  // namespace pd::interp
