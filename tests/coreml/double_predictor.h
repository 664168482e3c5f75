// Runs the programs that our lowering makes in double precision and plain loops: what the program means,
// without fp16. Shares no code with the interpreter.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "coreml/device/predictor.h"
#include "coreml/package/package.h"

namespace pd::test {

struct Doubles {
  mil::Dims shape;
  std::vector<double> v;
  int64_t count() const { return int64_t(v.size()); }
};

inline int64_t Product(const mil::Dims& shape, size_t from, size_t to) {
  int64_t n = 1;
  for (size_t i = from; i < to; ++i) n *= shape[i];
  return n;
}

class DoublePredictor final : public Predictor {
 public:
  explicit DoublePredictor(Package package) : package_(std::move(package)) {}

  std::vector<std::string> Inputs(const std::string& function) override {
    std::vector<std::string> names;
    for (const mil::NamedType& input : package_.program.functions.at(function).inputs)
      names.push_back(input.name);
    return names;
  }

  std::unique_ptr<PredictorState> NewState(const std::string&) override {
    throw std::logic_error("no states in double precision");
  }

  HalfTensors Predict(const std::string& name, const HalfTensors& inputs, PredictorState*) override {
    const mil::Function& function = package_.program.functions.at(name);
    values_.clear();
    ints_.clear();
    strings_.clear();
    for (const mil::NamedType& input : function.inputs)
      values_[input.name] = Read(inputs.at(input.name), input.type);
    for (const mil::Operation& op : function.body.operations) Run(op);
    HalfTensors outputs;
    for (const std::string& output : function.body.outputs) outputs[output] = Write(values_.at(output));
    return outputs;
  }

 private:
  static Doubles Read(const HalfTensor& t, const mil::TensorType& type) {
    if (t.shape != type.shape) throw std::logic_error("an input of another shape");
    Doubles out{t.shape, {}};
    for (int64_t a = 0; a < t.shape[0]; ++a)
      for (int64_t b = 0; b < t.shape[1]; ++b)
        for (int64_t c = 0; c < t.shape[2]; ++c)
          for (int64_t d = 0; d < t.shape[3]; ++d)
            out.v.push_back(double(
                ToFloat(t.data[a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3]])));
    return out;
  }

  // Rows are padded, as a Neural Engine might.
  static HalfTensor Write(const Doubles& t) {
    const int64_t row = t.shape[3] + 32, rows = t.count() / t.shape[3];
    const auto memory = std::make_shared<std::vector<F16>>(size_t(row * rows), F16{0x7e00});
    for (int64_t i = 0; i < t.count(); ++i)
      (*memory)[size_t(i / t.shape[3] * row + i % t.shape[3])] = ToF16(float(t.v[size_t(i)]));
    return {t.shape, {t.shape[1] * t.shape[2] * row, t.shape[2] * row, row, 1}, memory->data(), memory};
  }

  static Doubles Decode(const mil::Value& value) {
    Doubles out{value.type.shape, {}};
    for (float f : mil::ReadFloats(value)) out.v.push_back(double(f));
    return out;
  }

  const Doubles& In(const mil::Operation& op, const char* parameter, size_t i = 0) const {
    return values_.at(std::get<std::string>(op.inputs.at(parameter).at(i)));
  }
  const std::vector<int64_t>& Ints(const mil::Operation& op, const char* parameter) const {
    return ints_.at(std::get<std::string>(op.inputs.at(parameter).at(0)));
  }
  const mil::Value& Operand(const mil::Operation& op, const char* parameter) const {
    return std::get<mil::Value>(op.inputs.at(parameter).at(0));
  }

  void Run(const mil::Operation& op) {
    const std::string& name = op.outputs.at(0).name;
    if (op.type == "const") {
      const mil::Value& value = op.attributes.at("val");
      if (value.type.dtype == mil::DataType::kString)
        strings_[name] = mil::ReadStrings(value).at(0);
      else if (mil::IsFloat(value.type.dtype))
        values_[name] = Decode(value);
      else
        ints_[name] = mil::ReadInts(value);
      return;
    }
    Doubles y = Compute(op);
    y.shape = op.outputs[0].type.shape;
    if (y.count() != Product(y.shape, 0, y.shape.size()))
      throw std::logic_error("wrong size from " + op.type);
    values_[name] = std::move(y);
  }

