// Convolutions, matrix products, attention.
#include <cmath>
#include <limits>

#include "coreml/interpreter/conv.h"
#include "coreml/interpreter/lines.h"
#include "coreml/interpreter/matmul.h"
#include "coreml/interpreter/op.h"
#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

// A bias [n] as floats, padded to tiles.
std::vector<float> ReadBias(const cpu::Kernels& kernels, const View& bias) {
  std::vector<float> padded(size_t((bias.shape[0] + 31) / 32 * 32));
  LoadFloats(kernels, bias, 0, bias.strides[0], bias.shape[0], padded.data());
  return padded;
}

// ---- conv ----

ConvShape ShapeOf(Site& site) {
  const mil::Given& given = site.given();
  const Dims &x = site.Type("x").shape, &w = site.Type("weight").shape, &y = site.Result().shape;
  const size_t spatial = x.size() - 2;
  const auto strides = given.IntsOr("strides", Dims(spatial, 1)),
             dilations = given.IntsOr("dilations", Dims(spatial, 1)),
             pad = given.IntsOr("pad", Dims(2 * spatial, 0));
  const std::string pad_type = given.StringOr("pad_type", "valid");
  ConvShape s;
  s.samples = x[0], s.in_channels = x[1], s.out_channels = y[1], s.groups = given.IntOr("groups", 1);
  for (size_t i = 0; i < spatial; ++i) {
    const size_t a = i + 3 - spatial;
    s.in[a] = x[i + 2], s.out[a] = y[i + 2], s.kernel[a] = w[i + 2];
    s.stride[a] = strides[i], s.dilation[a] = dilations[i];
    if (pad_type == "custom") s.pad[a] = pad[2 * i];
    // The padding that an output at every stride needs; the odd element goes to the end, or to the start.
    const int64_t extent = (s.kernel[a] - 1) * s.dilation[a] + 1;
    const int64_t total = std::max<int64_t>(0, (s.out[a] - 1) * s.stride[a] + extent - s.in[a]);
    if (pad_type == "same") s.pad[a] = total / 2;
    if (pad_type == "same_lower") s.pad[a] = (total + 1) / 2;
  }
  return s;
}

Kernel MakeConv(Site& site) {
  site.WantFloat("x");
  site.WantFloat("weight");
  const ConvShape shape = ShapeOf(site);
  const bool has_bias = site.Has("bias");
  if (has_bias) site.WantFloat("bias");
  site.In("x");
  std::shared_ptr<const PackedFactor> packed;
  const bool fast = shape.groups == 1 && shape.depth() > 0 && !site.plain();
  const Constant* weight = site.Known("weight");
  if (fast && weight)
    packed = site.constants().Packed(*weight, shape.depth(), shape.out_channels, 1, shape.depth());
  else
    site.In("weight");
  if (has_bias) site.In("bias");
  return [=](const Call& call) {
    const View weights = packed ? View() : call.in[1];
    const std::vector<float> bias =
        has_bias ? ReadBias(call.machine.kernels, call.in.back()) : std::vector<float>();
    const ConvJob job{shape,       call.in[0], weights, call.out[0], has_bias ? bias.data() : nullptr,
                      packed.get()};
    bool dense = true;  // weights from another op may be a part of a larger tensor
    int64_t step = 1;
    for (size_t a = weights.rank; a-- > 0; step *= weights.shape[a])
      dense = dense && (weights.shape[a] == 1 || weights.strides[a] == step);
    fast&& dense ? Conv(call.machine, job) : PlainConv(call.machine, job);
  };
}

// ---- matmul and similar ops ----

// v with leading axes of size 1, up to `rank`.
View WithRank(const View& v, size_t rank) {
  View wide = v;
  wide.rank = 0;
  for (size_t a = v.rank; a < rank; ++a) wide.AddAxis(1, 0);
  for (size_t a = 0; a < v.rank; ++a) wide.AddAxis(v.shape[a], v.strides[a]);
  return wide;
}
View LastTurned(const View& v) {
  View t = v;
  std::swap(t.shape[v.rank - 1], t.shape[v.rank - 2]);
  std::swap(t.strides[v.rank - 1], t.strides[v.rank - 2]);
  return t;
}

bool OneMatrix(const Dims& shape) {
  for (size_t a = 0; a + 2 < shape.size(); ++a)
    if (shape[a] != 1) return false;
  return shape.size() >= 2;
}

