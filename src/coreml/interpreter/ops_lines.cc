// Ops that work along axes: reductions, norms, softmax, sorting.
#include <cmath>
#include <limits>
#include <numeric>

#include "coreml/interpreter/lines.h"
#include "coreml/interpreter/op.h"

namespace pd::interp {
namespace {

using Numbers = std::span<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<size_t> AxesOf(Site& site) {
  const size_t rank = site.Type("x").shape.size();
  if (site.Has("axes")) return mil::Axes(site.given().Ints("axes"), rank);
  std::vector<size_t> all(rank);
  std::iota(all.begin(), all.end(), size_t(0));
  return all;
}

std::vector<size_t> AxisOf(Site& site, int64_t fallback) {
  return {mil::Axis(site.given().IntOr("axis", fallback), site.Type("x").shape.size())};
}

// ---- reductions ----

double Sum(Numbers x) { return std::accumulate(x.begin(), x.end(), 0.0); }
template <class F>
double SumOf(Numbers x, F f) {
  double sum = 0;
  for (double v : x) sum += f(v);
  return sum;
}
double Largest(Numbers x) {
  double most = -kInfinity;
  for (double v : x) most = std::isnan(v) || v > most ? v : most;
  return most;
}
double Least(Numbers x) {
  double least = kInfinity;
  for (double v : x) least = std::isnan(v) || v < least ? v : least;
  return least;
}
double SumSquare(Numbers x) {
  return SumOf(x, [](double v) { return v * v; });
}
double LogSumExp(Numbers x) {
  const double most = Largest(x);
  if (std::isinf(most)) return most;
  return most + std::log(SumOf(x, [most](double v) { return std::exp(v - most); }));
}

struct Reduction {
  double (*f)(Numbers);
  bool integers;  // whether it is defined for integers
};
const std::map<std::string_view, Reduction>& Reductions() {
  static const std::map<std::string_view, Reduction> ops = {
      {"reduce_sum", {Sum, true}},
      {"reduce_mean", {[](Numbers x) { return Sum(x) / double(x.size()); }, false}},
      {"reduce_max", {Largest, true}},
      {"reduce_min", {Least, true}},
      {"reduce_prod",
       {[](Numbers x) { return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>()); }, true}},
      {"reduce_sum_square", {SumSquare, true}},
      {"reduce_l1_norm", {[](Numbers x) { return SumOf(x, [](double v) { return std::fabs(v); }); }, true}},
      {"reduce_l2_norm", {[](Numbers x) { return std::sqrt(SumSquare(x)); }, false}},
      {"reduce_log_sum", {[](Numbers x) { return std::log(Sum(x)); }, false}},
      {"reduce_log_sum_exp", {LogSumExp, false}},
  };
  return ops;
}

// Each line of a reduction's result has one element.
Lines ResultLines(const View& y, std::span<const size_t> axes, size_t rank) {
  return y.rank == rank ? Lines(y, axes) : Lines(y, {});
}

Kernel MakeReduce(Site& site) {
  const Reduction& op = Reductions().at(site.name());
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  if (!op.integers) site.WantFloat("x");
  site.In("x");
  // In ascending order, so that a sum does not depend on how its axes are listed.
  std::vector<size_t> axes = AxesOf(site);
  std::sort(axes.begin(), axes.end());
  return [f = op.f, axes](const Call& call) {
    const Lines x(call.in[0], axes), y = ResultLines(call.out[0], axes, call.in[0].rank);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      const double result = f(numbers);
      y.Store(i, &result);
    });
  };
}

Kernel MakeReduceArg(Site& site) {
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  const bool largest = site.name() == "reduce_argmax";
  site.In("x");
  return [axes = AxisOf(site, -1), largest](const Call& call) {
    const Lines x(call.in[0], axes), y = ResultLines(call.out[0], axes, call.in[0].rank);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      size_t best = 0;  // the first of equals; NaN comes first
      for (size_t j = 1; j < numbers.size() && !std::isnan(numbers[best]); ++j) {
        const double v = numbers[j];
        if (std::isnan(v) || (largest ? v > numbers[best] : v < numbers[best])) best = j;
      }
      const auto result = double(best);
      y.Store(i, &result);
    });
  };
}

