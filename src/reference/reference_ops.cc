#include "reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "model/rope.h"
#include "model/support.h"

namespace pd {
namespace {

double Act(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu2:
      return x > 0 ? x * x : 0;
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::kTanh:
      return std::tanh(x);
    case Activation::kIdentity:
      break;
  }
  return x;
}

// Eight sums side by side: otherwise checking a real model would take minutes.
double Dot(const double* a, const double* b, size_t n) {
  double sum[8] = {};
  size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (size_t j = 0; j < 8; ++j) sum[j] += a[i + j] * b[i + j];
  for (; i < n; ++i) sum[0] += a[i] * b[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

double SoftCap(std::optional<float> cap, double x) { return cap ? *cap * std::tanh(x / *cap) : x; }

// Rotates each head in `row` to `position`.
void Rotate(double* row, int heads, int head_dim, const RopeFrequencies& f, int position) {
  for (int h = 0; h < heads; ++h)
    RotateHead(std::span(row + ptrdiff_t(h) * head_dim, size_t(head_dim)), f, position);
}

// Everything that Forward supports.
const Support& Supported() {
  static const Support support = {Feature::kLayerNorm, Feature::kNormNoGain, Feature::kUngatedMlp,
                                  Feature::kMoreGates, Feature::kScoreCap};
  return support;
}

void NormPart(double* part, size_t size, const NormWeights<std::vector<double>>& w, const NormSpec& spec) {
  if (spec.mean) {
    const double mean = std::accumulate(part, part + size, 0.0) / double(size);
    for (size_t i = 0; i < size; ++i) part[i] -= mean;
  }
  const double mean_square = std::inner_product(part, part + size, part, 0.0) / double(size);
  const double factor = 1 / std::sqrt(mean_square + spec.eps);
  for (size_t i = 0; i < size; ++i)
    part[i] = part[i] * (factor * (w.gain ? (*w.gain)[i] : 1)) + (w.bias ? (*w.bias)[i] : 0);
}

}  // namespace

std::shared_ptr<const ReferenceModel> LoadReferenceModel(const ModelSpec& spec,
                                                         const Weights<TensorView>& tensors,
                                                         std::optional<uint64_t> digest) {
  CheckSupport(spec, "reference", Supported());
  auto model = std::make_shared<ReferenceModel>();
  model->spec = spec;
  model->weights =
      MapWeights<ReferenceOps::Weight>(spec, tensors, [](const TensorView& t, const WeightInfo&) {
        const std::vector<float> all = t.ReadAll();
        return ReferenceOps::Weight(all.begin(), all.end());
      });
  model->id = {SpecDigest(spec), digest ? *digest : WeightsDigest(spec, tensors), ComputedBy("reference")};
  return model;
}

ReferenceOps::Tensor ReferenceOps::Embed(const Weight& table, float scale, const Rows& rows) {
  Tensor x{rows.count(), Spec().width, {}};
  for (TokenId id : rows.ids)
    for (int i = 0; i < x.channels; ++i)
      x.values.push_back(scale * table[size_t(id) * size_t(x.channels) + size_t(i)]);
  return x;
}

ReferenceOps::Tensor ReferenceOps::Norm(const Tensor& x, const NormWeights<Weight>& w, const NormSpec& spec) {
  return NormHeads(x, w, spec, 1);
}

ReferenceOps::Tensor ReferenceOps::NormHeads(const Tensor& x, const NormWeights<Weight>& w,
                                             const NormSpec& spec, int heads) {
  Tensor y = x;
  const auto size = size_t(x.channels / heads);
  for (size_t at = 0; at < y.values.size(); at += size) NormPart(&y.values[at], size, w, spec);
  return y;
}

ReferenceOps::Tensor ReferenceOps::Linear(const Tensor& x, const LinearWeights<Weight>& w) {
  const size_t in = size_t(x.channels);
  Tensor y{x.rows, int(w.weight.size() / in), {}};
  y.values.resize(size_t(y.rows) * size_t(y.channels));
  for (int j = 0; j < y.channels; ++j)
    for (int r = 0; r < y.rows; ++r)
      y.Row(r)[j] = Dot(x.Row(r), &w.weight[size_t(j) * in], in) + (w.bias ? (*w.bias)[size_t(j)] : 0);
  return y;
}

ReferenceOps::Tensor ReferenceOps::Rope(Tensor x, int heads, const RopeSpec& spec, const Rows& rows) {
  RopeFrequencies frequencies;
  for (int r = 0; r < x.rows; ++r) {
    const SlotId slot = rows.slot[size_t(r)];
    if (r == 0 || slot != rows.slot[size_t(r) - 1])
      frequencies = Frequencies(spec, slots_.at(slot).variant.rope);
    Rotate(x.Row(r), heads, x.channels / heads, frequencies, rows.pos[size_t(r)]);
  }
  return x;
}

void ReferenceOps::Append(int layer, const AttentionSpec& a, Tensor k, Tensor v, const Rows& rows) {
  for (int r = 0; r < k.rows; ++r) {
    Layer& kv = slots_.at(rows.slot[size_t(r)]).layers[size_t(layer)];
    // A failed step may have left rows behind: a position holds what was written last.
    kv.keys.resize(size_t(rows.pos[size_t(r)]) * size_t(a.kv_width()));
    kv.values.resize(kv.keys.size());
    kv.keys.insert(kv.keys.end(), k.Row(r), k.Row(r) + k.channels);
    kv.values.insert(kv.values.end(), v.Row(r), v.Row(r) + v.channels);
  }
}

ReferenceOps::Tensor ReferenceOps::Attend(int layer, const AttentionSpec& a, Tensor q, const Rows& rows) {
  Tensor y{q.rows, q.channels, std::vector<double>(q.values.size())};
  const int d = a.head_dim;
  for (int r = 0; r < q.rows; ++r) {
    const Layer& kv = slots_.at(rows.slot[size_t(r)]).layers[size_t(layer)];
    const int last = rows.pos[size_t(r)], first = a.window ? std::max(0, last - a.window->size + 1) : 0;
    for (int h = 0; h < a.heads; ++h) {
      const size_t head = size_t(h / (a.heads / a.kv_heads)) * size_t(d);
      const double* query = q.Row(r) + ptrdiff_t(h) * d;
      std::vector<double> p;  // scores, then unnormalised weights of tokens first..last
      for (int t = first; t <= last; ++t)
        p.push_back(
            SoftCap(a.soft_cap,
                    a.scale * std::inner_product(query, query + d,
                                                 &kv.keys[size_t(t) * size_t(a.kv_width()) + head], 0.0)));
      const double top = *std::max_element(p.begin(), p.end());
      for (double& e : p) e = std::exp(e - top);
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (int t = first; t <= last; ++t)
        for (int i = 0; i < d; ++i)
          y.Row(r)[h * d + i] +=
              p[size_t(t - first)] / sum * kv.values[size_t(t) * size_t(a.kv_width()) + head + size_t(i)];
    }
  }
  return y;
}

ReferenceOps::Tensor ReferenceOps::Gate(Tensor x, const Tensor* up, const GateSpec& spec) {
  const double limit = spec.limit ? double(*spec.limit) : std::numeric_limits<double>::infinity();
  for (int r = 0; spec.cutoff && r < x.rows; ++r) {
    double *row = x.Row(r), mean = 0, square = 0;
    for (int i = 0; i < x.channels; ++i) mean += row[i] / x.channels;
    for (int i = 0; i < x.channels; ++i) square += (row[i] - mean) * (row[i] - mean) / x.channels;
    const double least = mean + *spec.cutoff * std::sqrt(square);
    for (int i = 0; i < x.channels; ++i) row[i] = std::max(0.0, row[i] - least);
  }
  for (size_t i = 0; i < x.values.size(); ++i) {
    const double v = std::min(x.values[i], limit);
    // silu with a gain: v * sigmoid(gain * v)
    const double act = spec.sigmoid_gain == 1 ? Act(spec.act, v) : v / (1 + std::exp(-spec.sigmoid_gain * v));
    x.values[i] = act * (up ? std::clamp(up->values[i], -limit, limit) + spec.up_offset : 1);
  }
  return x;
}

ReferenceOps::Tensor ReferenceOps::Add(Tensor x, const Tensor& y, float scale) {
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] += scale * y.values[i];
  return x;
}

ReferenceOps::Tensor ReferenceOps::Logits(const Tensor& x, const Weight& head, std::optional<float> cap,
                                          float scale, const Rows& rows) {
  Tensor chosen{int(rows.logits.size()), x.channels, {}};
  for (int r : rows.logits) chosen.values.insert(chosen.values.end(), x.Row(r), x.Row(r) + x.channels);
  Tensor y = Linear(chosen, {head, {}});
  for (double& e : y.values) e = SoftCap(cap, scale * e);
  return y;
}

SlotId ReferenceOps::OpenSlot(int, const Variant& variant) {
  slots_[next_slot_] = {variant, std::vector<Layer>(Spec().layers.size())};
  return next_slot_++;
}

void ReferenceOps::TruncateSlot(SlotId slot, int count) {
  for (size_t i = 0; i < Spec().layers.size(); ++i) {
    Layer& kv = slots_.at(slot).layers[i];
    kv.keys.resize(size_t(count) * size_t(AttentionOf(Spec().layers[i]).kv_width()));
    kv.values.resize(kv.keys.size());
  }
}

void ReferenceOps::ImportRows(SlotId slot, const KvSegment& segment) {
  Slot& s = slots_.at(slot);
  for (size_t i = 0; i < segment.layers.size(); ++i) {
    const AttentionSpec& a = AttentionOf(Spec().layers[i]);
    const KvLayerView& view = segment.kv(i);
    std::vector<float> head(size_t(a.head_dim));
    const RopeFrequencies frequencies = a.rope ? Frequencies(*a.rope, s.variant.rope) : RopeFrequencies();
    for (int t = 0; t < segment.count; ++t) {
      for (int h = 0; h < a.kv_heads; ++h) {
        ReadHead(view, view.k, h, t, head);
        s.layers[i].keys.insert(s.layers[i].keys.end(), head.begin(), head.end());
        ReadHead(view, view.v, h, t, head);
        s.layers[i].values.insert(s.layers[i].values.end(), head.begin(), head.end());
      }
      if (segment.key_form == KeyForm::kRaw && a.rope)
        Rotate(s.layers[i].keys.data() + s.layers[i].keys.size() - a.kv_width(), a.kv_heads, a.head_dim,
               frequencies, segment.first + t);
    }
  }
}

KvSegment ReferenceOps::ExportRows(SlotId slot, int first, int count) {
  KvSegment segment{.first = first, .count = count};
  auto memory = std::make_shared<std::vector<std::vector<float>>>();
  for (size_t i = 0; i < Spec().layers.size(); ++i) {
    const AttentionSpec& a = AttentionOf(Spec().layers[i]);
    const size_t width = size_t(a.kv_width()), from = size_t(first) * width,
                 to = from + size_t(count) * width;
    KvLayerView view{nullptr, nullptr, DType::kF32, a.head_dim, a.kv_width(), 1};
    for (const std::vector<double>* all :
         {&slots_.at(slot).layers[i].keys, &slots_.at(slot).layers[i].values}) {
      memory->emplace_back(all->begin() + ptrdiff_t(from), all->begin() + ptrdiff_t(to));
      const auto* bytes = reinterpret_cast<const std::byte*>(memory->back().data());
      (view.k ? view.v : view.k) = bytes;
    }
    segment.layers.push_back(view);
  }
  segment.owner = memory;
  return segment;
}

const std::vector<float>& ReferenceOps::ReadLogits(const Tensor& logits) {
  logits_.assign(logits.values.begin(), logits.values.end());
  return logits_;
}

std::unique_ptr<DecodeDevice> OpenReferenceDevice(std::shared_ptr<const ReferenceModel> model) {
  DeviceInfo info{"reference", {}, 4096};
  info.memory = kReferenceMemory;
  ForEachWeight(model->spec, model->weights,
                [&](const std::vector<double>& w, const WeightInfo&) { info.weight_bytes += 8 * w.size(); });
  return std::make_unique<LocalDevice<ReferenceOps>>(ReferenceOps(std::move(model)), std::move(info));
}

}  // namespace pd
