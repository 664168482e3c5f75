// Ops that move elements or create them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "coreml/interpreter/layout.h"
#include "coreml/interpreter/lines.h"
#include "coreml/interpreter/op.h"
#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

// All elements of an integer operand, in order.
Dims ReadInts(const View& v) {
  Dims all;
  const Rows<1> rows({&v});
  rows.ForEach(0, rows.count(), [&](const auto& at, int64_t n) {
    const size_t before = all.size();
    all.resize(before + size_t(n));
    LoadInts(v, at[0], rows.steps()[0], n, all.data() + before);
  });
  return all;
}

// Every element of `out` gets the value of the scalar `value`.
void FillWith(Machine& machine, const View& value, const View& out) {
  CopyElements(machine, BroadcastTo(value, {out.shape.data(), out.rank}), out);
}

// ---- slices whose begin is known only at run time ----

Error Beyond(const Dims& begin, const Dims& count, const Dims& shape) {
  return Fail(ErrorKind::kDevice, "a slice {} from {} of a tensor {}", mil::Show(count), mil::Show(begin),
              mil::Show(shape));
}

Kernel MakeSliceBySize(Site& site) {
  site.In("x"), site.In("begin");
  return [](const Call& call) {
    const Layout x = LayoutOf(call.in[0]), out = LayoutOf(call.out[0]);
    Dims begin = ReadInts(call.in[1]);
    for (size_t a = 0; a < begin.size(); ++a) {
      if (begin[a] < 0) begin[a] += x.shape[a];
      if (begin[a] < 0 || begin[a] > x.shape[a] - out.shape[a]) throw Beyond(begin, out.shape, x.shape);
    }
    const Layout part = SliceBySize(x, begin, out.shape);
    CopyElements(call.machine, ViewOf(part, call.in[0].dtype, call.in[0].data), call.out[0]);
  };
}

IndexSlice IndexSliceOf(const mil::Given& given) {
  return {given.IntsOr("stride", {}), given.IntsOr("begin_mask", {}), given.IntsOr("end_mask", {}),
          given.IntsOr("squeeze_mask", {})};
}

// The slice of v from begin to end; it must have this shape.
View SliceAt(const View& v, const IndexSlice& slice, const View& begin, const View& end, const View& like) {
  const Dims from = ReadInts(begin), to = ReadInts(end);
  const Layout part = SliceByIndex(LayoutOf(v), slice, from, to), wanted = LayoutOf(like);
  if (part.shape != wanted.shape) throw Beyond(from, wanted.shape, LayoutOf(v).shape);
  return ViewOf(part, v.dtype, v.data);
}

Kernel MakeSliceByIndex(Site& site) {
  site.In("x"), site.In("begin"), site.In("end");
  return [slice = IndexSliceOf(site.given())](const Call& call) {
    CopyElements(call.machine, SliceAt(call.in[0], slice, call.in[1], call.in[2], call.out[0]), call.out[0]);
  };
}

Kernel MakeSliceUpdate(Site& site) {
  site.In("x"), site.In("update"), site.In("begin"), site.In("end");
  return [slice = IndexSliceOf(site.given())](const Call& call) {
    CopyElements(call.machine, call.in[0], call.out[0]);
    CopyElements(call.machine, call.in[1], SliceAt(call.out[0], slice, call.in[2], call.in[3], call.in[1]));
  };
}

// ---- each axis by itself ----

// For each axis of the result, the positions of x that it shows; kOutside: none.
using AxisPlaces = std::vector<Dims>;
constexpr int64_t kOutside = -1;

template <class T>
void CopyPlaces(const View& x, const View& out, const AxisPlaces& places, size_t axis, int64_t from,
                int64_t to) {
  const Dims& along = places[axis];
  for (size_t i = 0; i < along.size(); ++i) {
    if (along[i] == kOutside) continue;
    const int64_t source = from + along[i] * x.strides[axis], target = to + int64_t(i) * out.strides[axis];
    if (axis + 1 < x.rank)
      CopyPlaces<T>(x, out, places, axis + 1, source, target);
    else
      out.as<T>()[target] = x.as<T>()[source];
  }
}