// ---- softmax ----

void Softmax(Numbers x) {
  const double most = Largest(x);
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - most);
  for (double& v : x) v /= sum;
}

Kernel MakeSoftmax(Site& site) {
  site.WantFloat("x");
  site.In("x");
  const std::vector<size_t> axes = AxisOf(site, -1);
  if (!site.plain() && site.Type("x").dtype == DataType::kF16)
    return [axes](const Call& call) {
      const cpu::Kernels& kernels = call.machine.kernels;
      MapLinesFast(call.machine, Lines(call.in[0], axes), Lines(call.out[0], axes), [&](float* x, int64_t n) {
        cpu::SoftmaxJob job{x, 0, int((n + 15) / 16 * 16), 0, int(n), 0};
        kernels.softmax(job);
        for (int64_t i = 0; i < n; ++i) x[i] /= job.sum;
      });
    };
  return [axes](const Call& call) {
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      Softmax(numbers);
      y.Store(i, numbers.data());
    });
  };
}

// ---- norms ----

// (x - mean) / sqrt(variance + epsilon), with the biased variance.
template <class T>
void Normalise(std::span<T> x, T epsilon) {
  T sum = 0, squares = 0;
  for (T v : x) sum += v;
  const T mean = sum / T(x.size());
  for (T& v : x) {
    v -= mean;
    squares += v * v;
  }
  const T factor = T(1) / std::sqrt(squares / T(x.size()) + epsilon);
  for (T& v : x) v *= factor;
}

// The elements of a norm's parameter, in the order of a line's elements.
std::vector<double> ReadAll(const View& v) {
  std::vector<double> all(size_t(v.count()));
  std::vector<size_t> axes(v.rank);
  std::iota(axes.begin(), axes.end(), size_t(0));
  Lines(v, axes).Load(0, all.data());
  return all;
}

Kernel MakeLayerNorm(Site& site) {
  site.WantFloat("x");
  site.In("x");
  const bool has_gamma = site.Has("gamma"), has_beta = site.Has("beta");
  if (has_gamma) site.In("gamma");
  if (has_beta) site.In("beta");
  const std::vector<size_t> axes = AxesOf(site);
  const double epsilon = site.Number("epsilon", 1e-5);
  if (!site.plain() && site.Type("x").dtype == DataType::kF16 && !has_gamma && !has_beta)
    return [axes, epsilon](const Call& call) {
      MapLinesFast(call.machine, Lines(call.in[0], axes), Lines(call.out[0], axes),
                   [&](float* x, int64_t n) { Normalise(std::span(x, size_t(n)), float(epsilon)); });
    };
  return [=](const Call& call) {
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    const std::vector<double> gamma = has_gamma ? ReadAll(call.in[1]) : std::vector<double>(),
                              beta = has_beta ? ReadAll(call.in[has_gamma ? 2 : 1]) : std::vector<double>();
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      Normalise(numbers, epsilon);
      for (size_t j = 0; j < gamma.size(); ++j) numbers[j] *= gamma[j];
      for (size_t j = 0; j < beta.size(); ++j) numbers[j] += beta[j];
      y.Store(i, numbers.data());
    });
  };
}

std::vector<size_t> LastAxes(size_t rank, size_t count) {
  std::vector<size_t> axes(count);
  std::iota(axes.begin(), axes.end(), rank - count);
  return axes;
}

// batch_norm takes each channel's mean and variance as inputs, instance_norm computes them for each sample's
// channel.
Kernel MakeChannelNorm(Site& site) {
  site.WantFloat("x");
  const bool batch = site.name() == "batch_norm", has_gamma = site.Has("gamma"), has_beta = site.Has("beta");
  site.In("x");
  if (batch) site.In("mean"), site.In("variance");
  if (has_gamma) site.In("gamma");
  if (has_beta) site.In("beta");
  const double epsilon = site.Number("epsilon", 1e-5);
  const size_t rank = site.Type("x").shape.size();
  return [=, axes = LastAxes(rank, rank - 2)](const Call& call) {
    size_t next = 1;
    const auto parameter = [&](bool given) {
      return given ? ReadAll(call.in[next++]) : std::vector<double>();
    };
    const auto mean = parameter(batch), variance = parameter(batch), gamma = parameter(has_gamma),
               beta = parameter(has_beta);
    const int64_t channels = call.in[0].shape[1];
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      const auto c = size_t(i % channels);
      if (batch)
        for (double& v : numbers) v = (v - mean[c]) / std::sqrt(variance[c] + epsilon);
      else
        Normalise(numbers, epsilon);
      for (double& v : numbers) v = v * (has_gamma ? gamma[c] : 1) + (has_beta ? beta[c] : 0);
      y.Store(i, numbers.data());
    });
  };
}

