#include <algorithm>
#include <set>

#include "coreml/mil/given.h"

namespace pd::mil {
namespace {

Types Transpose(const Given& in) {
  const TensorType& x = in.Type("x");
  const auto perm = Axes(in.Ints("perm"), x.shape.size());
  if (perm.size() != x.shape.size())
    throw Wrong("a permutation of {} axes for rank {}", perm.size(), x.shape.size());
  TensorType y{x.dtype, {}};
  for (size_t a : perm) y.shape.push_back(x.shape[a]);
  return {y};
}

Types Reshape(const Given& in) {
  const TensorType& x = in.Type("x");
  const auto wanted = in.IntsIfKnown("shape");
  if (!wanted) return {{x.dtype, Dims(size_t(Elements(in.Type("shape"))), kUnknown)}};
  Dims shape = *wanted;
  constexpr int64_t kMost = int64_t(1) << 48;  // elements: keeps products far from overflow
  std::optional<size_t> open;
  int64_t known = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) {  // copied from x, counted from the right
      const int64_t from = int64_t(x.shape.size()) - int64_t(shape.size()) + int64_t(i);
      shape[i] = from >= 0 ? x.shape[size_t(from)] : 1;
    }
    if (shape[i] == -1) {
      if (open) throw Wrong("a shape with two inferred axes");
      open = i;
    } else if (shape[i] < 0 || shape[i] > kMost / std::max<int64_t>(known, 1)) {
      throw Wrong("shape {}", Show(*wanted));
    } else {
      known *= shape[i];
    }
  }
  const int64_t count = Elements(x);
  if (open) shape[*open] = known == 0 ? 0 : count / known;
  if (Elements({x.dtype, shape}) != count)
    throw Wrong("{} cannot be reshaped to {}", Show(x.shape), Show(*wanted));
  return {{x.dtype, shape}};
}

Types ExpandDims(const Given& in) {
  const TensorType& x = in.Type("x");
  const auto axes = in.Ints("axes");
  const size_t rank = x.shape.size() + axes.size();
  std::vector<size_t> places = Axes(axes, rank);
  std::sort(places.begin(), places.end());
  TensorType y = x;
  for (size_t a : places) y.shape.insert(y.shape.begin() + std::ptrdiff_t(a), 1);
  return {y};
}

Types Squeeze(const Given& in) {
  const TensorType& x = in.Type("x");
  std::set<size_t> dropped;
  if (in.Find("axes")) {
    for (size_t a : Axes(in.Ints("axes"), x.shape.size())) dropped.insert(a);
  } else {
    for (size_t a = 0; a < x.shape.size(); ++a)
      if (x.shape[a] == 1) dropped.insert(a);
  }
  TensorType y{x.dtype, {}};
  for (size_t a = 0; a < x.shape.size(); ++a) {
    if (!dropped.contains(a))
      y.shape.push_back(x.shape[a]);
    else if (x.shape[a] != 1)
      throw Wrong("axis {} of {} is not 1", a, Show(x.shape));
  }
  return {y};
}

const std::vector<Operand>& ValuesOfOneType(const Given& in) {
  const auto* values = in.FindAll("values");
  if (!values || values->empty()) throw Wrong("'values' is missing");
  for (const Operand& v : *values) WantSameType(values->front().type, v.type);
  return *values;
}

Types Concat(const Given& in) {
  const auto& values = ValuesOfOneType(in);
  TensorType y = values.front().type;
  const size_t axis = Axis(in.Int("axis"), y.shape.size());
  const bool interleave = in.IntOr("interleave", 0) != 0;
  for (size_t i = 1; i < values.size(); ++i) {
    Dims expected = y.shape;
    const Dims& found = values[i].type.shape;
    if (!interleave && found.size() == expected.size())
      expected[axis] = found[axis];
    else
      expected[axis] = values.front().type.shape[axis];
    if (found != expected)
      throw Wrong("{} cannot be joined to {} on axis {}", Show(found), Show(values.front().type.shape), axis);
    y.shape[axis] += found[axis];
  }
  return {y};
}