// Elements of the result outside x are unchanged.
void CopyPlaces(const View& x, const View& out, const AxisPlaces& places) {
  if (x.rank == 0 || out.count() == 0) {
    if (out.count() == 1) std::memcpy(out.data, x.data, ElementBytes(x.dtype));
    return;
  }
  switch (ElementBytes(x.dtype)) {
    case 1:
      return CopyPlaces<uint8_t>(x, out, places, 0, 0, 0);
    case 2:
      return CopyPlaces<uint16_t>(x, out, places, 0, 0, 0);
    default:
      return CopyPlaces<uint32_t>(x, out, places, 0, 0, 0);
  }
}

template <class F>
AxisPlaces PlacesOf(const Dims& shape, F place) {  // place(axis, i)
  AxisPlaces places(shape.size());
  for (size_t a = 0; a < shape.size(); ++a)
    for (int64_t i = 0; i < shape[a]; ++i) places[a].push_back(place(a, i));
  return places;
}

Kernel MakeTile(Site& site) {
  site.In("x");
  const Dims x = site.Type("x").shape;
  return [places = PlacesOf(site.Result().shape, [&](size_t a, int64_t i) { return i % x[a]; })](
             const Call& call) { CopyPlaces(call.in[0], call.out[0], places); };
}

Kernel MakeReverse(Site& site) {
  site.In("x");
  const Dims& x = site.Type("x").shape;
  std::vector<bool> reversed(x.size(), !site.Has("axes"));
  if (site.Has("axes"))
    for (size_t a : mil::Axes(site.given().Ints("axes"), x.size())) reversed[a] = true;
  return [places = PlacesOf(x, [&](size_t a, int64_t i) { return reversed[a] ? x[a] - 1 - i : i; })](
             const Call& call) { CopyPlaces(call.in[0], call.out[0], places); };
}

