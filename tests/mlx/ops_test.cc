// Each operation of MlxOps against the double reference, within its row of the error table.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "mlx/gpu_kernels.h"
#include "mlx/mlx_backend.h"
#include "reference/reference_ops.h"
#include "tests/error_table.h"
#include "tests/tiny_model.h"

namespace pd {
namespace {

using test::OpError;

class OpenMlx : public MlxBackend {
 public:
  using MlxBackend::Array;
  using MlxBackend::MlxBackend;
};

struct Precision {
  DType activations;
  const char* row;  // of the error table
};

class MlxOp : public ::testing::TestWithParam<Precision> {
 protected:
  MlxOp() : model_(test::RandomModel(test::MixedSpec())) {
    auto loaded = std::make_shared<MlxModel>();
    loaded->spec = model_.spec;
    loaded->activations = ToMlx(GetParam().activations);
    loaded->weights = LoadWeights(model_.spec, model_.tensors, {loaded->activations, 0});
    mlx_.emplace(loaded, MakeKernels());
    reference_.emplace(LoadReferenceModel(model_.spec, model_.tensors));
  }

  std::vector<float> Random(int count, float deviation = 1) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = normal(generator_);
    return Rounded(values);
  }
  // As the activations hold them, so that both sides begin with the same numbers.
  std::vector<float> Rounded(const std::vector<float>& values) const {
    return ReadFloats(mx::astype(mx::array(values.begin(), {int(values.size())}, mx::float32), Type()));
  }
  mx::Dtype Type() const { return ToMlx(GetParam().activations); }
  MlxTensor Mlx(const std::vector<float>& values, int rows) const {
    const int columns = int(values.size()) / rows;
    return MlxTensor(mx::astype(mx::array(values.begin(), {rows, columns}, mx::float32), Type()));
  }
  static ReferenceOps::Tensor Want(const std::vector<float>& values, int rows) {
    return {rows, int(values.size()) / rows, {values.begin(), values.end()}};
  }
  MlxWeight Plain(const std::vector<float>& values, int columns) const {
    mx::Shape shape{int(values.size()) / columns, columns};
    if (shape[0] == 1) shape = {columns};
    MlxWeight w;
    w.values = mx::astype(mx::array(values.begin(), shape, mx::float32), Type());
    return w;
  }
  void Expect(const MlxTensor& got, const ReferenceOps::Tensor& want, const std::string& what) {
    const mx::array a = mlx_->Array(got);
    ASSERT_EQ(a.shape(), (mx::Shape{want.rows, want.channels})) << what;
    EXPECT_LE(test::RelativeError(ReadFloats(a), want.values), OpError(GetParam().row)) << what;
  }