Types Stack(const Given& in) {
  const auto& values = ValuesOfOneType(in);
  for (const Operand& v : values)
    if (v.type.shape != values.front().type.shape)
      throw Wrong("{} cannot be stacked on {}", Show(v.type.shape), Show(values.front().type.shape));
  TensorType y = values.front().type;
  const size_t axis = Axis(in.Int("axis"), y.shape.size() + 1);
  y.shape.insert(y.shape.begin() + std::ptrdiff_t(axis), int64_t(values.size()));
  return {y};
}

Types Split(const Given& in) {
  const TensorType& x = in.Type("x");
  const size_t axis = Axis(in.Int("axis"), x.shape.size());
  std::vector<int64_t> sizes;
  if (in.Find("split_sizes")) sizes = in.Ints("split_sizes");
  if (in.Find("num_splits")) {
    const int64_t count = in.Int("num_splits");
    if (count < 1 || count > 65536) throw Wrong("{} splits", count);
    if (sizes.empty() && x.shape[axis] % count != 0)
      throw Wrong("{} parts of an axis of {}", count, x.shape[axis]);
    if (sizes.empty()) sizes.assign(size_t(count), x.shape[axis] / count);
    if (int64_t(sizes.size()) != count) throw Wrong("{} splits, {} sizes", count, sizes.size());
  }
  int64_t total = 0;
  Types parts;
  for (int64_t size : sizes) {
    if (size < 0 || size > x.shape[axis])
      throw Wrong("a split of {} from an axis of {}", size, x.shape[axis]);
    total += size;
    parts.push_back(x);
    parts.back().shape[axis] = size;
  }
  if (total != x.shape[axis]) throw Wrong("splits of {} in all from an axis of {}", total, x.shape[axis]);
  return parts;
}

bool Flag(const std::vector<int64_t>& mask, size_t i) { return !mask.empty() && mask[i] != 0; }

Types SliceByIndex(const Given& in) {
  const TensorType& x = in.Type("x");
  const size_t rank = x.shape.size();
  const auto begin = in.IntsIfKnown("begin"), end = in.IntsIfKnown("end");
  const auto stride = in.IntsOr("stride", std::vector<int64_t>(rank, 1));
  const auto begin_mask = in.IntsOr("begin_mask", {}), end_mask = in.IntsOr("end_mask", {}),
             squeeze_mask = in.IntsOr("squeeze_mask", {});
  for (const auto* mask : {&begin_mask, &end_mask, &squeeze_mask})
    if (!mask->empty() && mask->size() != rank) throw Wrong("a mask of {} for rank {}", mask->size(), rank);
  if (Elements(in.Type("begin")) != int64_t(rank) || Elements(in.Type("end")) != int64_t(rank) ||
      stride.size() != rank)
    throw Wrong("begin, end and stride must have {} entries", rank);
  TensorType y{x.dtype, {}};
  for (size_t a = 0; a < rank; ++a) {
    const int64_t size = x.shape[a], step = stride[a];
    if (step == 0) throw Wrong("a stride of 0");
    if (Flag(squeeze_mask, a)) continue;
    if ((!begin && !Flag(begin_mask, a)) || (!end && !Flag(end_mask, a))) {
      y.shape.push_back(kUnknown);
      continue;
    }
    const auto place = [&](int64_t i) {
      const int64_t from_front = i < 0 ? i + size : i;
      return step > 0 ? std::clamp<int64_t>(from_front, 0, size)
                      : std::clamp<int64_t>(from_front, -1, size - 1);
    };
    const int64_t first = Flag(begin_mask, a) ? (step > 0 ? 0 : size - 1) : place((*begin)[a]);
    const int64_t last = Flag(end_mask, a) ? (step > 0 ? size : -1) : place((*end)[a]);
    const int64_t span = step > 0 ? last - first : first - last, by = step > 0 ? step : -step;
    y.shape.push_back(span <= 0 ? 0 : (span + by - 1) / by);
  }
  return {y};
}