Kernel MakePad(Site& site) {
  site.In("x");
  const Dims x = site.Type("x").shape, pad = site.given().Ints("pad");
  const std::string mode = site.given().StringOr("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "replicate")
    throw Fail(ErrorKind::kCorruptFile, "mode '{}'", mode);
  const size_t unpadded = x.size() - pad.size() / 2;
  const auto place = [&](size_t a, int64_t i) -> int64_t {
    const int64_t before = a < unpadded ? 0 : pad[2 * (a - unpadded)], last = x[a] - 1;
    const int64_t at = i - before;
    if (at >= 0 && at <= last) return at;
    if (mode == "replicate" && last >= 0) return std::clamp<int64_t>(at, 0, last);
    if (mode == "constant") return kOutside;
    const int64_t mirrored = at < 0 ? -at : 2 * last - at;
    if (mirrored < 0 || mirrored > last)
      throw Fail(ErrorKind::kCorruptFile, "a padding of {} around an axis of {}", i - before, x[a]);
    return mirrored;
  };
  const double constant = site.Number("constant_val", 0);
  return [places = PlacesOf(site.Result().shape, place), constant](const Call& call) {
    const View& out = call.out[0];
    const Rows<1> rows({&out});
    const std::vector<double> filling(size_t(Rows<1>::kLongest), constant);
    rows.ForEach(0, rows.count(), [&](const auto& at, int64_t n) {
      StoreDoubles(out, at[0], rows.steps()[0], n, filling.data());
    });
    CopyPlaces(call.in[0], out, places);
  };
}

// ---- others ----

// Keeps a band of each matrix: `lower` diagonals below the main one, `upper` above it; negative: all.
Kernel MakeBandPart(Site& site) {
  site.In("x");
  mil::WantRank(site.Type("x"), 2, 5);
  const int64_t lower = site.given().IntOr("lower", -1), upper = site.given().IntOr("upper", -1);
  const size_t rank = site.Type("x").shape.size();
  return [=](const Call& call) {
    const size_t axes[] = {rank - 1};
    const Lines x(call.in[0], axes), y(call.out[0], axes);
    const int64_t rows = call.in[0].shape[rank - 2];
    ForLines(call.machine, x, [&](int64_t line, std::span<double> numbers) {
      const int64_t i = line % rows;
      for (int64_t j = 0; j < int64_t(numbers.size()); ++j)
        if ((lower >= 0 && i - j > lower) || (upper >= 0 && j - i > upper)) numbers[size_t(j)] = 0;
      y.Store(line, numbers.data());
    });
  };
}

Kernel MakeShape(Site& site) {
  return [shape = site.Type("x").shape](const Call& call) {
    StoreInts(call.out[0], 0, call.out[0].strides[0], int64_t(shape.size()), shape.data());
  };
}

Kernel MakeFill(Site& site) {
  if (!site.Has("value"))
    return [](const Call& call) {
      float zero = 0;
      FillWith(call.machine, MakeView(DataType::kF32, {}, {}, reinterpret_cast<std::byte*>(&zero)),
               call.out[0]);
    };
  site.In("value");
  if (!site.Type("value").shape.empty()) throw Fail(ErrorKind::kCorruptFile, "a value that is not a scalar");
  return [](const Call& call) { FillWith(call.machine, call.in[0], call.out[0]); };
}

Kernel MakeRange(Site& site) {
  site.Want("start", {DataType::kF16, DataType::kF32, DataType::kI32});
  for (const char* parameter : {"start", "end", "step"}) {
    site.In(parameter);
    if (!site.Type(parameter).shape.empty() || site.Type(parameter).dtype != site.Type("start").dtype)
      throw Fail(ErrorKind::kCorruptFile, "'{}' of {}", parameter, ToString(site.Type(parameter)));
  }
  return [](const Call& call) {
    const double start = LoadScalar(call.in[0]), end = LoadScalar(call.in[1]), step = LoadScalar(call.in[2]);
    const int64_t n = call.out[0].shape[0];
    if (std::max(0.0, std::ceil((end - start) / step)) != double(n))
      throw Fail(ErrorKind::kDevice, "a range from {} to {} by {} but {} elements are declared", start, end,
                 step, n);
    for (int64_t i = 0; i < n; ++i) {
      const double value = start + double(i) * step;
      StoreDoubles(call.out[0], i * call.out[0].strides[0], 1, 1, &value);
    }
  };
}

Kernel MakeOneHot(Site& site) {
  site.Want("indices", {DataType::kI32, DataType::kI16, DataType::kU16, DataType::kI8, DataType::kU8});
  site.In("indices");
  const size_t axis = mil::Axis(site.given().IntOr("axis", -1), site.Result().shape.size());
  const double on = site.Number("on_value", 1), off = site.Number("off_value", 0);
  return [=](const Call& call) {
    const size_t axes[] = {axis};
    const Lines y(call.out[0], axes);
    const Dims indices = ReadInts(call.in[0]);
    std::vector<double> line(static_cast<size_t>(y.length()));
    for (size_t i = 0; i < indices.size(); ++i) {
      std::fill(line.begin(), line.end(), off);
      if (indices[i] >= 0 && indices[i] < y.length()) line[size_t(indices[i])] = on;
      y.Store(int64_t(i), line.data());
    }
  };
}

}  // namespace

const Makers& MovementMakers() {
  static const Makers makers = {{"slice_by_size", MakeSliceBySize},
                                {"slice_by_index", MakeSliceByIndex},
                                {"slice_update", MakeSliceUpdate},
                                {"tile", MakeTile},
                                {"reverse", MakeReverse},
                                {"pad", MakePad},
                                {"band_part", MakeBandPart},
                                {"shape", MakeShape},
                                {"fill", MakeFill},
                                {"fill_like", MakeFill},
                                {"range_1d", MakeRange},
                                {"one_hot", MakeOneHot}};
  return makers;
}

}  // namespace pd::interp