  Doubles Compute(const mil::Operation& op) const {
    if (op.type == "constexpr_blockwise_shift_scale") return Dequantise(op);
    if (op.type == "constexpr_lut_to_dense") return LookUp(op);
    if (op.type == "conv") return Conv(op);
    if (op.type == "add") return Binary(op, [](double a, double b) { return a + b; });
    if (op.type == "mul") return Binary(op, [](double a, double b) { return a * b; });
    if (op.type == "concat") return Concat(op);
    if (op.type == "slice_by_size") return Slice(op);
    if (op.type == "transpose") return Transpose(op);
    if (op.type == "layer_norm") return LayerNorm(op);
    if (op.type == "softmax") return Softmax(op);
    if (op.type == "matmul") return MatMul(op);
    if (op.type == "einsum") return Einsum(op);
    if (op.type == "reshape" || op.type == "identity") return In(op, "x");
    if (op.type == "silu") return Unary(op, [](double x) { return x / (1 + std::exp(-x)); });
    if (op.type == "tanh") return Unary(op, [](double x) { return std::tanh(x); });
    if (op.type == "gelu") {
      const bool exact = strings_.at(std::get<std::string>(op.inputs.at("mode").at(0))) == "EXACT";
      return Unary(op, [exact](double x) {
        return exact ? 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)))
                     : 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      });
    }
    throw std::logic_error("no op " + op.type);
  }

  Doubles Dequantise(const mil::Operation& op) const {
    const auto data = mil::ReadInts(Operand(op, "data"));
    const auto scale = mil::ReadFloats(Operand(op, "scale"));
    Doubles y{Operand(op, "data").type.shape, {}};
    const size_t inner = data.size() / scale.size();
    for (size_t i = 0; i < data.size(); ++i) y.v.push_back(double(data[i]) * double(scale[i / inner]));
    return y;
  }

  Doubles LookUp(const mil::Operation& op) const {
    const auto indices = mil::ReadInts(Operand(op, "indices"));
    const auto tables = mil::ReadFloats(Operand(op, "lut"));
    Doubles y{Operand(op, "indices").type.shape, {}};
    const size_t served = indices.size() / (tables.size() / 16);
    for (size_t i = 0; i < indices.size(); ++i)
      y.v.push_back(double(tables[i / served * 16 + size_t(indices[i])]));
    return y;
  }

  Doubles Conv(const mil::Operation& op) const {
    const Doubles &x = In(op, "x"), &w = In(op, "weight");
    const int64_t out = w.shape[0], in = w.shape[1], n = x.shape[3];
    Doubles y{{1, out, 1, n}, std::vector<double>(size_t(out * n))};
    const Doubles* bias = op.inputs.contains("bias") ? &In(op, "bias") : nullptr;
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i)
        for (int64_t t = 0; t < n; ++t)
          y.v[size_t(o * n + t)] += w.v[size_t(o * in + i)] * x.v[size_t(i * n + t)];
    if (bias)
      for (int64_t i = 0; i < out * n; ++i) y.v[size_t(i)] += bias->v[size_t(i / n)];
    return y;
  }

  Doubles Unary(const mil::Operation& op, const std::function<double(double)>& f) const {
    Doubles y = In(op, "x");
    for (double& v : y.v) v = f(v);
    return y;
  }

  template <class F>
  Doubles Binary(const mil::Operation& op, F f) const {
    const Doubles &x = In(op, "x"), &y = In(op, "y");
    const mil::Dims& shape = op.outputs[0].type.shape;
    Doubles z{shape, std::vector<double>(size_t(Product(shape, 0, shape.size())))};
    const auto place = [&](const Doubles& t, int64_t i) {
      int64_t at = 0, step = 1;
      for (size_t a = shape.size(), b = t.shape.size(); a-- > 0 && b-- > 0;) {
        if (t.shape[b] != 1) at += i % shape[a] * step;
        step *= t.shape[b];
        i /= shape[a];
      }
      return size_t(at);
    };
    for (int64_t i = 0; i < z.count(); ++i) z.v[size_t(i)] = f(x.v[place(x, i)], y.v[place(y, i)]);
    return z;
  }

  Doubles Concat(const mil::Operation& op) const {
    const auto axis = size_t(Ints(op, "axis")[0]);
    const size_t parts = op.inputs.at("values").size();
    const Doubles& first = In(op, "values");
    Doubles y{{}, {}};
    for (int64_t outer = 0; outer < Product(first.shape, 0, axis); ++outer)
      for (size_t p = 0; p < parts; ++p) {
        const Doubles& x = In(op, "values", p);
        const int64_t n = Product(x.shape, axis, x.shape.size());
        y.v.insert(y.v.end(), x.v.begin() + outer * n, x.v.begin() + (outer + 1) * n);
      }
    return y;
  }

  Doubles Slice(const mil::Operation& op) const {
    const Doubles& x = In(op, "x");
    const auto &begin = Ints(op, "begin"), &size = Ints(op, "size");
    Doubles y{{}, {}};
    for (int64_t a = 0; a < size[0]; ++a)
      for (int64_t b = 0; b < size[1]; ++b)
        for (int64_t c = 0; c < size[2]; ++c)
          for (int64_t d = 0; d < size[3]; ++d)
            y.v.push_back(x.v[size_t(
                (((begin[0] + a) * x.shape[1] + begin[1] + b) * x.shape[2] + begin[2] + c) * x.shape[3] +
                begin[3] + d)]);
    return y;
  }

  Doubles Transpose(const mil::Operation& op) const {  // of the axes 1 and 3
    const Doubles& x = In(op, "x");
    if (Ints(op, "perm") != std::vector<int64_t>{0, 3, 2, 1} || x.shape[0] != 1 || x.shape[2] != 1)
      throw std::logic_error("transpose");
    Doubles y{{}, {}};
    for (int64_t d = 0; d < x.shape[3]; ++d)
      for (int64_t b = 0; b < x.shape[1]; ++b) y.v.push_back(x.v[size_t(b * x.shape[3] + d)]);
    return y;
  }

  // Runs f over each line of x along an axis.
  template <class F>
  static Doubles AlongAxis(Doubles x, size_t axis, F f) {
    const int64_t n = x.shape[axis], inner = Product(x.shape, axis + 1, x.shape.size());
    std::vector<double> line(static_cast<size_t>(n));
    for (int64_t outer = 0; outer < x.count() / (n * inner); ++outer)
      for (int64_t i = 0; i < inner; ++i) {
        for (int64_t j = 0; j < n; ++j) line[size_t(j)] = x.v[size_t((outer * n + j) * inner + i)];
        f(line);
        for (int64_t j = 0; j < n; ++j) x.v[size_t((outer * n + j) * inner + i)] = line[size_t(j)];
      }
    return x;
  }

  Doubles LayerNorm(const mil::Operation& op) const {
    const double epsilon = In(op, "epsilon").v[0];
    return AlongAxis(In(op, "x"), size_t(Ints(op, "axes").at(0)), [epsilon](std::vector<double>& line) {
      double mean = 0, variance = 0;
      for (double v : line) mean += v / double(line.size());
      for (double v : line) variance += (v - mean) * (v - mean) / double(line.size());
      for (double& v : line) v = (v - mean) / std::sqrt(variance + epsilon);
    });
  }

  Doubles Softmax(const mil::Operation& op) const {
    return AlongAxis(In(op, "x"), size_t(Ints(op, "axis").at(0)), [](std::vector<double>& line) {
      double most = line[0], sum = 0;
      for (double v : line) most = std::max(most, v);
      for (double& v : line) sum += v = std::exp(v - most);
      for (double& v : line) v /= sum;
    });
  }

  Doubles MatMul(const mil::Operation& op) const {
    const Doubles &x = In(op, "x"), &y = In(op, "y");
    const bool tx = Ints(op, "transpose_x")[0] != 0, ty = Ints(op, "transpose_y")[0] != 0;
    const mil::Dims& shape = op.outputs[0].type.shape;
    const int64_t rows = shape[2], columns = shape[3], depth = tx ? x.shape[2] : x.shape[3];
    Doubles z{shape, {}};
    for (int64_t a = 0; a < shape[0]; ++a)
      for (int64_t b = 0; b < shape[1]; ++b) {
        const auto matrix = [&](const Doubles& t) {
          return t.v.data() + ((t.shape[0] == 1 ? 0 : a) * t.shape[1] + (t.shape[1] == 1 ? 0 : b)) *
                                  t.shape[2] * t.shape[3];
        };
        const double *mx = matrix(x), *my = matrix(y);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            double sum = 0;
            for (int64_t k = 0; k < depth; ++k)
              sum += mx[tx ? k * rows + r : r * depth + k] * my[ty ? c * depth + k : k * columns + c];
            z.v.push_back(sum);
          }
      }
    return z;
  }

  // (1, C, 1, W) with (1, W, 1, U): both equations contract the last axis of the first with axis 1 of the
  // second.
  Doubles Einsum(const mil::Operation& op) const {
    const Doubles &x = In(op, "values", 0), &y = In(op, "values", 1);
    const int64_t rows = x.shape[1], depth = x.shape[3], columns = y.shape[3];
    if (y.shape[1] != depth) throw std::logic_error("einsum");
    Doubles z{{}, {}};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += x.v[size_t(r * depth + k)] * y.v[size_t(k * columns + c)];
        z.v.push_back(sum);
      }
    return z;
  }

  Package package_;
  std::map<std::string, Doubles> values_;
  std::map<std::string, std::vector<int64_t>> ints_;
  std::map<std::string, std::string> strings_;
};

inline PredictorFactory DoublePredictors() {
  return [](const std::filesystem::path& package) -> std::unique_ptr<Predictor> {
    return std::make_unique<DoublePredictor>(ReadPackage(package));
  };
}

}  // namespace pd::test
