#include "mlx/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace pd {
namespace {

constexpr int kRequantGroup = 64;
constexpr size_t kPieceBytes = size_t(64) << 20;  // staged in host memory at a time

float LoadF16(const std::byte* p) {
  F16 h;
  std::memcpy(&h, p, sizeof h);
  return ToFloat(h);
}

bool IsMatrix(Role role) { return role == Role::kLinear || role == Role::kTable || role == Role::kHead; }

// How a matrix is held on the device. bits 0: plain.
struct Format {
  int bits = 0, group = 0;
  bool requantised = false;
};

Format FormatOf(const TensorView& tensor, const WeightInfo& info, const MlxWeightOptions& options) {
  if (!IsMatrix(info.role)) return {};
  if (tensor.affine) return {AffineBits(tensor.type), tensor.affine->group};
  if (HasGroups(tensor.type)) return {CodeBits(tensor.type), QuantGroup::kValues};
  if (options.quantise_bits != 0 && tensor.columns() % kRequantGroup == 0)
    return {options.quantise_bits, kRequantGroup, true};
  return {};
}

size_t BytesIn(const TensorView& tensor, const Format& format, mx::Dtype activations) {
  const auto count = size_t(tensor.rows() * tensor.columns());
  const size_t item = mx::size_of(activations);
  if (format.bits == 0) return count * item;
  return count * size_t(format.bits) / 8 + count / size_t(format.group) * 2 * item;
}

// Codes as MLX packs them: the first in the lowest bits, `bits` words.
void PackCodes(const QuantGroup& group, int bits, uint32_t* words) {
  uint64_t held = 0;
  int count = 0;
  for (uint8_t code : group.codes) {
    held |= uint64_t(code) << count;
    count += bits;
    if (count < 32) continue;
    *words++ = uint32_t(held);
    held >>= 32, count -= 32;
  }
}

// One group's codes, as MLX packs them, and its scale and bias. Q8_0: d * q = d * (q + 128) - 128 d. Q4_0: d
// * (q - 8) = d * q - 8 d. Q5_0 is similar; the others are already affine. These products are exact in
// binary16 and float (a multiplication by a power of two), unless they overflow.
void UnpackGroup(DType type, const std::byte* row, int64_t index, uint32_t* codes, float* scale,
                 float* bias) {
  if (type != DType::kQ8_0 && type != DType::kQ4_0 && type != DType::kQ4_1) {
    QuantGroup group;
    ReadGroup(type, row, index, &group);
    PackCodes(group, CodeBits(type), codes);
    *scale = group.scale;
    *bias = group.zero != 0 ? float(-group.zero) * group.scale : group.minimum;
    return;
  }
  // The common types, whole words at a time.
  const std::byte* src = row + index * Info(type).block_bytes;
  *scale = LoadF16(src);
  if (type == DType::kQ8_0) {
    *bias = -128 * *scale;
    std::memcpy(codes, src + 2, 32);
    for (int i = 0; i < 8; ++i) codes[i] ^= 0x80808080u;
    return;
  }
  const bool has_min = type == DType::kQ4_1;
  *bias = has_min ? LoadF16(src + 2) : -8 * *scale;
  uint32_t bytes[4];  // low nibbles are values 0..15, high ones 16..31
  std::memcpy(bytes, src + (has_min ? 4 : 2), sizeof bytes);
  // The low nibbles of four bytes side by side.
  const auto gather = [](uint32_t x) {
    x &= 0x0f0f0f0f;
    x = (x | x >> 4) & 0x00ff00ff;
    return (x | x >> 8) & 0xffff;
  };
  for (size_t i = 0; i < 2; ++i) {
    codes[i] = gather(bytes[2 * i]) | gather(bytes[2 * i + 1]) << 16;
    codes[i + 2] = gather(bytes[2 * i] >> 4) | gather(bytes[2 * i + 1] >> 4) << 16;
  }
}

// A tensor arrives in pieces of rows that are joined on the device. MLX then allocates the whole tensor in
// the device's own memory instead of where the host wrote it, and the host holds one piece at a time.
class Joiner {
 public:
  void Add(mx::array piece) {
    piece.eval();
    pieces_.push_back(std::move(piece));
  }
  mx::array Join() {
    mx::array whole = pieces_.size() == 1 ? pieces_[0] : mx::concatenate(std::move(pieces_), 0);
    whole.eval();
    return whole;
  }

