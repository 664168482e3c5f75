// What the lowering writes, and what the linter says of it.
#include <gtest/gtest.h>

#include <set>

#include "coreml/export/encode.h"
#include "coreml/export/range.h"
#include "coreml/mil/check.h"
#include "coreml/mil/lint.h"
#include "coreml/mil/mil_ops.h"
#include "tests/tiny_model.h"

namespace pd::mil {
namespace {

struct Lowered {
  ModelSpec spec;
  std::vector<Function> functions;
};

Lowered Lower(ModelSpec spec, const LoweringOptions& options, const PrefillShape& shape,
              const std::vector<int>& shard_begins = {0}) {
  Weights<EncodedWeight> encoded;
  BlobLayout layout;
  MakeRoom(spec, encoded);
  ForEachWeight(spec, encoded, [&](EncodedWeight& w, const WeightInfo& info) {
    w = IsNeeded(spec, info) ? PlanWeight(spec, info, WeightFormat::kFp16, layout) : EncodedWeight{info, {}};
  });
  const auto pointers = MapWeights<const EncodedWeight*>(
      spec, encoded, [](const EncodedWeight& w, const WeightInfo&) { return &w; });
  auto functions = LowerPrefill(spec, pointers, UnitScales(spec), options, shape, shard_begins);
  for (const Function& f : functions) CheckProgram({{{"main", f}}, {}});
  return {std::move(spec), std::move(functions)};
}

int Count(const Function& f, const std::string& type) {
  int n = 0;
  for (const Operation& op : f.body.operations) n += op.type == type;
  return n;
}

std::set<std::string> InputNames(const Function& f) {
  std::set<std::string> names;
  for (const NamedType& input : f.inputs) names.insert(input.name);
  return names;
}

TEST(Lowering, LastLayerEndsAtItsKeysAndValues) {
  const Lowered l = Lower(test::MixedSpec(), {}, {32, 64});
  const Function& f = l.functions.at(0);
  const int last = int(l.spec.layers.size()) - 1;
  EXPECT_TRUE(InputNames(f).contains(PastKeys(last - 1)));
  EXPECT_FALSE(InputNames(f).contains(PastKeys(last)));  // nothing attends there
  EXPECT_EQ(f.body.outputs.size(), 2 * l.spec.layers.size());
  for (const Operation& op : f.body.operations)
    EXPECT_FALSE(op.outputs[0].name.starts_with("layers_6_q") ||
                 op.outputs[0].name.starts_with("layers_6_gate"));
}

TEST(Lowering, NothingIsTransposedAndEveryTensorIsHalf) {
  const Function f = Lower(test::MixedSpec(), {}, {32, 64}).functions.at(0);
  EXPECT_EQ(Count(f, "transpose"), 0);
  EXPECT_EQ(Count(f, "cast"), 0);
  for (const Operation& op : f.body.operations)
    EXPECT_TRUE(op.type == "const" || op.outputs[0].type.dtype == DataType::kF16) << op.outputs[0].name;
}

TEST(Lowering, WithoutHistoryThereAreNoPastInputs) {
  for (const std::string& name : InputNames(Lower(test::MixedSpec(), {}, {32, 0}).functions.at(0)))
    EXPECT_FALSE(name.starts_with("past_")) << name;
}

TEST(Lowering, SharesTablesAndMasks) {
  const Lowered l = Lower(test::MixedSpec(), {}, {32, 128});
  const std::set<std::string> inputs = InputNames(l.functions.at(0));
  int tables = 0, masks = 0;
  for (const std::string& name : inputs)
    tables += name.starts_with("cos_"), masks += name.starts_with("mask");
  EXPECT_EQ(masks, 2);   // with a window of 20, and without
  EXPECT_EQ(tables, 4);  // head sizes 8 and 16, two bases, partial
  const auto shape_of = [&](const std::string& name) {
    for (const NamedType& input : l.functions.at(0).inputs)
      if (input.name == name) return input.type.shape;
    return Dims{};
  };
  EXPECT_EQ(shape_of("mask_w20"), (Dims{1, 1, 32, 32 + 32}));  // 19 rounded up to 32
  EXPECT_EQ(shape_of("mask"), (Dims{1, 1, 32, 128 + 32}));
}

TEST(Lowering, ShardsPassTheStreamOn) {
  const Lowered l = Lower(test::MixedSpec(), {}, {32, 64}, {0, 2, 6});
  ASSERT_EQ(l.functions.size(), 3u);
  EXPECT_EQ(l.functions[0].body.outputs.back(), kHiddenOut);
  EXPECT_EQ(l.functions[1].inputs.front().name, kHidden);
  EXPECT_EQ(l.functions[2].body.outputs, (std::vector<std::string>{NewKeys(6), NewValues(6)}));
  EXPECT_EQ(InputNames(l.functions[2]).contains("mask"), false);  // the last layer attends to nothing
}

TEST(Lowering, RawKeysAreNotRotated) {
  const Function f =
      Lower(test::MixedSpec(), {AttentionForm::kHeads, KeyForm::kRaw}, {32, 0}, {0, 6}).functions.at(1);
  EXPECT_TRUE(InputNames(f) == std::set<std::string>{kHidden});  // no tables: its only layer rotates nothing
}

TEST(Lowering, LongScoresAreTiled) {
  ModelSpec spec = test::MixedSpec();
  spec.layers.resize(2);
  AttentionOf(spec.layers[0]).heads = 32, AttentionOf(spec.layers[0]).kv_heads = 4;
  const Function f = Lower(spec, {}, {512, 4096}).functions.at(0);  // 8 heads x 512 x 4608 x 2 bytes a group
  EXPECT_EQ(Count(f, "softmax"), 4 * 4);
  for (const Operation& op : f.body.operations) {
    if (op.type != "softmax") continue;
    EXPECT_EQ(op.outputs[0].type.shape, (Dims{1, 8, 128, 4608}));
  }
}

TEST(Lowering, FormsHaveTheirShapes) {
  const auto softmax_shape = [](AttentionForm form) {
    ModelSpec spec = test::MixedSpec();
    const Function f = Lower(spec, {form, KeyForm::kRotated}, {32, 64}).functions.at(0);
    for (const Operation& op : f.body.operations)
      if (op.type == "softmax") return op.outputs[0].type.shape;
    return Dims{};
  };
  EXPECT_EQ(softmax_shape(AttentionForm::kHeads), (Dims{1, 2, 32, 96}));
  EXPECT_EQ(softmax_shape(AttentionForm::kChannels), (Dims{1, 96, 1, 32}));
  EXPECT_EQ(softmax_shape(AttentionForm::kGrouped), (Dims{2, 2, 32, 96}));
}

// ---- lint ----

TEST(Lint, FindsNoFaultInWhatWeWrite) {
  for (AttentionForm form : {AttentionForm::kHeads, AttentionForm::kChannels, AttentionForm::kGrouped}) {
    const LintedFunction linted =
        Lint("f", Lower(test::MixedSpec(), {form, KeyForm::kRotated}, {32, 64}).functions.at(0));
    EXPECT_FALSE(linted.HasViolation());
    // Only the keys that the channels form turns end in an axis as short as a head.
    for (const LintedOp& op : linted.ops)
      EXPECT_TRUE(op.reason.empty() || op.type == "transpose") << op.type << " " << op.reason;
    EXPECT_EQ(linted.findings.size(), 1u);  // a tiny model is too small
    EXPECT_GT(linted.flops, 1e6);
    EXPECT_GT(linted.weight_bytes, 50'000);
    EXPECT_GT(linted.activation_bytes, 32 * 96 * 2);
  }
}

// A function with one op; `spoil` makes it break a rule.
LintedFunction LintOne(const std::function<std::string(FunctionBuilder&, const std::string&)>& make,
                       const TensorType& input = {DataType::kF16, {1, 64, 1, 32}}) {
  FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", input);
  f.Output(make(f, x), "y");
  return Lint("f", std::move(f).Finish());
}

void ExpectFinding(const LintedFunction& linted, Verdict verdict, const std::string& reason) {
  for (const LintedOp& op : linted.ops)
    if (op.verdict == verdict && op.reason.find(reason) != std::string::npos) return;
  ADD_FAILURE() << "nothing says: " << reason;
}

TEST(Lint, NamesEveryViolation) {
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("topk", {{"x", x}, {"k", Scalar(2)}, {"return_indices", Scalar(false)}});
                }),
                Verdict::kViolation, "does not run");
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("cast", {{"x", x}, {"dtype", Scalar("fp32")}});
                }),
                Verdict::kViolation, "not fp16");
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("expand_dims", {{"x", x}, {"axes", Vector(std::vector<int32_t>{0})}});
                }),
                Verdict::kViolation, "rank 5");
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("tile", {{"x", x}, {"reps", Vector(std::vector<int32_t>{1, 2000, 1, 1})}});
                }),
                Verdict::kViolation, "an axis above 65536");
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("slice_by_size", {{"x", x},
                                                {"begin", Vector(std::vector<int32_t>{0, 0, 0, 4})},
                                                {"size", Vector(std::vector<int32_t>{1, 64, 1, 20})}});
                }),
                Verdict::kWarning, "offset of the last axis");
  ExpectFinding(LintOne([](FunctionBuilder& f, const std::string& x) {
                  return f.Op("reshape", {{"x", x}, {"shape", Vector(std::vector<int32_t>{1, 2048, 1, 1})}});
                }),
                Verdict::kWarning, "padded 32 times");
  const auto conv = [](int64_t out, int64_t in) {
    return LintOne(
        [=](FunctionBuilder& f, const std::string& x) {
          const Value w{{DataType::kF16, {out, in, 1, 1}},
                        Blob{"@model_path/weights/weight.bin", 64, {}, {}}};
          return f.Op("conv", {{"x", x}, {"weight", f.Const("w", w)}});
        },
        {DataType::kF16, {1, in, 1, 32}});
  };
  ExpectFinding(conv(8, 17408), Verdict::kViolation, "reduction depth 17408");
  ExpectFinding(conv(8192, 2048), Verdict::kWarning, "1 MiB a core");
  EXPECT_EQ(conv(64, 32).ops.front().flops, 2.0 * 64 * 32 * 32);
  EXPECT_EQ(conv(64, 32).weight_bytes, 2 * 64 * 32);
  EXPECT_TRUE(conv(65536, 8192).HasViolation());  // 1.07 GB of weights
  EXPECT_FALSE(LintOne([](FunctionBuilder& f, const std::string& x) { return f.Op("relu", {{"x", x}}); },
                       {DataType::kF32, {1, 64, 1, 32}})
                   .violations.empty());
}

}  // namespace
}  // namespace pd::mil
