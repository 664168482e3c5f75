// Ops that compute each element of the result from one element of each operand.
#include <cmath>
#include <numbers>

#include "coreml/interpreter/op.h"
#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

// ---- what each op computes ----

using Real2 = double (*)(double, double);
using Integer2 = int64_t (*)(int64_t, int64_t);

double Maximum(double x, double y) { return std::isnan(x) || x > y ? x : y; }
double Minimum(double x, double y) { return std::isnan(x) || x < y ? x : y; }
// The quotient rounded down, and the remainder, which has the divisor's sign.
double FloorDiv(double x, double y) { return std::floor(x / y); }
double Mod(double x, double y) {
  const double r = std::fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
int64_t FloorDivInt(int64_t x, int64_t y) {
  if (y == 0) return 0;  // undefined; numpy also gives 0
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
int64_t ModInt(int64_t x, int64_t y) { return y == 0 ? 0 : x - FloorDivInt(x, y) * y; }
int64_t PowInt(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  uint64_t result = 1, base = uint64_t(x);  // wraps around
  for (auto e = uint64_t(y); e != 0; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return int64_t(result);
}

struct Arithmetic {
  Real2 real;
  Integer2 integer;  // nullptr: not defined for integers
};

const std::map<std::string_view, Arithmetic>& ArithmeticOps() {
  static const std::map<std::string_view, Arithmetic> ops = {
      {"add", {[](double x, double y) { return x + y; }, [](int64_t x, int64_t y) { return x + y; }}},
      {"sub", {[](double x, double y) { return x - y; }, [](int64_t x, int64_t y) { return x - y; }}},
      {"mul", {[](double x, double y) { return x * y; }, [](int64_t x, int64_t y) { return x * y; }}},
      {"real_div", {[](double x, double y) { return x / y; }, nullptr}},
      {"maximum", {Maximum, [](int64_t x, int64_t y) { return std::max(x, y); }}},
      {"minimum", {Minimum, [](int64_t x, int64_t y) { return std::min(x, y); }}},
      {"pow", {[](double x, double y) { return std::pow(x, y); }, PowInt}},
      {"floor_div", {FloorDiv, FloorDivInt}},
      {"mod", {Mod, ModInt}},
  };
  return ops;
}

const std::map<std::string_view, Real2>& Comparisons() {
  static const std::map<std::string_view, Real2> ops = {
      {"greater", [](double x, double y) { return double(x > y); }},
      {"greater_equal", [](double x, double y) { return double(x >= y); }},
      {"less", [](double x, double y) { return double(x < y); }},
      {"less_equal", [](double x, double y) { return double(x <= y); }},
      {"equal", [](double x, double y) { return double(x == y); }},
      {"not_equal", [](double x, double y) { return double(x != y); }},
      {"logical_and", [](double x, double y) { return double(x != 0 && y != 0); }},
      {"logical_or", [](double x, double y) { return double(x != 0 || y != 0); }},
      {"logical_xor", [](double x, double y) { return double((x != 0) != (y != 0)); }},
  };
  return ops;
}

using Real1 = std::function<double(double)>;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double Softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double Sign(double x) { return std::isnan(x) ? x : double(x > 0) - double(x < 0); }

const std::map<std::string_view, double (*)(double)>& SimpleUnaries() {
  static const std::map<std::string_view, double (*)(double)> ops = {
      {"exp", std::exp},
      {"exp2", std::exp2},
      {"sqrt", std::sqrt},
      {"square", [](double x) { return x * x; }},
      {"tanh", std::tanh},
      {"sigmoid", Sigmoid},
      {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
      {"relu", [](double x) { return Maximum(x, 0); }},
      {"relu6", [](double x) { return Minimum(Maximum(x, 0), 6); }},
      {"abs", std::fabs},
      {"sign", Sign},
      {"floor", std::floor},
      {"ceil", std::ceil},
      {"round", std::nearbyint},  // ties to even
      {"sin", std::sin},
      {"cos", std::cos},
      {"tan", std::tan},
      {"asin", std::asin},
      {"acos", std::acos},
      {"atan", std::atan},
      {"sinh", std::sinh},
      {"cosh", std::cosh},
      {"atanh", std::atanh},
      {"erf", std::erf},
      {"softplus", Softplus},
      {"softsign", [](double x) { return x / (1 + std::fabs(x)); }},
  };
  return ops;
}

Real1 MakeGelu(const std::string& mode) {
  if (mode == "EXACT") return [](double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); };
  if (mode == "TANH_APPROXIMATION")
    return [](double x) {
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    };
  if (mode == "SIGMOID_APPROXIMATION") return [](double x) { return x * Sigmoid(1.702 * x); };
  throw Fail(ErrorKind::kCorruptFile, "mode '{}'", mode);
}

// Ops with their own constants; a and b are the two most common.
Real1 MakeUnary(Site& site) {
  const std::string& op = site.name();
  if (const auto it = SimpleUnaries().find(op); it != SimpleUnaries().end()) return it->second;
  if (op == "gelu") return MakeGelu(site.given().StringOr("mode", "EXACT"));
  const double epsilon = site.Number("epsilon", op == "rsqrt" ? 1e-12 : op == "inverse" ? 1e-4 : 1e-45);
  if (op == "rsqrt") return [=](double x) { return 1 / std::sqrt(x + epsilon); };
  if (op == "inverse") return [=](double x) { return 1 / (x + epsilon); };
  if (op == "log") return [=](double x) { return std::log(x + epsilon); };
  const double a = site.Number("alpha", 1), b = site.Number("beta", 1);
  if (op == "clip") return [=](double x) { return Minimum(Maximum(x, a), b); };
  if (op == "leaky_relu") return [=](double x) { return x >= 0 ? x : a * x; };
  if (op == "elu") return [=](double x) { return x >= 0 ? x : a * std::expm1(x); };
  if (op == "linear_activation") return [=](double x) { return a * x + b; };
  if (op == "scaled_tanh") return [=](double x) { return a * std::tanh(b * x); };
  if (op == "sigmoid_hard") return [=](double x) { return Minimum(Maximum(a * x + b, 0), 1); };
  if (op == "thresholded_relu") return [=](double x) { return x >= a ? x : 0; };
  PD_CHECK(!"a unary op");
}

// ---- loops ----

constexpr int64_t kPiece = 256;  // elements computed at a time, on the stack

// Calls f(offset, n) for pieces of a row.
template <class F>
void ForPieces(int64_t n, F f) {
  for (int64_t i = 0; i < n; i += kPiece) f(i, std::min(kPiece, n - i));
}

template <class F>
void RunUnary(const Call& call, const F& f) {
  const View &x = call.in[0], &y = call.out[0];
  const Rows<2> rows({&x, &y});
  rows.Run(call.machine.pool, [&](const auto& at, int64_t length) {
    const auto& step = rows.steps();
    double piece[kPiece];
    ForPieces(length, [&](int64_t i, int64_t n) {
      LoadDoubles(x, at[0] + i * step[0], step[0], n, piece);
      for (int64_t j = 0; j < n; ++j) piece[j] = f(piece[j]);
      StoreDoubles(y, at[1] + i * step[1], step[1], n, piece);
    });
  });
}

// f(x[], y[], n) writes its results over x. Load and Store determine the number type.
template <class Number, class Load, class Store, class F>
void RunBinary(const Call& call, Load load, Store store, F f) {
  const View& z = call.out[0];
  const std::span<const int64_t> shape(z.shape.data(), z.rank);
  const View x = BroadcastTo(call.in[0], shape), y = BroadcastTo(call.in[1], shape);
  const Rows<3> rows({&x, &y, &z});
  rows.Run(call.machine.pool, [&](const auto& at, int64_t length) {
    const auto& step = rows.steps();
    Number a[kPiece], b[kPiece];
    ForPieces(length, [&](int64_t i, int64_t n) {
      load(x, at[0] + i * step[0], step[0], n, a);
      load(y, at[1] + i * step[1], step[1], n, b);
      f(a, b, n);
      store(z, at[2] + i * step[2], step[2], n, a);
    });
  });
}

template <class F>
Kernel BinaryKernel(F f) {
  return [f](const Call& call) {
    RunBinary<double>(call, LoadDoubles, StoreDoubles, [&](double* a, const double* b, int64_t n) {
      for (int64_t i = 0; i < n; ++i) a[i] = f(a[i], b[i]);
    });
  };
}

// ---- fast forms: fp16 in float, which rounds sums, products and quotients of halves as double does ----

template <class F>
Kernel FastBinary(F f) {
  return [f](const Call& call) {
    const cpu::Kernels& kernels = call.machine.kernels;
    RunBinary<float>(
        call,
        [&](const View& v, int64_t at, int64_t step, int64_t n, float* out) {
          LoadFloats(kernels, v, at, step, n, out);
        },
        [&](const View& v, int64_t at, int64_t step, int64_t n, const float* x) {
          StoreFloats(kernels, v, at, step, n, x);
        },
        [&](float* a, const float* b, int64_t n) {
          for (int64_t i = 0; i < n; ++i) a[i] = f(a[i], b[i]);
        });
  };
}

Kernel FastArithmetic(std::string_view op) {
  if (op == "add") return FastBinary([](float x, float y) { return x + y; });
  if (op == "sub") return FastBinary([](float x, float y) { return x - y; });
  if (op == "mul") return FastBinary([](float x, float y) { return x * y; });
  if (op == "real_div") return FastBinary([](float x, float y) { return x / y; });
  return nullptr;
}

// An activation of the CPU backend: x = act(x) * 1.
Kernel FastActivation(size_t index) {
  return [index](const Call& call) {
    const View &x = call.in[0], &y = call.out[0];
    const cpu::Kernels& kernels = call.machine.kernels;
    const Rows<2> rows({&x, &y});
    float ones[kPiece];
    std::fill_n(ones, kPiece, 1.f);
    rows.Run(call.machine.pool, [&](const auto& at, int64_t length) {
      const auto& step = rows.steps();
      float piece[kPiece];
      ForPieces(length, [&](int64_t i, int64_t n) {
        LoadFloats(kernels, x, at[0] + i * step[0], step[0], n, piece);
        kernels.gate[index](piece, ones, n);
        StoreFloats(kernels, y, at[1] + i * step[1], step[1], n, piece);
      });
    });
  };
}

// nullptr if there is none.
Kernel FastUnary(Site& site) {
  if (site.Type("x").dtype != DataType::kF16) return nullptr;
  if (site.name() == "silu") return FastActivation(0);
  if (site.name() != "gelu") return nullptr;
  const std::string mode = site.given().StringOr("mode", "EXACT");
  return mode == "EXACT" ? FastActivation(1) : mode == "TANH_APPROXIMATION" ? FastActivation(2) : nullptr;
}

// ---- makers ----

Kernel MakeArithmetic(Site& site) {
  const auto& [real, integer] = ArithmeticOps().at(site.name());
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  site.In("x"), site.In("y");
  if (site.Type("x").dtype == DataType::kI32) {
    if (!integer)
      throw Fail(ErrorKind::kUnsupported, "a quotient of integers: its rounding is not specified");
    return [integer](const Call& call) {
      RunBinary<int64_t>(call, LoadInts, StoreInts, [&](int64_t* a, const int64_t* b, int64_t n) {
        for (int64_t i = 0; i < n; ++i) a[i] = integer(a[i], b[i]);
      });
    };
  }
  if (!site.plain() && site.Type("x").dtype == DataType::kF16)
    if (Kernel fast = FastArithmetic(site.name())) return fast;
  return BinaryKernel(real);
}

Kernel MakeComparison(Site& site) {
  site.In("x"), site.In("y");
  if (site.name().starts_with("logical_")) site.Want("x", {DataType::kBool});
  return BinaryKernel(Comparisons().at(site.name()));
}

Kernel MakeUnaryKernel(Site& site) {
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  const bool exact = site.name() == "abs" || site.name() == "sign" || site.name() == "square" ||
                     site.name() == "relu" || site.name() == "clip";
  if (!exact) site.WantFloat("x");
  site.In("x");
  if (!site.plain())
    if (Kernel fast = FastUnary(site)) return fast;
  return [f = MakeUnary(site)](const Call& call) { RunUnary(call, f); };
}

Kernel MakeLogicalNot(Site& site) {
  site.Want("x", {DataType::kBool});
  site.In("x");
  return [](const Call& call) { RunUnary(call, [](double x) { return double(x == 0); }); };
}

Kernel MakeCast(Site& site) {
  site.In("x");
  return [](const Call& call) { RunUnary(call, [](double x) { return x; }); };
}

Kernel MakeSelect(Site& site) {
  site.In("cond"), site.In("a"), site.In("b");
  return [](const Call& call) {
    const View& z = call.out[0];
    const std::span<const int64_t> shape(z.shape.data(), z.rank);
    const View c = BroadcastTo(call.in[0], shape), a = BroadcastTo(call.in[1], shape),
               b = BroadcastTo(call.in[2], shape);
    const Rows<4> rows({&c, &a, &b, &z});
    rows.Run(call.machine.pool, [&](const auto& at, int64_t length) {
      const auto& step = rows.steps();
      double chosen[kPiece], x[kPiece], y[kPiece];
      ForPieces(length, [&](int64_t i, int64_t n) {
        LoadDoubles(c, at[0] + i * step[0], step[0], n, chosen);
        LoadDoubles(a, at[1] + i * step[1], step[1], n, x);
        LoadDoubles(b, at[2] + i * step[2], step[2], n, y);
        for (int64_t j = 0; j < n; ++j) x[j] = chosen[j] != 0 ? x[j] : y[j];
        StoreDoubles(z, at[3] + i * step[3], step[3], n, x);
      });
    });
  };
}

// A parameter [C] along axis 1, broadcast to x's shape.
View AlongChannels(const View& parameter, const View& x) {
  View wide = x;
  std::fill_n(wide.strides.begin(), x.rank, 0);
  wide.data = parameter.data, wide.dtype = parameter.dtype;
  wide.strides[1] = parameter.shape[0] == 1 ? 0 : parameter.strides[0];
  return wide;
}

// prelu: alpha; softplus_parametric: alpha, beta. One value of each per channel.
Kernel MakeChannelwise(Site& site) {
  site.WantFloat("x");
  const mil::TensorType& x = site.Type("x");
  mil::WantRank(x, 2, 5);
  const bool softplus = site.name() == "softplus_parametric";
  site.In("x"), site.In("alpha"), site.In(softplus ? "beta" : "alpha");
  for (const char* parameter : {"alpha", softplus ? "beta" : "alpha"}) {
    const Dims& shape = site.Type(parameter).shape;
    if (shape.size() != 1 || (shape[0] != x.shape[1] && shape[0] != 1))
      throw Fail(ErrorKind::kCorruptFile, "{} {} for {} channels", parameter, mil::Show(shape), x.shape[1]);
  }
  return [softplus](const Call& call) {
    const View& y = call.out[0];
    const View a = AlongChannels(call.in[1], y), b = AlongChannels(call.in[2], y);
    const Rows<4> rows({&call.in[0], &a, &b, &y});
    rows.Run(call.machine.pool, [&](const auto& at, int64_t length) {
      const auto& step = rows.steps();
      for (int64_t i = 0; i < length; ++i) {
        double v, alpha, beta;
        LoadDoubles(call.in[0], at[0] + i * step[0], 1, 1, &v);
        LoadDoubles(a, at[1] + i * step[1], 1, 1, &alpha);
        LoadDoubles(b, at[2] + i * step[2], 1, 1, &beta);
        v = softplus ? alpha * Softplus(beta * v) : v >= 0 ? v : alpha * v;
        StoreDoubles(y, at[3] + i * step[3], 1, 1, &v);
      }
    });
  };
}

}  // namespace

const Makers& ElementwiseMakers() {
  static const Makers makers = [] {
    Makers m = {{"logical_not", MakeLogicalNot},
                {"cast", MakeCast},
                {"select", MakeSelect},
                {"prelu", MakeChannelwise},
                {"softplus_parametric", MakeChannelwise}};
    for (const auto& [op, f] : ArithmeticOps()) m[op] = MakeArithmetic;
    for (const auto& [op, f] : Comparisons()) m[op] = MakeComparison;
    for (const auto& [op, f] : SimpleUnaries()) m[op] = MakeUnaryKernel;
    for (const char* op : {"gelu", "rsqrt", "inverse", "log", "clip", "leaky_relu", "elu",
                           "linear_activation", "scaled_tanh", "sigmoid_hard", "thresholded_relu"})
      m[op] = MakeUnaryKernel;
    return m;
  }();
  return makers;
}

}  // namespace pd::interp
