// Elements of any run-time type as numbers: loaded exactly, stored with the type's rounding.
#pragma once
#include <cstdint>

#include "base/dtype.h"
#include "coreml/interpreter/view.h"
#include "cpu/kernels/kernels.h"

namespace pd::interp {

struct Bool {
  uint8_t bits;
};

// Types of tensors at run time: fp16, fp32, int8, uint8, int16, uint16, int32, bool.
bool IsRunTimeType(DataType dtype);

// n elements of a view's memory, from `offset`, `step` elements apart. To integers: truncates fractions,
// saturates out-of-range values, NaN becomes 0. To bool: whether the value differs from 0. From double to
// fp16 by way of float.
void LoadDoubles(const View& v, int64_t offset, int64_t step, int64_t n, double* out);
void StoreDoubles(const View& v, int64_t offset, int64_t step, int64_t n, const double* x);
// For integer types and bool; integers wrap around when stored.
void LoadInts(const View& v, int64_t offset, int64_t step, int64_t n, int64_t* out);
void StoreInts(const View& v, int64_t offset, int64_t step, int64_t n, const int64_t* x);
// For fp16 and fp32; fast where elements are contiguous.
void LoadFloats(const cpu::Kernels& kernels, const View& v, int64_t offset, int64_t step, int64_t n,
                float* out);
void StoreFloats(const cpu::Kernels& kernels, const View& v, int64_t offset, int64_t step, int64_t n,
                 const float* x);

double LoadScalar(const View& v);  // the first element

}  // namespace pd::interp
