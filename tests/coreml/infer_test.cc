#include "coreml/mil/infer.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "coreml/mil/builder.h"
#include "coreml/mil/check.h"

namespace pd::mil {
namespace {

constexpr DataType kHalf = DataType::kF16;

// Operands of one op; its copies share the constants.
class OpTest {
 public:
  OpTest& In(const std::string& parameter, TensorType type) {
    operands_[parameter].push_back({std::move(type), nullptr});
    return *this;
  }
  OpTest& In(const std::string& parameter, Value value) {
    values_.push_back(std::make_shared<const Value>(std::move(value)));
    operands_[parameter].push_back({values_.back()->type, values_.back().get()});
    return *this;
  }
  OpTest& Ints(const std::string& parameter, const std::vector<int32_t>& values) {
    return In(parameter, Vector(values));
  }
  // Shapes of the results, or what is wrong.
  std::string operator()(const char* op) const {
    std::string result;
    try {
      for (const TensorType& type : InferOutputs(op, operands_))
        result += (result.empty() ? "" : " ") + ToString(type);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
      return std::string("error: ") + error.what();
    }
    return result;
  }

 private:
  Operands operands_;
  std::vector<std::shared_ptr<const Value>> values_;
};

OpTest X(const Dims& shape, DataType dtype = kHalf) { return OpTest().In("x", TensorType{dtype, shape}); }
std::string T(const Dims& shape, DataType dtype = kHalf) { return ToString({dtype, shape}); }
bool Fails(const std::string& result) { return result.starts_with("error: "); }

TEST(Infer, Broadcasting) {
  EXPECT_EQ(X({1, 4, 1, 8}).In("y", TensorType{kHalf, {3, 1}})("add"), T({1, 4, 3, 8}));
  EXPECT_EQ(X({1, 4, 1, 8}).In("y", ScalarF16(1))("mul"), T({1, 4, 1, 8}));
  EXPECT_EQ(X({2}).In("y", TensorType{kHalf, {2}})("greater"), T({2}, DataType::kBool));
  EXPECT_TRUE(Fails(X({2}).In("y", TensorType{kHalf, {3}})("add")));
  EXPECT_TRUE(Fails(X({2}).In("y", TensorType{DataType::kF32, {2}})("add")));
  EXPECT_TRUE(Fails(X({2})("add")));
}

TEST(Infer, Convolution) {
  const auto conv = [](const Dims& x, const Dims& w) { return X(x).In("weight", TensorType{kHalf, w}); };
  EXPECT_EQ(conv({1, 8, 1, 32}, {6, 8, 1, 1})("conv"), T({1, 6, 1, 32}));
  EXPECT_EQ(conv({2, 8, 9, 9}, {6, 4, 3, 3}).In("groups", Scalar(2)).Ints("strides", {2, 2})("conv"),
            T({2, 6, 4, 4}));
  EXPECT_EQ(conv({1, 8, 9}, {6, 8, 3}).In("pad_type", Scalar("same")).Ints("strides", {2})("conv"),
            T({1, 6, 5}));
  EXPECT_EQ(conv({1, 8, 9}, {6, 8, 3}).In("pad_type", Scalar("custom")).Ints("pad", {1, 0})("conv"),
            T({1, 6, 8}));
  EXPECT_EQ(conv({1, 8, 9}, {6, 8, 3}).Ints("dilations", {4})("conv"), T({1, 6, 1}));
  EXPECT_TRUE(Fails(conv({1, 8, 1, 32}, {6, 7, 1, 1})("conv")));
  EXPECT_TRUE(Fails(conv({1, 8, 2}, {6, 8, 3})("conv")));
  EXPECT_TRUE(Fails(conv({1, 8, 9}, {6, 8, 3}).Ints("strides", {0})("conv")));
  EXPECT_TRUE(Fails(conv({1, 8, 1, 32}, {6, 8, 1, 1}).In("bias", TensorType{kHalf, {5}})("conv")));
}

TEST(Infer, Products) {
  const auto matmul = [](const Dims& x, const Dims& y, bool tx, bool ty) {
    return X(x)
        .In("y", TensorType{kHalf, y})
        .In("transpose_x", Scalar(tx))
        .In("transpose_y", Scalar(ty))("matmul");
  };
  EXPECT_EQ(matmul({1, 2, 16, 8}, {1, 1, 16, 24}, true, false), T({1, 2, 8, 24}));
  EXPECT_EQ(matmul({1, 1, 16, 24}, {1, 2, 8, 24}, false, true), T({1, 2, 16, 8}));
  EXPECT_EQ(matmul({4}, {4, 5}, false, false), T({5}));
  EXPECT_EQ(matmul({3, 4}, {4}, false, false), T({3}));
  EXPECT_TRUE(Fails(matmul({3, 4}, {5, 4}, false, false)));
  const auto einsum = [](const Dims& a, const Dims& b, const char* equation) {
    return OpTest()
        .In("values", TensorType{kHalf, a})
        .In("values", TensorType{kHalf, b})
        .In("equation", Scalar(equation))("einsum");
  };
  EXPECT_EQ(einsum({1, 24, 1, 16}, {1, 16, 1, 8}, "bkhc,bchq->bkhq"), T({1, 24, 1, 8}));
  EXPECT_EQ(einsum({24, 2, 16}, {16, 2, 8}, "chw,whr->chr"), T({24, 2, 8}));
  EXPECT_TRUE(Fails(einsum({1, 24, 1, 16}, {1, 16, 1, 8}, "bchq,bkhc->bkhq")));
  EXPECT_TRUE(Fails(einsum({1, 24, 1, 16}, {1, 15, 1, 8}, "bkhc,bchq->bkhq")));
  EXPECT_EQ(X({2, 3, 4}).In("weight", TensorType{kHalf, {5, 4}})("linear"), T({2, 3, 5}));
}

TEST(Infer, ReductionsAndNorms) {
  EXPECT_EQ(X({1, 4, 8}).Ints("axes", {-1})("reduce_sum"), T({1, 4}));
  EXPECT_EQ(X({1, 4, 8}).Ints("axes", {1}).In("keep_dims", Scalar(true))("reduce_mean"), T({1, 1, 8}));
  EXPECT_EQ(X({1, 4, 8})("reduce_max"), "fp16");
  EXPECT_EQ(X({1, 4, 8}).In("axis", Scalar(1))("reduce_argmax"), T({1, 8}, DataType::kI32));
  EXPECT_EQ(X({1, 4, 8}).Ints("axes", {1})("layer_norm"), T({1, 4, 8}));
  EXPECT_EQ(X({1, 4, 8}).In("axis", Scalar(-1))("softmax"), T({1, 4, 8}));
  EXPECT_TRUE(Fails(X({1, 4, 8}).In("axis", Scalar(3))("softmax")));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("axes", {1}).In("gamma", TensorType{kHalf, {8}})("layer_norm")));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("axes", {1, -2})("reduce_sum")));
}