  test::TinyModel model_;
  std::optional<OpenMlx> mlx_;
  std::optional<ReferenceOps> reference_;
  std::mt19937 generator_{5};
};

const std::vector<int> kRows = {1, 2, 3, 7, 17};

TEST_P(MlxOp, LinearWithAndWithoutBias) {
  for (int rows : kRows)
    for (int in : {1, 5, 32, 67})
      for (int out : {2, 17, 33}) {
        const auto x = Random(rows * in), w = Random(out * in), b = Random(out);
        for (bool bias : {false, true}) {
          LinearWeights<MlxWeight> mlx{Plain(w, in), {}};
          LinearWeights<std::vector<double>> want{{w.begin(), w.end()}, {}};
          if (bias) mlx.bias = Plain(b, out), want.bias.emplace(b.begin(), b.end());
          Expect(mlx_->Linear(Mlx(x, rows), mlx), reference_->Linear(Want(x, rows), want),
                 fmt::format("[{}, {}] to {}", rows, in, out));
        }
      }
}

TEST_P(MlxOp, LinearOfCodes) {
  for (int bits : {4, 8})
    for (int group : {32, 64})
      for (int rows : kRows) {
        const int in = 192, out = 24;
        const auto x = Random(rows * in), w = Random(out * in);
        const auto parts = mx::quantize(mx::array(w.begin(), {out, in}, mx::float32), group, bits);
        MlxWeight codes;
        codes.values = parts[0];
        codes.scales = mx::astype(parts[1], Type()), codes.biases = mx::astype(parts[2], Type());
        codes.bits = bits, codes.group = group;
        const auto exact = ReadFloats(mx::dequantize(parts[0], mx::astype(*codes.scales, mx::float32),
                                                     mx::astype(*codes.biases, mx::float32), group, bits));
        const LinearWeights<std::vector<double>> want{{exact.begin(), exact.end()}, {}};
        Expect(mlx_->Linear(Mlx(x, rows), {codes, {}}), reference_->Linear(Want(x, rows), want),
               fmt::format("{} bits in groups of {}, {} rows", bits, group, rows));
      }
}

TEST_P(MlxOp, NormWholeAndByGroup) {
  for (int rows : kRows)
    for (int groups : {1, 3, 8})
      for (int size : {1, 8, 33, 128}) {
        const auto x = Random(rows * groups * size, 3), gain = Random(size), bias = Random(size);
        const NormWeights<MlxWeight> held{Plain(gain, size), Plain(bias, size)};
        const NormWeights<std::vector<double>> want{{{gain.begin(), gain.end()}},
                                                    {{bias.begin(), bias.end()}}};
        const std::string what = fmt::format("{} groups of {}", groups, size);
        const NormSpec spec{1e-6f};
        Expect(mlx_->NormHeads(Mlx(x, rows), {held.gain, {}}, spec, groups),
               reference_->NormHeads(Want(x, rows), {want.gain, {}}, spec, groups), what);
        const NormSpec without{.eps = 1e-6f, .gain = false};
        Expect(mlx_->NormHeads(Mlx(x, rows), {}, without, groups),
               reference_->NormHeads(Want(x, rows), {}, without, groups), what + " without a gain");
        if (groups > 1 || size == 1) continue;
        Expect(mlx_->Norm(Mlx(x, rows), {held.gain, {}}, spec),
               reference_->Norm(Want(x, rows), {want.gain, {}}, spec), what);
        const NormSpec layer_norm{.eps = 1e-5f, .mean = true, .bias = true};
        Expect(mlx_->Norm(Mlx(x, rows), held, layer_norm), reference_->Norm(Want(x, rows), want, layer_norm),
               "LayerNorm of " + std::to_string(size));
      }
}

TEST_P(MlxOp, GateAndAdd) {
  for (int rows : kRows)
    for (int columns : {1, 31, 64}) {
      const auto x = Random(rows * columns, 3), y = Random(rows * columns);
      for (Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh})
        for (bool gated : {true, false}) {
          const MlxTensor up = Mlx(y, rows);
          const ReferenceOps::Tensor up_want = Want(y, rows);
          const GateSpec gate{.act = activation};
          Expect(mlx_->Gate(Mlx(x, rows), gated ? &up : nullptr, gate),
                 reference_->Gate(Want(x, rows), gated ? &up_want : nullptr, gate),
                 fmt::format("gate {}", Name(activation)));
        }
      for (float scale : {1.f, 0.22f})
        Expect(mlx_->Add(Mlx(x, rows), Mlx(y, rows), scale),
               reference_->Add(Want(x, rows), Want(y, rows), scale), "add");
    }
}

// What is folded into one kernel's call equals the operations one by one.
TEST_P(MlxOp, FoldedProducts) {
  const auto& layer = mlx_->ModelWeights().layers[0];
  const auto& layer_want = reference_->ModelWeights().layers[0];
  const auto& mlx = MlpOf(layer);
  const auto& want = MlpOf(layer_want);
  const auto& attention = AttentionOf(layer);
  const auto& attention_want = AttentionOf(layer_want);
  const NormSpec norm = *model_.spec.layers[0].ffn[0].pre;
  for (int rows : kRows) {
    const auto x = Random(rows * 32, 2);
    const auto h = mlx_->Norm(Mlx(x, rows), layer.ffn[0].pre, norm);
    const auto h_want = reference_->Norm(Want(x, rows), layer_want.ffn[0].pre, norm);
    const auto up = mlx_->Linear(h, mlx.up);
    const auto up_want = reference_->Linear(h_want, want.up);
    const auto gated = mlx_->Gate(mlx_->Linear(h, *mlx.gate), &up, {});
    const auto gated_want = reference_->Gate(reference_->Linear(h_want, *want.gate), &up_want, {});
    Expect(gated, gated_want, "norm, products, gate");
    Expect(mlx_->Add(Mlx(x, rows), mlx_->Linear(gated, mlx.down), 1),
           reference_->Add(Want(x, rows), reference_->Linear(gated_want, want.down), 1), "product, add");
    const auto k = mlx_->Linear(h, *attention.k), q = mlx_->Linear(h, attention.q);  // of one stacked product
    Expect(k, reference_->Linear(h_want, *attention_want.k), "keys");
    Expect(q, reference_->Linear(h_want, attention_want.q), "queries");
  }
}

