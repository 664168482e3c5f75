#include "coreml/export/sample_pass.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cpu/kernels/kernels.h"
#include "cpu/packed.h"
#include "model/forward.h"
#include "model/rope.h"

namespace pd {
namespace {

// One row per token.
struct Matrix {
  int tokens = 0, channels = 0;
  std::vector<float> values;
  // Starts at channel c of token t.
  float* At(int t, int64_t c = 0) { return values.data() + int64_t(t) * channels + c; }
  const float* At(int t, int64_t c = 0) const { return values.data() + int64_t(t) * channels + c; }
};

Matrix Zeros(int tokens, int channels) {
  return {tokens, channels, std::vector<float>(size_t(tokens) * size_t(channels))};
}

void Raise(float& most, std::span<const float> values) {
  for (float v : values) most = std::max(most, std::abs(v));
}

const cpu::Kernels& BestKernels() { return *cpu::FindKernels(cpu::BestLevel()); }

// An Ops type (model/ops.h): the CPU backend's float kernels, on weights that are streamed.
class SampleOps {
 public:
  using Weight = StreamedWeight;
  using Tensor = Matrix;

  SampleOps(const ModelSpec& spec, int tokens, ThreadPool& pool, const std::function<void(int)>& layer_done)
      : spec_(spec), variant_(FixRope(spec, tokens)), pool_(pool), layer_done_(layer_done) {
    result_.layers.resize(spec.layers.size());
  }

  Tensor Embed(const Weight& table, float scale, const Rows& rows) {
    Matrix x = Zeros(rows.count(), int(table.info.shape[1]));
    for (int t = 0; t < x.tokens; ++t) table.read(rows.ids[size_t(t)], {x.At(t), size_t(x.channels)});
    for (float& v : x.values) v *= scale;
    return x;
  }

  Tensor Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm) {
    return NormHeads(x, w, norm, 1);
  }

  Tensor NormHeads(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& norm, int heads) {
    const std::vector<float> g = ReadVector(*w.gain);
    std::vector<float> b;
    if (w.bias) b = ReadVector(*w.bias);
    Matrix y = x;
    const int width = x.channels / heads;
    for (int t = 0; t < x.tokens; ++t)
      for (int first = 0; first < x.channels; first += width) {
        const std::span part(y.At(t, first), size_t(width));
        if (norm.mean) {
          const double mean = std::accumulate(part.begin(), part.end(), 0.0) / width;
          for (float& v : part) v -= float(mean);
        }
        kernels_.norm(part.data(), g.data(), norm.eps, width, part.data());
        if (!b.empty()) kernels_.add(part.data(), b.data(), width);
      }
    // A block's own norm makes what joins the stream; the stream itself is measured at the addition.
    const Part part = w.gain->info.part;
    if (part != Part::kPostMixer && part != Part::kPostBranch) Raise(Layer(*w.gain).other, y.values);
    return y;
  }

  Tensor Linear(const Tensor& x, const LinearWeights<Weight>& w) {
    const WeightInfo& info = w.weight.info;
    const auto out = info.shape[0];
    Weigh(info, x);
    Matrix y = Zeros(x.tokens, int(out));
    pool_.Split((out + cpu::kTile - 1) / cpu::kTile, 1, [&](int64_t begin, int64_t end) {
      Tile tile(x.tokens, x.channels);
      for (int64_t t = begin; t < end; ++t) MultiplyTile(x, w.weight, t * cpu::kTile, tile, y);
    });
    w.weight.forget();
    if (w.bias) {
      const std::vector<float> bias = ReadVector(*w.bias);
      for (int t = 0; t < y.tokens; ++t) kernels_.add(y.At(t), bias.data(), out);
    }
    LayerSample& layer = Layer(w.weight);
    Raise(info.part == Part::kO      ? layer.attn_out
          : info.part == Part::kDown ? layer.mlp_out
          : info.part == Part::kUp   ? layer.hidden
                                     : layer.other,
          y.values);
    return y;
  }