 private:
  std::vector<mx::array> pieces_;
};

// Rows per piece: at least two pieces if there are two rows, so that they are joined.
int64_t PieceRows(int64_t rows, size_t row_bytes) {
  return std::max<int64_t>(
      1, std::min<int64_t>((rows + 1) / 2, int64_t(kPieceBytes / std::max<size_t>(row_bytes, 1))));
}

// Scales or biases [n, groups] in the activations' type. Raises *rounding to the largest relative error.
mx::array Rounded(const std::vector<float>& values, int n, mx::Dtype activations, float* rounding) {
  const mx::array exact(values.begin(), {n, int(values.size()) / n}, mx::float32);
  const mx::array rounded = mx::astype(exact, activations);
  if (activations == mx::float32) return rounded;
  const mx::array size = mx::maximum(mx::abs(exact), mx::array(1e-30f));
  const mx::array error = mx::max(mx::abs(mx::astype(rounded, mx::float32) - exact) / size);
  *rounding = std::max(*rounding, ReadFloats(error)[0]);
  return rounded;
}

MlxWeight LoadCodes(const TensorView& tensor, const Format& format, mx::Dtype activations, float* rounding) {
  const int64_t rows = tensor.rows(), groups = tensor.columns() / format.group;
  const auto words = size_t(tensor.columns() / 32 * format.bits);  // of a row
  const double largest = activations == mx::float16 ? 65504 : 3e38;
  Joiner codes, scales, biases;
  for (int64_t first = 0, step = PieceRows(rows, tensor.row_bytes()); first < rows; first += step) {
    const int64_t n = std::min(step, rows - first);
    std::vector<uint32_t> c(size_t(n) * words);
    std::vector<float> s(static_cast<size_t>(n * groups)), b(s.size());
    for (int64_t r = 0; r < n; ++r) {
      const std::byte* src = tensor.Row(first + r);
      const auto at = size_t(r * groups);
      if (tensor.affine) {
        std::memcpy(&c[size_t(r) * words], src, words * sizeof(uint32_t));
        std::ranges::copy(tensor.ReadScales(first + r), &s[at]);
        std::ranges::copy(tensor.ReadBiases(first + r), &b[at]);
      } else {
        for (int64_t g = 0; g < groups; ++g)
          UnpackGroup(tensor.type, src, g, &c[size_t(r) * words + size_t(g * format.bits)],
                      &s[at + size_t(g)], &b[at + size_t(g)]);
      }
      for (size_t i = at; i < at + size_t(groups); ++i)
        if (!(std::abs(b[i]) <= largest && std::abs(s[i]) <= largest))
          throw Fail(ErrorKind::kUnsupported,
                     "{}: row {} has a scale of {} and a bias of {}, beyond f16; use activations "
                     "bf16 or f32",
                     tensor.name, first + r, s[i], b[i]);
    }
    codes.Add(mx::array(c.begin(), {int(n), int(words)}, mx::uint32));
    scales.Add(Rounded(s, int(n), activations, rounding));
    biases.Add(Rounded(b, int(n), activations, rounding));
  }
  MlxWeight w;
  w.values = codes.Join(), w.scales = scales.Join(), w.biases = biases.Join();
  w.bits = format.bits, w.group = format.group;
  return w;
}

// Rows [first, first + n) of a tensor, in the file's type if MLX supports it.
mx::array ReadRows(const TensorView& tensor, int64_t first, int64_t n) {
  const mx::Shape shape =
      tensor.shape.size() == 2 ? mx::Shape{int(n), int(tensor.columns())} : mx::Shape{int(tensor.columns())};
  if (tensor.type == DType::kF32 || tensor.type == DType::kF16 || tensor.type == DType::kBF16) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(size_t(n) * tensor.row_bytes());
    for (int64_t r = 0; r < n; ++r) tensor.CopyRow(first + r, bytes->data() + size_t(r) * tensor.row_bytes());
    return mx::array(bytes->data(), shape, ToMlx(tensor.type), [bytes](void*) {});
  }
  std::vector<float> values(static_cast<size_t>(n * tensor.columns()));
  for (int64_t r = 0; r < n; ++r)
    tensor.ReadRow(first + r,
                   std::span(values).subspan(size_t(r * tensor.columns()), size_t(tensor.columns())));
  return mx::array(values.begin(), shape, mx::float32);
}

MlxWeight LoadPlain(const TensorView& tensor, const Format& format, mx::Dtype activations) {
  const bool requantise = format.requantised;
  const int64_t rows = tensor.rows(), columns = tensor.columns();
  Joiner values, scales, biases;
  for (int64_t first = 0, step = PieceRows(rows, size_t(columns) * 4); first < rows; first += step) {
    mx::array piece = ReadRows(tensor, first, std::min(step, rows - first));
    piece = mx::astype(piece, activations);
    if (requantise) {
      const auto parts = mx::quantize(piece, format.group, format.bits);
      values.Add(parts[0]), scales.Add(parts[1]), biases.Add(parts[2]);
    } else {
      values.Add(piece);
    }
  }
  MlxWeight w;
  w.values = values.Join();
  if (requantise) {
    w.scales = scales.Join(), w.biases = biases.Join();
    w.bits = format.bits, w.group = format.group;
  }
  return w;
}