TEST(Infer, Shapes) {
  EXPECT_EQ(X({1, 4, 8}).Ints("shape", {2, -1})("reshape"), T({2, 16}));
  EXPECT_EQ(X({2, 3, 8}).Ints("shape", {6, 0})("reshape"), T({6, 8}));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("shape", {3, -1})("reshape")));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("shape", {-1, -1})("reshape")));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("shape", {1 << 30, 1 << 30, 1 << 30})("reshape")));
  EXPECT_EQ(X({1, 4, 8}).Ints("perm", {2, 0, -2})("transpose"), T({8, 1, 4}));
  EXPECT_TRUE(Fails(X({1, 4, 8}).Ints("perm", {0, 0, 1})("transpose")));
  EXPECT_EQ(X({4, 8}).Ints("axes", {0, -1})("expand_dims"), T({1, 4, 8, 1}));
  EXPECT_EQ(X({1, 4, 1}).Ints("axes", {0})("squeeze"), T({4, 1}));
  EXPECT_TRUE(Fails(X({1, 4, 1}).Ints("axes", {1})("squeeze")));
  const TensorType a{kHalf, {1, 4, 8}}, b{kHalf, {1, 2, 8}};
  EXPECT_EQ(OpTest().In("values", a).In("values", b).In("axis", Scalar(1))("concat"), T({1, 6, 8}));
  EXPECT_TRUE(Fails(OpTest().In("values", a).In("values", b).In("axis", Scalar(2))("concat")));
  EXPECT_TRUE(Fails(OpTest()
                        .In("values", a)
                        .In("values", b)
                        .In("axis", Scalar(1))
                        .In("interleave", Scalar(true))("concat")));
  EXPECT_EQ(OpTest().In("values", a).In("values", a).In("axis", Scalar(0))("stack"), T({2, 1, 4, 8}));
  EXPECT_EQ(X({1, 6, 8}).Ints("split_sizes", {2, 4}).In("axis", Scalar(1))("split"),
            T({1, 2, 8}) + " " + T({1, 4, 8}));
  EXPECT_EQ(X({1, 6}).In("num_splits", Scalar(3)).In("axis", Scalar(1))("split"),
            T({1, 2}) + " " + T({1, 2}) + " " + T({1, 2}));
  EXPECT_TRUE(Fails(X({1, 6}).In("num_splits", Scalar(4)).In("axis", Scalar(1))("split")));
  EXPECT_EQ(X({2, 3}).Ints("reps", {2, 1})("tile"), T({4, 3}));
  EXPECT_EQ(X({2, 3}).Ints("pad", {1, 2})("pad"), T({2, 6}));
}

