// Ops that read and write at indices given by other tensors.
#include <algorithm>
#include <functional>
#include <utility>

#include "coreml/interpreter/layout.h"
#include "coreml/interpreter/op.h"
#include "coreml/interpreter/rows.h"

namespace pd::interp {
namespace {

Error Corrupt(const char* what, const Dims& a, const Dims& b) {
  return Fail(ErrorKind::kCorruptFile, "{}: {} and {}", what, mil::Show(a), mil::Show(b));
}

Dims First(const Dims& dims, size_t n) { return {dims.begin(), dims.begin() + std::ptrdiff_t(n)}; }
Dims From(const Dims& dims, size_t n) { return {dims.begin() + std::ptrdiff_t(n), dims.end()}; }
Dims Join(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Calls f(index) for every index into a shape, in row-major order.
template <class F>
void ForIndices(const Dims& shape, F f) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  Dims index(shape.size());
  for (;;) {
    f(std::as_const(index));
    size_t a = shape.size();
    while (a > 0 && ++index[a - 1] == shape[a - 1]) index[--a] = 0;
    if (a == 0) return;
  }
}

int64_t Offset(const Layout& layout, std::span<const int64_t> index, size_t axis = 0) {
  int64_t at = layout.offset;
  for (size_t i = 0; i < index.size(); ++i) at += index[i] * layout.strides[axis + i];
  return at;
}

// An index from a tensor; negative ones count from the end.
int64_t IndexAt(const View& indices, int64_t offset, int64_t size) {
  int64_t index;
  LoadInts(indices, offset, 1, 1, &index);
  const int64_t from_front = index < 0 ? index + size : index;
  if (from_front < 0 || from_front >= size)
    throw Fail(ErrorKind::kDevice, "index {} on an axis of {}", index, size);
  return from_front;
}

// How an op of this file pairs parts of two tensors: `whole` has the places (gather's x, scatter's data),
// `parts` the elements in the order of the indices. Calls f(offset in whole, offset in parts) for every part;
// a part is whole's axes from `inner` on, the last axes of parts.
struct Walk {
  size_t inner = 0;
  std::function<void(const Layout& whole, const View& indices, const Layout& parts,
                     const std::function<void(int64_t, int64_t)>& f)>
      run;
};

// Along one axis; both tensors have the `batch` leading axes.
Walk AlongOneAxis(const Dims& whole, const Dims& indices, const Dims& parts, size_t axis, size_t batch) {
  if (First(whole, batch) != First(indices, batch)) throw Corrupt("batches differ", whole, indices);
  const Dims outer = First(whole, axis), chosen = From(indices, batch);
  if (Join(Join(outer, chosen), From(whole, axis + 1)) != parts)
    throw Corrupt("parts do not fit", parts, whole);
  return {axis + 1, [=](const Layout& w, const View& places, const Layout& p, const auto& f) {
            const Layout index = LayoutOf(places);
            ForIndices(Join(outer, chosen), [&](const Dims& at) {
              const std::span<const int64_t> o = std::span(at).first(axis), j = std::span(at).subspan(axis);
              const int64_t place =
                  IndexAt(places, Offset(index, o.first(batch)) + Offset(index, j, batch), w.shape[axis]);
              f(Offset(w, o) + place * w.strides[axis], Offset(p, at));
            });
          }};
}

// One index per element: numpy's take_along_axis.
Walk ElementByElement(const Dims& whole, const Dims& indices, const Dims& parts, size_t axis) {
  if (indices != parts) throw Corrupt("indices and parts differ", indices, parts);
  for (size_t a = 0; a < whole.size(); ++a)
    if (a != axis && indices[a] != whole[a]) throw Corrupt("indices do not fit", indices, whole);
  return {whole.size(), [=](const Layout& w, const View& places, const Layout& p, const auto& f) {
            const Layout index = LayoutOf(places);
            ForIndices(indices, [&](const Dims& at) {
              Dims there = at;
              there[axis] = IndexAt(places, Offset(index, at), w.shape[axis]);
              f(Offset(w, there), Offset(p, at));
            });
          }};
}

// The last axis of indices is a position on several axes, after the `batch` axes that both tensors have.
Walk ByPlaces(const Dims& whole, const Dims& indices, const Dims& parts, size_t batch) {
  const auto depth = size_t(indices.back());
  if (indices.back() < 0 || batch + depth > whole.size() || batch >= indices.size() ||
      First(whole, batch) != First(indices, batch))
    throw Corrupt("indices do not fit", indices, whole);
  const Dims outer = First(indices, indices.size() - 1);
  if (Join(outer, From(whole, batch + depth)) != parts) throw Corrupt("parts do not fit", parts, whole);
  return {batch + depth, [=](const Layout& w, const View& places, const Layout& p, const auto& f) {
            const Layout index = LayoutOf(places);
            ForIndices(outer, [&](const Dims& at) {
              int64_t there = Offset(w, std::span(at).first(batch));
              for (size_t d = 0; d < depth; ++d)
                there += IndexAt(places, Offset(index, at) + int64_t(d) * index.strides.back(),
                                 w.shape[batch + d]) *
                         w.strides[batch + d];
              f(there, Offset(p, at));
            });
          }};
}

Walk WalkOf(Site& site, const char* whole_name, const Dims& parts) {
  site.Want("indices", {DataType::kI32, DataType::kI16, DataType::kU16, DataType::kI8, DataType::kU8});
  const Dims &whole = site.Type(whole_name).shape, &indices = site.Type("indices").shape;
  const auto batch = size_t(site.given().IntOr("batch_dims", 0));
  if (site.name().ends_with("_nd")) {
    mil::WantRank(site.Type("indices"), 1, 5);
    return ByPlaces(whole, indices, parts, batch);
  }
  const size_t axis = mil::Axis(site.given().IntOr("axis", 0), whole.size());
  if (!site.name().ends_with("_along_axis")) return AlongOneAxis(whole, indices, parts, axis, batch);
  if (indices.size() != whole.size()) throw Corrupt("ranks differ", indices, whole);
  return ElementByElement(whole, indices, parts, axis);
}

// The part of a tensor at an offset: its axes from `first` on.
View PartAt(const View& v, size_t first, int64_t offset) {
  View part;
  part.dtype = v.dtype;
  part.data = v.data + offset * int64_t(ElementBytes(v.dtype));
  for (size_t a = first; a < v.rank; ++a) part.AddAxis(v.shape[a], v.strides[a]);
  return part;
}

Kernel MakeGather(Site& site) {
  const Walk walk = WalkOf(site, "x", site.Result().shape);
  site.In("x"), site.In("indices");
  return [walk](const Call& call) {
    const View &x = call.in[0], &y = call.out[0];
    const size_t inner = y.rank - (x.rank - walk.inner);
    walk.run(LayoutOf(x), call.in[1], LayoutOf(y), [&](int64_t from, int64_t to) {
      CopyElements(call.machine, PartAt(x, walk.inner, from), PartAt(y, inner, to));
    });
  };
}

using Combine = double (*)(double old, double update);
Combine CombineOf(const std::string& mode) {
  if (mode == "add") return [](double a, double b) { return a + b; };
  if (mode == "update") return [](double, double b) { return b; };
  if (mode == "sub") return [](double a, double b) { return a - b; };
  if (mode == "mul") return [](double a, double b) { return a * b; };
  if (mode == "div") return [](double a, double b) { return a / b; };
  if (mode == "max") return [](double a, double b) { return std::max(a, b); };
  if (mode == "min") return [](double a, double b) { return std::min(a, b); };
  throw Fail(ErrorKind::kCorruptFile, "mode '{}'", mode);
}

// Updates of one place are applied in order, each rounded.
Kernel MakeScatter(Site& site) {
  const Walk walk = WalkOf(site, "data", site.Type("updates").shape);
  const Combine combine = CombineOf(site.given().StringOr("mode", "add"));
  site.In("data"), site.In("indices"), site.In("updates");
  return [walk, combine](const Call& call) {
    const View &updates = call.in[2], &y = call.out[0];
    CopyElements(call.machine, call.in[0], y);
    const size_t inner = updates.rank - (y.rank - walk.inner);
    walk.run(LayoutOf(y), call.in[1], LayoutOf(updates), [&](int64_t to, int64_t from) {
      const View old = PartAt(y, walk.inner, to), update = PartAt(updates, inner, from);
      const Rows<2> rows({&old, &update});
      rows.ForEach(0, rows.count(), [&](const auto& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          double a, b;
          LoadDoubles(old, at[0] + i * rows.steps()[0], 1, 1, &a);
          LoadDoubles(update, at[1] + i * rows.steps()[1], 1, 1, &b);
          a = combine(a, b);
          StoreDoubles(old, at[0] + i * rows.steps()[0], 1, 1, &a);
        }
      });
    });
  };
}

}  // namespace

const Makers& IndexMakers() {
  static const Makers makers = {{"gather", MakeGather},      {"gather_along_axis", MakeGather},
                                {"gather_nd", MakeGather},   {"scatter", MakeScatter},
                                {"scatter_nd", MakeScatter}, {"scatter_along_axis", MakeScatter}};
  return makers;
}

}  // namespace pd::interp