mx::array RowsOf(const mx::array& a, int from, int count) {
  mx::Shape start(a.ndim(), 0), stop = a.shape();
  start[0] = from, stop[0] = from + count;
  mx::array view = mx::slice(a, start, stop);
  view.eval();
  return view;
}

// Stacks matrices of one format vertically and makes the parts views of the whole.
void Stack(std::vector<LinearWeights<MlxWeight>*> parts) {
  const MlxWeight& first = parts[0]->weight;
  for (const auto* part : parts)
    if (part->weight.bits != first.bits || part->weight.group != first.group ||
        part->bias.has_value() != parts[0]->bias.has_value())
      return;  // a file that mixes formats: each part is multiplied separately
  const auto join = [&](auto member) {
    Joiner joiner;
    for (auto* part : parts) joiner.Add(member(*part));
    return joiner.Join();
  };
  auto whole = std::make_shared<LinearWeights<MlxWeight>>();
  MlxWeight& w = whole->weight;
  w.values = join([](auto& p) { return *p.weight.values; });
  w.bits = first.bits, w.group = first.group;
  if (w.bits != 0) {
    w.scales = join([](auto& p) { return *p.weight.scales; });
    w.biases = join([](auto& p) { return *p.weight.biases; });
  }
  if (parts[0]->bias) whole->bias.emplace().values = join([](auto& p) { return *p.bias->values; });
  int row = 0;
  for (auto* part : parts) {
    MlxWeight& p = part->weight;
    const int count = p.out();
    p.values = RowsOf(*w.values, row, count);
    if (w.bits != 0) p.scales = RowsOf(*w.scales, row, count), p.biases = RowsOf(*w.biases, row, count);
    if (part->bias) part->bias->values = RowsOf(*whole->bias->values, row, count);
    p.stack = whole, p.stack_row = row;
    row += count;
  }
}

}  // namespace

size_t BytesOf(const TensorView& tensor, const WeightInfo& info, const MlxWeightOptions& options) {
  return BytesIn(tensor, FormatOf(tensor, info, options), options.activations);
}

Weights<MlxWeight> LoadWeights(const ModelSpec& spec, const Weights<TensorView>& tensors,
                               const MlxWeightOptions& options, MlxWeightChanges* changes,
                               const std::function<void(size_t done, size_t total)>& progress) {
  size_t done = 0, total = 0;
  ForEachWeight(spec, tensors, [&](const TensorView& t, const WeightInfo&) { total += t.stored_bytes(); });
  auto weights = MapWeights<MlxWeight>(spec, tensors, [&](const TensorView& t, const WeightInfo& info) {
    const Format format = FormatOf(t, info, options);
    float rounding = 0;
    MlxWeight w = format.bits != 0 && !format.requantised
                      ? LoadCodes(t, format, options.activations, &rounding)
                      : LoadPlain(t, format, options.activations);
    if (changes && IsMatrix(info.role)) {
      MlxWeightChanges::Change* change = nullptr;
      if (format.requantised)
        change = &changes->requantised;
      else if (format.bits == 0 && (IsQuantised(t.type) || ToMlx(t.type) != options.activations))
        change = &changes->plain[t.type];
      else if (rounding > 0)
        change = &changes->rounded[t.type];
      if (change) {
        ++change->matrices;
        change->file_bytes += t.stored_bytes();
        change->device_bytes += BytesIn(t, format, options.activations);
        change->rounding = std::max(change->rounding, rounding);
      }
    }
    done += t.stored_bytes();
    if (progress) progress(done, total);
    return w;
  });
  for (auto& layer : weights.layers) {
    auto& attention = AttentionOf(layer);
    Stack({&attention.q, &*attention.k, &*attention.v});
    if (auto& mlp = MlpOf(layer); mlp.gate) Stack({&*mlp.gate, &mlp.up});
  }
  mx::clear_cache();
  return weights;
}

mx::array TakeRows(const MlxWeight& table, const mx::array& ids, mx::Dtype activations) {
  mx::array rows = mx::take(*table.values, ids, 0);
  if (table.bits == 0) return rows;
  return mx::dequantize(rows, mx::take(*table.scales, ids, 0), mx::take(*table.biases, ids, 0), table.group,
                        table.bits, "affine", std::nullopt, activations);
}

mx::array Product(const mx::array& x, const MlxWeight& w) {
  if (w.bits == 0) return mx::matmul(x, mx::transpose(*w.values));
  return mx::quantized_matmul(x, *w.values, *w.scales, w.biases, true, w.group, w.bits);
}

}  // namespace pd