// Rotation, Append and Attend of every kind of layer, in steps that mix sequences.
TEST_P(MlxOp, AttentionOfEveryKind) {
  const int lengths[] = {40, 3, 25};
  std::vector<SlotId> slots, want_slots;
  for (int i = 0; i < 3; ++i) {
    slots.push_back(mlx_->OpenSlot(64, {})), want_slots.push_back(reference_->OpenSlot(64, {}));
  }
  std::vector<int> held(3, 0);
  for (const std::vector<int>& counts : {std::vector{33, 2, 1}, {5, 0, 23}, {1, 1, 0}, {1, 0, 1}}) {
    std::vector<TokenId> ids;
    std::vector<int32_t> pos;
    std::vector<SlotId> slot, want_slot;
    for (size_t s = 0; s < 3; ++s)
      for (int i = 0; i < counts[s]; ++i) {
        ids.push_back(1), pos.push_back(held[s]++);
        slot.push_back(slots[s]), want_slot.push_back(want_slots[s]);
      }
    const int n = int(ids.size());
    const Rows rows{ids, pos, slot, pos}, want_rows{ids, pos, want_slot, pos};
    mlx_->BeginRows(rows);
    for (int layer = 0; layer < int(model_.spec.layers.size()); ++layer) {
      const AttentionSpec& a = AttentionOf(model_.spec.layers[size_t(layer)]);
      const auto q = Random(n * a.q_width(), 1.5f), k = Random(n * a.kv_width(), 1.5f),
                 v = Random(n * a.kv_width());
      const auto turn = [&](auto& ops, auto t, int heads, const Rows& r) {
        return a.rope ? ops.Rope(std::move(t), heads, *a.rope, r) : t;
      };
      mlx_->Append(layer, a, turn(*mlx_, Mlx(k, n), a.kv_heads, rows), Mlx(v, n), rows);
      reference_->Append(layer, a, turn(*reference_, Want(k, n), a.kv_heads, want_rows), Want(v, n),
                         want_rows);
      Expect(mlx_->Attend(layer, a, turn(*mlx_, Mlx(q, n), a.heads, rows), rows),
             reference_->Attend(layer, a, turn(*reference_, Want(q, n), a.heads, want_rows), want_rows),
             fmt::format("layer {} with {} rows", layer, n));
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(held[i], lengths[i]);
}

TEST_P(MlxOp, EmbedAndLogits) {
  const SlotId slot = mlx_->OpenSlot(64, {});
  const std::vector<TokenId> ids = {5, 0, 95, 5, 17};
  const std::vector<int32_t> pos = {0, 1, 2, 3, 4};
  const std::vector<SlotId> slots(5, slot);
  for (const std::vector<int32_t>& wanted : {std::vector<int32_t>{0, 1, 2, 3, 4}, {4}, {0, 3}}) {
    const Rows rows{ids, pos, slots, wanted};
    mlx_->BeginRows(rows);
    // Weights that the activations can hold: f16 rounds the table itself.
    const auto table = ReadFloats(*mlx_->ModelWeights().embed.values);
    const std::vector<double> want_table(table.begin(), table.end());
    const MlxTensor x = mlx_->Embed(mlx_->ModelWeights().embed, 1.5f, rows);
    Expect(x, reference_->Embed(want_table, 1.5f, rows), "embed");
    const auto h = Random(5 * 32), gain = Random(32);
    const NormSpec norm{1e-5f};
    Expect(mlx_->Logits(Mlx(h, 5), mlx_->ModelWeights().embed, 20.f, 0.5f, rows),
           reference_->Logits(Want(h, 5), want_table, 20.f, 0.5f, rows), "logits");
    const auto normed = reference_->Norm(Want(h, 5), {{{gain.begin(), gain.end()}}, {}}, norm);
    Expect(mlx_->Logits(mlx_->Norm(Mlx(h, 5), {Plain(gain, 32), {}}, norm), mlx_->ModelWeights().embed, {}, 1,
                        rows),
           reference_->Logits(normed, want_table, {}, 1, rows), "norm, logits");
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, MlxOp,
                         ::testing::Values(Precision{DType::kF32, "mlx_f32"},
                                           Precision{DType::kF16, "mlx_f16"},
                                           Precision{DType::kBF16, "mlx_bf16"}),
                         [](const auto& p) { return std::string(Name(p.param.activations)); });

}  // namespace
}  // namespace pd