Kernel MakeL2Norm(Site& site) {
  site.WantFloat("x");
  const size_t rank = site.Type("x").shape.size();
  mil::WantRank(site.Type("x"), 3, 5);
  site.In("x");
  return [epsilon = site.Number("epsilon", 1e-6), axes = LastAxes(rank, 3)](const Call& call) {
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      const double length = std::sqrt(SumSquare(numbers) + epsilon);
      for (double& v : numbers) v /= length;
      y.Store(i, numbers.data());
    });
  };
}

// ---- along one axis ----

Kernel MakeCumSum(Site& site) {
  site.Want("x", {DataType::kF16, DataType::kF32, DataType::kI32});
  site.In("x");
  const bool exclusive = site.given().IntOr("exclusive", 0) != 0,
             reverse = site.given().IntOr("reverse", 0) != 0;
  return [=, axes = AxisOf(site, 0)](const Call& call) {
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    ForLines(call.machine, x, [&](int64_t i, Numbers numbers) {
      if (reverse) std::reverse(numbers.begin(), numbers.end());
      double sum = 0;
      for (double& v : numbers) {
        const double before = sum;
        sum += v;
        v = exclusive ? before : sum;
      }
      if (reverse) std::reverse(numbers.begin(), numbers.end());
      y.Store(i, numbers.data());
    });
  };
}

// The order of a line's numbers; equal ones keep their order, NaN comes last.
void Order(Numbers numbers, bool ascending, std::vector<int32_t>& places) {
  std::iota(places.begin(), places.end(), 0);
  std::sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    const double x = numbers[size_t(a)], y = numbers[size_t(b)];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (std::isnan(x)) return a < b;
    if (x == y) return a < b;
    return ascending ? x < y : x > y;
  });
}

// argsort, and topk, whose second result is optional. On one thread, since sorting needs memory.
Kernel MakeSort(Site& site) {
  site.In("x");
  const bool values = site.name() == "topk";
  const std::vector<size_t> axes = AxisOf(site, -1);
  if (site.Result().shape.at(axes[0]) > site.Type("x").shape[axes[0]])
    throw Fail(ErrorKind::kCorruptFile, "more results than the axis has elements");
  return [=, ascending = site.given().IntOr("ascending", 0) != 0](const Call& call) {
    const Lines x(call.in[0], axes);
    std::vector<double> numbers(size_t(x.length())), chosen(numbers.size());
    std::vector<int32_t> places(numbers.size());
    for (int64_t i = 0; i < x.count(); ++i) {
      x.Load(i, numbers.data());
      Order(numbers, ascending, places);
      for (size_t r = 0; r < call.out.size(); ++r) {
        const bool indices = !values || r == 1;
        const Lines y(call.out[r], axes);
        for (size_t j = 0; j < size_t(y.length()); ++j)
          chosen[j] = indices ? double(places[j]) : numbers[size_t(places[j])];
        y.Store(i, chosen.data());
      }
    }
  };
}

}  // namespace

const Makers& LineMakers() {
  static const Makers makers = [] {
    Makers m = {{"reduce_argmax", MakeReduceArg},
                {"reduce_argmin", MakeReduceArg},
                {"softmax", MakeSoftmax},
                {"layer_norm", MakeLayerNorm},
                {"batch_norm", MakeChannelNorm},
                {"instance_norm", MakeChannelNorm},
                {"l2_norm", MakeL2Norm},
                {"cumsum", MakeCumSum},
                {"argsort", MakeSort},
                {"topk", MakeSort}};
    for (const auto& [op, f] : Reductions()) m[op] = MakeReduce;
    return m;
  }();
  return makers;
}

}  // namespace pd::interp
