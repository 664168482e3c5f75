#include "cpu/products.h"

#include <algorithm>

#include "base/error.h"

namespace pd::cpu {
namespace {

// Rows whose activations stay in the second-level cache while all weights of a product pass: at a width of
// 1536, in 8 bits, 128 rows are 260 KB.
constexpr int kRowBlock = 128;

// Splits [0, rows) into parts of at most kRowBlock rows, as equal as possible.
template <class F>
void ForRowBlocks(int begin, int end, F f) {
  const int blocks = (end - begin + kRowBlock - 1) / kRowBlock;
  for (int b = 0; b < blocks; ++b)
    f(begin + int(int64_t(end - begin) * b / blocks), begin + int(int64_t(end - begin) * (b + 1) / blocks));
}

}  // namespace

// A product's left side, in the forms that the weights need.
struct Products::Operand {
  const Matrix* x;
  std::byte* quantised;  // nullptr if no weight needs it
  float spread;
  int64_t quantised_stride() const { return Int8RowBytes(x->channels()); }
};

void Products::BeginStep(int rows, int64_t width) {
  for (auto& quantised : quantised_)
    if (const size_t bytes = size_t(rows) * size_t(Int8RowBytes(width)); quantised.size() < bytes)
      quantised.resize(bytes);
  up_.resize(size_t(pool_.threads()) * kRowBlock * kTile);
}

void Products::Quantise(const Operand& x, int begin, int end) const {
  for (int r = begin; r < end && x.quantised; ++r)
    kernels_.quantise_row(x.x->Row(r), x.x->channels(), x.spread, x.quantised + r * x.quantised_stride());
}

Products::Operand Products::Prepare(const Matrix& x, std::span<const Product> products, std::byte* quantised,
                                    float spread, bool now) {
  const bool wanted = std::any_of(products.begin(), products.end(),
                                  [](const Product& p) { return IsQuantised(p.weight->type); });
  const Operand operand{&x, wanted ? quantised : nullptr, spread};
  if (now && wanted)
    pool_.Split(x.rows(), 8, [&](int64_t begin, int64_t end) { Quantise(operand, int(begin), int(end)); });
  return operand;
}

// Computes rows [begin, end) of tile t, including the bias; out is the first of them.
void Products::Tile(const Product& p, const Operand& x, int64_t t, int begin, int end, float* out,
                    int64_t out_stride) const {
  const PackedMatrix& w = *p.weight;
  const bool quantised = IsQuantised(w.type);
  const int64_t stride = quantised ? x.quantised_stride() : x.x->stride() * int64_t(sizeof(float));
  const std::byte* rows = quantised ? x.quantised : reinterpret_cast<const std::byte*>(x.x->Row(0));
  kernels_.Product(w.type)({w.Tile(t), int(w.k), rows + begin * stride, stride, end - begin, out, out_stride,
                            t + 1 < w.tile_count() ? w.Tile(t + 1) : nullptr});
  for (int r = begin; r < end && p.bias; ++r)
    kernels_.add(out + (r - begin) * out_stride, p.bias + t * kTile, kTile);
}

void Products::Multiply(const Matrix& x, std::span<const Product> products, float spread) {
  const int rows = x.rows();
  const auto tile = [&](const Product& p, const Operand& operand, int64_t t, int begin, int end) {
    Tile(p, operand, t, begin, end, p.out->Row(begin) + t * kTile, p.out->stride());
  };
  if (SplitsRows(rows)) {
    const Operand operand = Prepare(x, products, quantised_[0].data(), spread, false);
    pool_.Split(rows, 1, [&](int64_t first, int64_t last) {
      ForRowBlocks(int(first), int(last), [&](int begin, int end) {
        Quantise(operand, begin, end);
        for (const Product& p : products)
          for (int64_t t = 0; t < p.weight->tile_count(); ++t) tile(p, operand, t, begin, end);
      });
    });
    return;
  }
  const Operand operand = Prepare(x, products, quantised_[0].data(), spread, true);
  int64_t tiles = 0;
  for (const Product& p : products) tiles += p.weight->tile_count();
  pool_.Split(tiles, 1, [&](int64_t first, int64_t last) {
    int64_t start = 0;  // of this product's tiles among all
    for (const Product& p : products) {
      const int64_t count = p.weight->tile_count();
      for (int64_t t = std::max<int64_t>(first - start, 0); t < std::min(last - start, count); ++t)
        tile(p, operand, t, 0, rows);
      start += count;
    }
  });
}

// act(gate) * up for tile t of rows [begin, end), left in gate.out.
void Products::GatedTile(const Product& gate, const Product& up, Activation activation, const Operand& x,
                         int64_t t, int begin, int end, float* scratch) const {
  float* out = gate.out->Row(begin) + t * kTile;
  Tile(gate, x, t, begin, end, out, gate.out->stride());
  Tile(up, x, t, begin, end, scratch, kTile);
  for (int r = 0; r < end - begin; ++r)
    kernels_.gate[size_t(activation)](out + r * gate.out->stride(), scratch + r * kTile, kTile);
}

void Products::GatedMlp(const Matrix& x, const Product& gate, const Product& up, Activation activation,
                        const Product& down) {
  const int rows = x.rows();
  const Product both[] = {gate, up};
  const int64_t hidden_tiles = gate.weight->tile_count();
  const auto scratch = [&](int thread) { return up_.data() + size_t(thread) * kRowBlock * kTile; };
  if (SplitsRows(rows)) {
    const Operand operand = Prepare(x, both, quantised_[0].data(), kSpread, false);
    const Operand hidden = Prepare(*gate.out, {&down, 1}, quantised_[1].data(), kSpread, false);
    pool_.Run([&](int thread) {
      const int64_t threads = pool_.threads();
      ForRowBlocks(
          int(rows * thread / threads), int(rows * int64_t(thread + 1) / threads), [&](int begin, int end) {
            Quantise(operand, begin, end);
            for (int64_t t = 0; t < hidden_tiles; ++t)
              GatedTile(gate, up, activation, operand, t, begin, end, scratch(thread));
            Quantise(hidden, begin, end);
            for (int64_t t = 0; t < down.weight->tile_count(); ++t)
              Tile(down, hidden, t, begin, end, down.out->Row(begin) + t * kTile, down.out->stride());
          });
    });
    return;
  }
  const Operand operand = Prepare(x, both, quantised_[0].data(), kSpread, true);
  pool_.Run([&](int thread) {
    const int64_t threads = pool_.threads();
    for (int64_t t = hidden_tiles * thread / threads; t < hidden_tiles * (thread + 1) / threads; ++t)
      ForRowBlocks(0, rows, [&](int begin, int end) {
        GatedTile(gate, up, activation, operand, t, begin, end, scratch(thread));
      });
  });
  Multiply(*gate.out, {&down, 1});
}

}  // namespace pd::cpu