Types SliceBySize(const Given& in) {
  TensorType y = in.Type("x");
  const size_t rank = y.shape.size();
  const auto begin = in.IntsIfKnown("begin"), size = in.IntsIfKnown("size");
  if (Elements(in.Type("begin")) != int64_t(rank) || Elements(in.Type("size")) != int64_t(rank))
    throw Wrong("begin and size must have {} entries", rank);
  for (size_t a = 0; a < rank; ++a) {
    const int64_t axis = y.shape[a];
    const bool known = size && (begin || (*size)[a] != -1);
    if (!known) {
      y.shape[a] = kUnknown;
      continue;
    }
    int64_t first = begin ? (*begin)[a] : 0;
    if (first < 0) first += axis;
    const int64_t count = (*size)[a] == -1 ? axis - first : (*size)[a];
    if (first < 0 || count < 0 || first > axis || count > axis - first)
      throw Wrong("a slice of {} from {} of an axis of {}", count, first, axis);
    y.shape[a] = count;
  }
  return {y};
}

Types SliceUpdate(const Given& in) {
  const TensorType &x = in.Type("x"), &update = in.Type("update");
  WantSameType(x, update);
  const Dims slice = SliceByIndex(in).front().shape;
  bool fits = slice.size() == update.shape.size();
  for (size_t a = 0; fits && a < slice.size(); ++a)
    fits = slice[a] == kUnknown || slice[a] == update.shape[a];
  if (!fits) throw Wrong("an update {} for a slice {}", Show(update.shape), Show(slice));
  return {x};
}

Types Gather(const Given& in) {
  const TensorType &x = in.Type("x"), &indices = in.Type("indices");
  const size_t axis = Axis(in.IntOr("axis", 0), x.shape.size());
  const int64_t batch = in.IntOr("batch_dims", 0);
  if (batch < 0 || batch > int64_t(indices.shape.size()) || batch > int64_t(axis))
    throw Wrong("batch_dims {}", batch);
  TensorType y{x.dtype, {x.shape.begin(), x.shape.begin() + std::ptrdiff_t(axis)}};
  y.shape.insert(y.shape.end(), indices.shape.begin() + batch, indices.shape.end());
  y.shape.insert(y.shape.end(), x.shape.begin() + std::ptrdiff_t(axis) + 1, x.shape.end());
  return {y};
}

Types GatherAlongAxis(const Given& in) {
  const TensorType &x = in.Type("x"), &indices = in.Type("indices");
  Axis(in.IntOr("axis", 0), x.shape.size());
  if (indices.shape.size() != x.shape.size()) throw Wrong("indices and x differ in rank");
  return {{x.dtype, indices.shape}};
}

Types GatherNd(const Given& in) {
  const TensorType &x = in.Type("x"), &indices = in.Type("indices");
  const int64_t batch = in.IntOr("batch_dims", 0);
  WantRank(indices, 1, 5);
  const int64_t depth = indices.shape.back();
  if (batch < 0 || depth < 0 || batch + depth > int64_t(x.shape.size()) ||
      batch >= int64_t(indices.shape.size()))
    throw Wrong("indices {} with batch_dims {} into {}", Show(indices.shape), batch, Show(x.shape));
  TensorType y{x.dtype, {indices.shape.begin(), indices.shape.end() - 1}};
  y.shape.insert(y.shape.end(), x.shape.begin() + batch + depth, x.shape.end());
  return {y};
}

Types SameAsData(const Given& in) {
  WantSameType(in.Type("data"), in.Type("updates"));
  return {in.Type("data")};
}

Types TopK(const Given& in) {
  TensorType values = in.Type("x");
  const size_t axis = Axis(in.IntOr("axis", -1), values.shape.size());
  const auto k = in.Find("k") ? in.IntsIfKnown("k") : std::vector<int64_t>{1};
  if (k && (k->size() != 1 || k->front() > values.shape[axis]))
    throw Wrong("the largest {} of {}", fmt::join(*k, ", "), values.shape[axis]);
  values.shape[axis] = !k ? kUnknown : k->front() == -1 ? values.shape[axis] : k->front();
  TensorType indices{in.DataTypeOr("output_indices_dtype", "int32"), values.shape};
  if (!in.IntOr("return_indices", 1)) return {values};
  return {values, indices};
}