  Tensor Rope(Tensor x, int heads, const RopeSpec& rope, const Rows& rows) {
    const RopeFrequencies f = Frequencies(rope, variant_);
    const int width = x.channels / heads, half = rope.dims / 2;
    std::vector<float> cos(static_cast<size_t>(half)), sin(cos.size());
    for (int t = 0; t < x.tokens; ++t) {
      for (size_t i = 0; i < cos.size(); ++i) {
        const double angle = rows.pos[size_t(t)] * f.inverse[i];
        cos[i] = float(std::cos(angle) * f.scale), sin[i] = float(std::sin(angle) * f.scale);
      }
      for (int h = 0; h < heads; ++h)
        kernels_.rope(x.At(t, int64_t(h) * width), cos.data(), sin.data(), half);
    }
    return x;
  }

  void Append(int layer, const AttentionSpec&, Tensor k, Tensor v, const Rows&) {
    LayerSample& sample = result_.layers[size_t(layer)];
    sample.keys = std::move(k.values);
    sample.values = std::move(v.values);
    if (layer + 1 == int(spec_.layers.size())) layer_done_(layer + 1);
  }

  Tensor Attend(int layer, const AttentionSpec& a, Tensor q, const Rows&) {
    LayerSample& sample = result_.layers[size_t(layer)];
    Matrix y = Zeros(q.tokens, q.channels);
    std::vector<float> largest(size_t(a.heads), 0.f);
    pool_.Split(a.heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t h = begin; h < end; ++h) AttendHead(a, int(h), q, sample, y, largest[size_t(h)]);
    });
    Raise(sample.other, largest);
    return y;
  }

  Tensor Gate(Tensor x, const Tensor* up, const GateSpec& gate) {
    const std::vector<float> ones(up ? 0 : size_t(x.channels), 1.f);
    for (int t = 0; t < x.tokens; ++t)
      kernels_.gate[size_t(gate.act)](x.At(t), up ? up->At(t) : ones.data(), x.channels);
    Raise(result_.layers[size_t(layer_)].hidden, x.values);
    return x;
  }

  Tensor Add(Tensor x, const Tensor& y, float scale) {
    for (int t = 0; t < x.tokens; ++t) {
      if (scale == 1) {
        kernels_.add(x.At(t), y.At(t), x.channels);
      } else {
        kernels_.blend(x.At(t), 1, y.At(t), scale, x.channels);
      }
    }
    LayerSample& sample = result_.layers[size_t(layer_)];
    Raise(sample.stream, x.values);
    Raise(sample.stream, y.values);
    return x;
  }

  Tensor Logits(const Tensor&, const Weight&, std::optional<float>, float, const Rows&) {
    PD_CHECK(!"a sample pass asks for keys and values only");
    return {};
  }

  void BeginLayer(int layer, Tensor& x) {
    if (layer > 0) layer_done_(layer);
    layer_ = layer;
    Raise(result_.layers[size_t(layer)].stream, x.values);
  }

  SamplePass Take() && { return std::move(result_); }

 private:
  // A thread's scratch memory for 32 outputs.
  struct Tile {
    Tile(int tokens, int inputs)
        : rows(size_t(cpu::kTile) * size_t(inputs)),
          packed(cpu::TileBytes(DType::kF32, inputs)),
          out(size_t(tokens) * cpu::kTile) {}
    std::vector<float> rows;        // [32, inputs]
    std::vector<std::byte> packed;  // packed for the kernels
    std::vector<float> out;         // [tokens, 32]
  };

  // Outputs [first, first + 32) of y = x * weight^T.
  void MultiplyTile(const Matrix& x, const Weight& weight, int64_t first, Tile& tile, Matrix& y) const {
    const auto inputs = size_t(x.channels);
    const int64_t count = std::min<int64_t>(cpu::kTile, weight.info.shape[0] - first);
    for (int64_t i = 0; i < count; ++i)
      weight.read(first + i, std::span(tile.rows).subspan(size_t(i) * inputs, inputs));
    const TensorView rows{.name = weight.info.Name(),
                          .type = DType::kF32,
                          .shape = {count, x.channels},
                          .bytes = std::as_bytes(std::span(tile.rows)),
                          .owner = nullptr};
    cpu::PackTile(rows, 0, tile.packed.data());
    kernels_.f32({.w = tile.packed.data(),
                  .k = x.channels,
                  .x = reinterpret_cast<const std::byte*>(x.values.data()),
                  .x_stride = int64_t(inputs * sizeof(float)),
                  .rows = x.tokens,
                  .out = tile.out.data(),
                  .out_stride = cpu::kTile,
                  .next = nullptr});
    for (int t = 0; t < x.tokens; ++t)
      std::copy_n(tile.out.data() + int64_t(t) * cpu::kTile, count, y.At(t, first));
  }

  static void AttendHead(const AttentionSpec& a, int head, const Matrix& q, const LayerSample& sample,
                         Matrix& y, float& largest) {
    const int d = a.head_dim, width = a.kv_width(), kv = head / (a.heads / a.kv_heads) * d;
    std::vector<float> p(size_t(q.tokens));
    for (int t = 0; t < q.tokens; ++t) {
      const int first = a.window ? std::max(0, t - a.window->size + 1) : 0;
      const float* query = q.At(t, int64_t(head) * d);
      for (int s = first; s <= t; ++s) {
        const float* key = sample.keys.data() + int64_t(s) * width + kv;
        float sum = 0;
        for (int i = 0; i < d; ++i) sum += query[i] * key[i];
        p[size_t(s)] = sum * a.scale;
      }
      Soften(a, std::span(p).first(size_t(t) + 1).subspan(size_t(first)), largest);
      float* out = y.At(t, int64_t(head) * d);
      for (int s = first; s <= t; ++s) {
        const float* value = sample.values.data() + int64_t(s) * width + kv;
        for (int i = 0; i < d; ++i) out[i] += p[size_t(s)] * value[i];
      }
    }
  }

  static std::vector<float> ReadVector(const Weight& weight) {
    std::vector<float> values(size_t(weight.info.shape[0]));
    weight.read(0, values);
    return values;
  }

  LayerSample& Layer(const Weight& weight) { return result_.layers[size_t(weight.info.layer)]; }

  void Weigh(const WeightInfo& info, const Matrix& x) {
    std::vector<double> sums(size_t(x.channels));
    for (int t = 0; t < x.tokens; ++t)
      for (int c = 0; c < x.channels; ++c) sums[size_t(c)] += double(x.At(t)[c]) * double(x.At(t)[c]);
    std::vector<float>& mean_square = result_.importance[info.Name()];
    for (double sum : sums)
      mean_square.push_back(
          std::max(float(sum / x.tokens), 1e-12f));  // a channel without activations still counts a little
  }

  static void Soften(const AttentionSpec& a, std::span<float> scores, float& largest) {
    Raise(largest, scores);
    if (a.soft_cap)
      for (float& s : scores) s = *a.soft_cap * std::tanh(s / *a.soft_cap);
    const float most = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float& s : scores) sum += s = std::exp(s - most);
    for (float& s : scores) s /= sum;
  }

  const ModelSpec& spec_;
  RopeVariant variant_;
  const cpu::Kernels& kernels_ = BestKernels();
  ThreadPool& pool_;
  const std::function<void(int)>& layer_done_;
  SamplePass result_;
  int layer_ = 0;
};

static_assert(Ops<SampleOps>);

}  // namespace

SamplePass RunSample(const ModelSpec& spec, const Weights<StreamedWeight>& weights,
                     std::span<const TokenId> tokens, ThreadPool& pool,
                     const std::function<void(int)>& layer_done) {
  std::vector<int32_t> pos(tokens.size());
  std::iota(pos.begin(), pos.end(), 0);
  const std::vector<SlotId> slots(tokens.size(), 0);
  SampleOps ops(spec, int(tokens.size()), pool, layer_done);
  Forward(ops, spec, weights, Rows{tokens, pos, slots, {}});
  return std::move(ops).Take();
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += double(a[i]) * double(b[i]);
    aa += double(a[i]) * double(a[i]);
    bb += double(b[i]) * double(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

double RmsRatio(std::span<const float> a, std::span<const float> b) {
  double aa = 0, bb = 0;
  for (float v : a) aa += double(v) * double(v);
  for (float v : b) bb += double(v) * double(v);
  return std::sqrt(aa / bb);
}

}  // namespace pd
