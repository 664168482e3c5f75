#include "coreml/interpreter/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace pd::interp {
namespace {

// Calls f(T{}) with the element type.
template <class F>
void WithElement(DataType dtype, F&& f) {
  switch (dtype) {
    case DataType::kBool:
      return f(Bool{});
    case DataType::kF16:
      return f(F16{});
    case DataType::kF32:
      return f(float{});
    case DataType::kI8:
      return f(int8_t{});
    case DataType::kU8:
      return f(uint8_t{});
    case DataType::kI16:
      return f(int16_t{});
    case DataType::kU16:
      return f(uint16_t{});
    case DataType::kI32:
      return f(int32_t{});
    default:
      PD_CHECK(!"a run-time type");
  }
}

double ToDouble(F16 x) { return double(ToFloat(x)); }
double ToDouble(Bool x) { return double(x.bits != 0); }
template <class T>
double ToDouble(T x) {
  return double(x);
}

template <class T>
T FromDouble(double x) {
  if constexpr (std::is_same_v<T, F16>) return ToF16(float(x));
  if constexpr (std::is_same_v<T, float>) return float(x);
  if constexpr (std::is_same_v<T, Bool>) return {uint8_t(x != 0)};
  if constexpr (std::is_integral_v<T>) {
    if (std::isnan(x)) return 0;
    return T(std::clamp(std::trunc(x), double(std::numeric_limits<T>::min()),
                        double(std::numeric_limits<T>::max())));
  }
}

template <class T>
int64_t ToInt(T x) {
  if constexpr (std::is_same_v<T, Bool>) return x.bits != 0;
  if constexpr (std::is_integral_v<T>) return x;
  PD_CHECK(!"an integer type");
}
template <class T>
T FromInt(int64_t x) {
  if constexpr (std::is_same_v<T, Bool>) return {uint8_t(x != 0)};
  if constexpr (std::is_integral_v<T>) return T(x);
  PD_CHECK(!"an integer type");
}

}  // namespace

bool IsRunTimeType(DataType dtype) {
  switch (dtype) {
    case DataType::kBool:
    case DataType::kF16:
    case DataType::kF32:
    case DataType::kI8:
    case DataType::kU8:
    case DataType::kI16:
    case DataType::kU16:
    case DataType::kI32:
      return true;
    default:
      return false;
  }
}

void LoadDoubles(const View& v, int64_t offset, int64_t step, int64_t n, double* out) {
  WithElement(v.dtype, [&]<class T>(T) {
    const T* p = v.as<T>() + offset;
    for (int64_t i = 0; i < n; ++i) out[i] = ToDouble(p[i * step]);
  });
}

void StoreDoubles(const View& v, int64_t offset, int64_t step, int64_t n, const double* x) {
  WithElement(v.dtype, [&]<class T>(T) {
    T* p = v.as<T>() + offset;
    for (int64_t i = 0; i < n; ++i) p[i * step] = FromDouble<T>(x[i]);
  });
}

void LoadInts(const View& v, int64_t offset, int64_t step, int64_t n, int64_t* out) {
  WithElement(v.dtype, [&]<class T>(T) {
    const T* p = v.as<T>() + offset;
    for (int64_t i = 0; i < n; ++i) out[i] = ToInt(p[i * step]);
  });
}

void StoreInts(const View& v, int64_t offset, int64_t step, int64_t n, const int64_t* x) {
  WithElement(v.dtype, [&]<class T>(T) {
    T* p = v.as<T>() + offset;
    for (int64_t i = 0; i < n; ++i) p[i * step] = FromInt<T>(x[i]);
  });
}

void LoadFloats(const cpu::Kernels& kernels, const View& v, int64_t offset, int64_t step, int64_t n,
                float* out) {
  if (v.dtype == DataType::kF16) {
    const uint16_t* p = v.as<uint16_t>() + offset;
    if (step == 1) return kernels.from_half(p, n, out);
    if (step == 0) {
      std::fill_n(out, n, ToFloat(F16{*p}));
      return;
    }
    for (int64_t i = 0; i < n; ++i) out[i] = ToFloat(F16{p[i * step]});
    return;
  }
  PD_CHECK(v.dtype == DataType::kF32);
  const float* p = v.as<float>() + offset;
  for (int64_t i = 0; i < n; ++i) out[i] = p[i * step];
}

void StoreFloats(const cpu::Kernels& kernels, const View& v, int64_t offset, int64_t step, int64_t n,
                 const float* x) {
  if (v.dtype == DataType::kF16) {
    uint16_t* p = v.as<uint16_t>() + offset;
    if (step == 1) return kernels.round_half(x, n, p);
    for (int64_t i = 0; i < n; ++i) p[i * step] = ToF16(x[i]).bits;
    return;
  }
  PD_CHECK(v.dtype == DataType::kF32);
  float* p = v.as<float>() + offset;
  for (int64_t i = 0; i < n; ++i) p[i * step] = x[i];
}

double LoadScalar(const View& v) {
  double x;
  LoadDoubles(v, 0, 1, 1, &x);
  return x;
}

}  // namespace pd::interp