TEST(Infer, Slices) {
  EXPECT_EQ(X({1, 8, 10}).Ints("begin", {0, 2, 0}).Ints("size", {1, 3, -1})("slice_by_size"), T({1, 3, 10}));
  EXPECT_TRUE(Fails(X({1, 8, 10}).Ints("begin", {0, 6, 0}).Ints("size", {1, 3, -1})("slice_by_size")));
  const TensorType run_time{DataType::kI32, {3}};
  EXPECT_EQ(X({1, 8, 10}).In("begin", run_time).Ints("size", {1, 3, 10})("slice_by_size"), T({1, 3, 10}));
  const auto by_index = [] { return X({1, 8, 10}).Ints("begin", {0, -3, 1}).Ints("end", {1, 8, 9}); };
  EXPECT_EQ(by_index()("slice_by_index"), T({1, 3, 8}));
  EXPECT_EQ(by_index().Ints("stride", {1, 2, 3})("slice_by_index"), T({1, 2, 3}));
  EXPECT_EQ(by_index().In("squeeze_mask", Vector(std::vector<bool>{true, false, false}))("slice_by_index"),
            T({3, 8}));
  EXPECT_EQ(by_index().In("end_mask", Vector(std::vector<bool>{false, false, true}))("slice_by_index"),
            T({1, 3, 9}));
  EXPECT_EQ(X({8}).Ints("begin", {-1}).Ints("end", {-9}).Ints("stride", {-1})("slice_by_index"), T({8}));
  EXPECT_EQ(X({8, 4}).In("begin", TensorType{DataType::kI32, {2}}).Ints("end", {2, 2})("slice_by_index"),
            T({kUnknown, kUnknown}));
  EXPECT_EQ(X({1, 8})
                .In("update", TensorType{kHalf, {1, 2}})
                .Ints("begin", {0, 3})
                .Ints("end", {1, 5})("slice_update"),
            T({1, 8}));
  EXPECT_TRUE(Fails(X({1, 8})
                        .In("update", TensorType{kHalf, {1, 3}})
                        .Ints("begin", {0, 3})
                        .Ints("end", {1, 5})("slice_update")));
}

TEST(Infer, Compression) {
  const auto lut = [](const Dims& indices, DataType type, const Dims& table) {
    return OpTest()
        .In("indices", TensorType{type, indices})
        .In("lut", TensorType{kHalf, table})("constexpr_lut_to_dense");
  };
  EXPECT_EQ(lut({64, 32, 1, 1}, DataType::kU4, {8, 1, 1, 1, 16, 1}), T({64, 32, 1, 1}));
  EXPECT_TRUE(Fails(lut({64, 32, 1, 1}, DataType::kU4, {8, 1, 1, 1, 8, 1})));
  EXPECT_TRUE(Fails(lut({64, 32, 1, 1}, DataType::kU4, {7, 1, 1, 1, 16, 1})));
  const auto scaled = [](const Dims& scale) {
    return OpTest()
        .In("data", TensorType{DataType::kI8, {64, 32, 1, 1}})
        .In("scale", TensorType{kHalf, scale})("constexpr_blockwise_shift_scale");
  };
  EXPECT_EQ(scaled({64, 1, 1, 1}), T({64, 32, 1, 1}));
  EXPECT_EQ(scaled({64, 2, 1, 1}), T({64, 32, 1, 1}));
  EXPECT_TRUE(Fails(scaled({64, 3, 1, 1})));
  EXPECT_TRUE(Fails(scaled({64})));
}

TEST(Builder, MakesInputsConstantsAndOpsOnce) {
  FunctionBuilder f("CoreML8");
  const std::string x = f.Input("x", {kHalf, {1, 8, 1, 32}});
  EXPECT_EQ(f.Input("x", {kHalf, {1, 8, 1, 32}}), x);
  f.Const("c", ScalarF16(2));
  EXPECT_EQ(f.Const("c", ScalarF16(2)), "c");
  const std::string a = f.Op("reshape", {{"x", x}, {"shape", Vector(std::vector<int32_t>{1, 2, 4, 32})}});
  const std::string b = f.Op("reshape", {{"x", x}, {"shape", Vector(std::vector<int32_t>{1, 2, 4, 32})}});
  EXPECT_NE(a, b);
  EXPECT_EQ(f.ShapeOf(b), (Dims{1, 2, 4, 32}));
  f.Output(f.Op("mul", {{"x", b}, {"y", std::string("c")}}), "y");
  const Function function = std::move(f).Finish();
  int constants = 0;
  for (const Operation& op : function.body.operations) constants += op.type == "const";
  EXPECT_EQ(constants, 2);  // c, and one literal shape for both reshapes
  EXPECT_EQ(function.body.outputs, std::vector<std::string>{"y"});
  CheckProgram({{{"main", function}}, {}});
}

}  // namespace
}  // namespace pd::mil