// A constant operand, packed; nullptr if it is not constant or has batches. `transposed`: stored [columns,
// rows]; `as_left`: x as the factor [k, m].
std::shared_ptr<const PackedFactor> PackOperand(Site& site, const char* parameter, bool transposed,
                                                bool as_left) {
  const Constant* constant = site.Known(parameter);
  if (!constant || !OneMatrix(constant->type.shape)) return nullptr;
  const Dims& shape = constant->type.shape;
  const int64_t stored_rows = shape[shape.size() - 2], stored_columns = shape.back();
  const bool k_is_rows = as_left == transposed;  // in the stored form
  return site.constants().Packed(*constant, k_is_rows ? stored_rows : stored_columns,
                                 k_is_rows ? stored_columns : stored_rows, k_is_rows ? stored_columns : 1,
                                 k_is_rows ? 1 : stored_columns);
}

Kernel MakeMatMul(Site& site) {
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  const bool integers = site.Type("x").dtype == DataType::kI32;
  site.Want("y", integers ? std::initializer_list<DataType>{DataType::kI32}
                          : std::initializer_list<DataType>{DataType::kF16, DataType::kF32});
  const bool tx = site.given().IntOr("transpose_x", 0) != 0, ty = site.given().IntOr("transpose_y", 0) != 0;
  const size_t rank_x = site.Type("x").shape.size(), rank_y = site.Type("y").shape.size();
  const bool fast = !integers && !site.plain();
  std::shared_ptr<const PackedFactor> packed_x, packed_y;
  if (fast) packed_y = PackOperand(site, "y", ty, false);
  if (fast && !packed_y) packed_x = PackOperand(site, "x", tx, true);
  site.In("x"), site.In("y");
  return [=](const Call& call) {
    // A vector is a row on the left, a column on the right, and has no axis in the result.
    View x = call.in[0], y = call.in[1], z = call.out[0];
    if (rank_x == 1) x = WithRank(x, 2);
    if (rank_y == 1) y.AddAxis(1, 0);
    if (tx && rank_x > 1) x = LastTurned(x);
    if (ty && rank_y > 1) y = LastTurned(y);
    if (rank_x == 1) z.AddAxis(1, 0);
    if (rank_x == 1 && rank_y > 1) z = LastTurned(z);
    if (rank_y == 1) z.AddAxis(1, 0);
    const size_t rank = z.rank;
    const MatMulJob job{WithRank(x, rank), WithRank(y, rank), z, packed_x.get(), packed_y.get(), nullptr};
    integers ? PlainIntMatMul(call.machine, job)
    : fast   ? MatMul(call.machine, job)
             : PlainMatMul(call.machine, job);
  };
}

Kernel MakeLinear(Site& site) {
  site.WantFloat("x");
  site.WantFloat("weight");
  const bool has_bias = site.Has("bias");
  if (has_bias) site.WantFloat("bias");
  std::shared_ptr<const PackedFactor> packed;
  if (!site.plain()) packed = PackOperand(site, "weight", true, false);
  site.In("x"), site.In("weight");
  if (has_bias) site.In("bias");
  return [=](const Call& call) {
    View x = call.in[0], z = call.out[0];
    if (x.rank == 1) x = WithRank(x, 2), z = WithRank(z, 2);
    const std::vector<float> bias =
        has_bias ? ReadBias(call.machine.kernels, call.in[2]) : std::vector<float>();
    const MatMulJob job{x,
                        LastTurned(WithRank(call.in[1], x.rank)),
                        z,
                        nullptr,
                        packed.get(),
                        has_bias ? bias.data() : nullptr};
    packed ? MatMul(call.machine, job) : PlainMatMul(call.machine, job);
  };
}

// nchw,nwhu->nchu: for every n and h, a product of matrices [c, w] and [w, u]. Without n for rank 3.
Kernel MakeEinsum(Site& site) {
  site.Want("values", {DataType::kF16, DataType::kF32});
  site.In("values", 0), site.In("values", 1);
  return [plain = site.plain()](const Call& call) {
    const auto h_before_rows = [](const View& v) {  // [n, r, h, c] as [n, h, r, c]
      View t = v;
      std::swap(t.shape[v.rank - 3], t.shape[v.rank - 2]);
      std::swap(t.strides[v.rank - 3], t.strides[v.rank - 2]);
      return t;
    };
    const MatMulJob job{h_before_rows(call.in[0]), h_before_rows(call.in[1]), h_before_rows(call.out[0])};
    plain ? PlainMatMul(call.machine, job) : MatMul(call.machine, job);
  };
}