Types OneHot(const Given& in) {
  TensorType y = in.Type("indices");
  const auto size = in.IntsIfKnown("one_hot_vector_size");
  const Operand* on = in.Find("on_value");
  y.dtype = on ? on->type.dtype : DataType::kI32;
  const size_t axis = Axis(in.IntOr("axis", -1), y.shape.size() + 1);
  y.shape.insert(y.shape.begin() + std::ptrdiff_t(axis), size ? size->at(0) : kUnknown);
  return {y};
}

Types NonZero(const Given& in) { return {{DataType::kI32, {kUnknown, int64_t(in.Type("x").shape.size())}}}; }

Types Range1d(const Given& in) {
  const DataType dtype = in.Type("start").dtype;
  if (IsFloat(dtype)) return {{dtype, {kUnknown}}};
  const auto start = in.IntsIfKnown("start"), end = in.IntsIfKnown("end"), step = in.IntsIfKnown("step");
  if (!start || !end || !step) return {{dtype, {kUnknown}}};
  const int64_t by = step->at(0), span = end->at(0) - start->at(0);
  if (by == 0) throw Wrong("a step of 0");
  return {{dtype, {std::max<int64_t>(0, (span + (by > 0 ? by - 1 : by + 1)) / by)}}};
}

Types Fill(const Given& in) {
  const Operand* value = in.Find("value");
  const DataType dtype = value ? value->type.dtype : DataType::kF32;
  const auto shape = in.IntsIfKnown("shape");
  if (!shape) return {{dtype, Dims(size_t(Elements(in.Type("shape"))), kUnknown)}};
  for (int64_t d : *shape)
    if (d < 0 || d > INT32_MAX) throw Wrong("shape {}", Show(*shape));
  return {{dtype, *shape}};
}

Types FillLike(const Given& in) {
  const Operand* value = in.Find("value");
  return {{value ? value->type.dtype : DataType::kF32, in.Type("ref_tensor").shape}};
}

Types Tile(const Given& in) {
  TensorType y = in.Type("x");
  const auto reps = in.IntsIfKnown("reps");
  if (Elements(in.Type("reps")) != int64_t(y.shape.size()))
    throw Wrong("reps must have an entry for each axis");
  for (size_t a = 0; a < y.shape.size(); ++a) {
    if (reps && ((*reps)[a] < 1 || (*reps)[a] > INT32_MAX)) throw Wrong("{} repetitions", (*reps)[a]);
    y.shape[a] = reps ? y.shape[a] * (*reps)[a] : kUnknown;
  }
  return {y};
}

Types Pad(const Given& in) {
  TensorType y = in.Type("x");
  const auto pad = in.Ints("pad");
  const size_t axes = pad.size() / 2;
  if (pad.size() % 2 != 0 || axes > y.shape.size())
    throw Wrong("{} paddings for rank {}", pad.size(), y.shape.size());
  for (size_t i = 0; i < axes; ++i) {
    if (pad[2 * i] < 0 || pad[2 * i + 1] < 0) throw Wrong("a negative padding");
    y.shape[y.shape.size() - axes + i] += pad[2 * i] + pad[2 * i + 1];
  }
  return {y};
}

Types ShapeOf(const Given& in) { return {{DataType::kI32, {int64_t(in.Type("x").shape.size())}}}; }

}  // namespace

const Rules& MovementRules() {
  static const Rules rules = {{"transpose", Transpose},
                              {"reshape", Reshape},
                              {"expand_dims", ExpandDims},
                              {"squeeze", Squeeze},
                              {"concat", Concat},
                              {"stack", Stack},
                              {"split", Split},
                              {"slice_by_index", SliceByIndex},
                              {"slice_by_size", SliceBySize},
                              {"slice_update", SliceUpdate},
                              {"gather", Gather},
                              {"gather_along_axis", GatherAlongAxis},
                              {"gather_nd", GatherNd},
                              {"scatter", SameAsData},
                              {"scatter_along_axis", SameAsData},
                              {"scatter_nd", SameAsData},
                              {"topk", TopK},
                              {"one_hot", OneHot},
                              {"non_zero", NonZero},
                              {"range_1d", Range1d},
                              {"fill", Fill},
                              {"fill_like", FillLike},
                              {"tile", Tile},
                              {"pad", Pad},
                              {"shape", ShapeOf}};
  return rules;
}

}  // namespace pd::mil