// ---- attention ----

// softmax(q k' / sqrt(E) + mask) v, batch by batch; scores stay in float.
class Attention {
 public:
  Attention(bool plain, bool has_mask) : plain_(plain), has_mask_(has_mask) {}

  void operator()(const Call& call) const {
    Machine& machine = call.machine;
    const View &q = call.in[0], &k = call.in[1], &v = call.in[2], &out = call.out[0];
    const size_t rank = q.rank;
    const int64_t rows = q.shape[rank - 2], keys = k.shape[rank - 2];
    View scores;
    scores.dtype = DataType::kF32;
    scores.data = reinterpret_cast<std::byte*>(machine.scores.Take(size_t(rows * keys)));
    scores.AddAxis(rows, keys), scores.AddAxis(keys, 1);
    View mask;
    if (has_mask_) {
      std::array<int64_t, kMostAxes> shape = q.shape;
      shape[rank - 1] = keys;
      mask = BroadcastTo(call.in[3], {shape.data(), rank});
    }
    int64_t batches = 1;
    for (size_t a = 0; a + 2 < rank; ++a) batches *= q.shape[a];
    for (int64_t b = 0; b < batches; ++b) {
      Multiply(machine, {MatrixOf(q, b), LastTurned(MatrixOf(k, b)), scores});
      Weigh(machine, scores, has_mask_ ? MatrixOf(mask, b) : View(), 1 / std::sqrt(float(q.shape[rank - 1])));
      Multiply(machine, {scores, MatrixOf(v, b), MatrixOf(out, b)});
    }
  }

 private:
  void Multiply(Machine& machine, const MatMulJob& job) const {
    plain_ ? PlainMatMul(machine, job) : MatMul(machine, job);
  }
  // The last two axes of batch b.
  static View MatrixOf(const View& v, int64_t b) {
    int64_t offset = 0;
    for (size_t a = v.rank - 2; a-- > 0;) {
      offset += b % v.shape[a] * v.strides[a];
      b /= v.shape[a];
    }
    View m;
    m.dtype = v.dtype;
    m.data = v.data + offset * int64_t(ElementBytes(v.dtype));
    m.AddAxis(v.shape[v.rank - 2], v.strides[v.rank - 2]);
    m.AddAxis(v.shape[v.rank - 1], v.strides[v.rank - 1]);
    return m;
  }
  void Weigh(Machine& machine, const View& scores, const View& mask, float scale) const {
    const int64_t keys = scores.shape[1];
    machine.pool.Split(scores.shape[0], 8, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        float* row = scores.as<float>() + r * keys;
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          row[j] *= scale;
          if (mask.data) {
            double m;
            LoadDoubles(mask, r * mask.strides[0] + j * mask.strides[1], 1, 1, &m);
            const bool hidden = mask.dtype == DataType::kBool && m == 0;
            row[j] += hidden ? -std::numeric_limits<float>::infinity()
                             : float(mask.dtype == DataType::kBool ? 0 : m);
          }
          most = std::max(most, double(row[j]));
        }
        for (int64_t j = 0; j < keys; ++j) sum += double(row[j] = float(std::exp(double(row[j]) - most)));
        for (int64_t j = 0; j < keys; ++j) row[j] = float(double(row[j]) / sum);
      }
    });
  }

  bool plain_, has_mask_;
};

Kernel MakeAttention(Site& site) {
  for (const char* parameter : {"query", "key", "value"}) {
    site.WantFloat(parameter);
    site.In(parameter);
  }
  const bool has_mask = site.Has("attn_mask");
  if (has_mask) {
    site.Want("attn_mask", {DataType::kBool, DataType::kF16, DataType::kF32});
    site.In("attn_mask");
  }
  return Attention(site.plain(), has_mask);
}

}  // namespace

const Makers& ProductMakers() {
  static const Makers makers = {{"conv", MakeConv},
                                {"linear", MakeLinear},
                                {"matmul", MakeMatMul},
                                {"einsum", MakeEinsum},
                                {"scaled_dot_product_attention", MakeAttention}};
  return makers;
}

}  // namespace pd::interp
