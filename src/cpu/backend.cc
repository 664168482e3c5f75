#include "cpu/backend.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cpu/attention.h"
#include "cpu/products.h"

namespace pd::cpu {
namespace {

// Values that make it worth waking a thread: a parallel region costs about a microsecond.
constexpr int64_t kLight = 32768, kHeavy = 4096;  // of additions and the like; of exponentials

int64_t RowGrain(int64_t values, int64_t channels) { return std::max<int64_t>(1, values / channels); }

const PackedMatrix& Packed(const CpuWeight& w) { return std::get<PackedMatrix>(w); }

Product ProductOf(const LinearWeights<CpuWeight>& w, Matrix& out) {
  return {&Packed(w.weight), w.bias ? std::get<Vector>(*w.bias).data() : nullptr, &out};
}

// out = x - mean(x), in double, so that the order of the sum does not change the bits of the result.
void Centre(const float* x, int n, float* out) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double(x[i]);
  const auto mean = float(sum / n);
  for (int i = 0; i < n; ++i) out[i] = x[i] - mean;
}

// The widest input of any product with a quantised weight.
int64_t WidestOperand(const ModelSpec& spec) {
  int64_t widest = spec.width;
  for (const LayerSpec& layer : spec.layers)
    widest = std::max({widest, int64_t(AttentionOf(layer).q_width()), int64_t(MlpOf(layer).hidden)});
  return (widest + kGroup - 1) / kGroup * kGroup;
}

}  // namespace

struct CpuBackend::State {
  State(std::shared_ptr<const CpuModel> m, std::shared_ptr<ThreadPool> p, const Kernels& k, size_t limit,
        std::function<bool()> c)
      : model(std::move(m)),
        pool(std::move(p)),
        kernels(k),
        kv_limit(limit),
        cancelled(std::move(c)),
        products(kernels, *pool),
        attention(kernels, *pool, model->spec()) {}

  KvSlot& Slot(SlotId slot) const { return *slots[size_t(slot)]; }
  RopeTables TablesOf(RopeVariant variant);
  // At least n ones, for gains and gates that a model does not have. Called before the threads start.
  const float* Ones(int n) {
    if (ones.size() < size_t(n)) ones.resize(size_t(n), 1.f);
    return ones.data();
  }

  const std::shared_ptr<const CpuModel> model;
  const std::shared_ptr<ThreadPool> pool;
  const Kernels& kernels;
  const size_t kv_limit;
  const std::function<bool()> cancelled;
  size_t kv_bytes = 0;  // of the open slots at full length
  Arena arena;
  Products products;
  Attention attention;
  std::vector<std::unique_ptr<KvSlot>> slots;  // by SlotId; nullptr: free
  RopeTables tables;                           // for all variants in use
  std::vector<RowRun> runs;                    // of the running step
  std::vector<const KvSlot*> row_slot;         // of the running step, [rows]
  std::vector<float> ones;
  std::vector<float> logits;  // without the padding of rows, if they have any
};

// Slots of one variant share tables; the last slot's end drops them, except the default variant's.
RopeTables CpuBackend::State::TablesOf(RopeVariant variant) {
  std::erase_if(tables, [](const auto& t) { return t.use_count() == 1 && t->variant() != RopeVariant{}; });
  RopeTables wanted;
  const auto find = [&](const RopeTables& in, const RopeSpec& rope) {
    const auto at = std::find_if(in.begin(), in.end(),
                                 [&](const auto& t) { return t->spec() == rope && t->variant() == variant; });
    return at == in.end() ? nullptr : *at;
  };
  for (const LayerSpec& layer : model->spec().layers) {
    const std::optional<RopeSpec>& rope = AttentionOf(layer).rope;
    if (!rope || find(wanted, *rope)) continue;
    auto table = find(tables, *rope);
    if (!table) {
      table = std::make_shared<RopeTable>(*rope, variant, model->spec().max_context);
      tables.push_back(table);
    }
    wanted.push_back(std::move(table));
  }
  return wanted;
}

CpuBackend::CpuBackend(std::shared_ptr<const CpuModel> model, std::shared_ptr<ThreadPool> pool,
                       const Kernels& kernels, size_t kv_limit, std::function<bool()> cancelled)
    : state_(std::make_unique<State>(std::move(model), std::move(pool), kernels, kv_limit,
                                     std::move(cancelled))) {}
CpuBackend::~CpuBackend() = default;
CpuBackend::CpuBackend(CpuBackend&&) noexcept = default;

// ---- operations ----

void CpuBackend::BeginLayer(int, Matrix&) {
  if (state_->cancelled && state_->cancelled()) throw Fail(ErrorKind::kCancelled, "interrupted");
}

Matrix CpuBackend::Embed(const Weight& table, float scale, const Rows& rows) {
  State& s = *state_;
  Matrix x = s.arena.Take(rows.count(), Spec().width);
  const auto width = size_t(x.channels());
  s.pool->Split(rows.count(), RowGrain(kHeavy, x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const std::span<float> row(x.Row(r), width);
      const TokenId id = rows.ids[size_t(r)];
      if (const auto* packed = std::get_if<PackedMatrix>(&table)) {
        ReadPackedRow(*packed, id, row);
      } else {
        std::get<TensorView>(table).ReadRow(id, row);
      }
      if (scale != 1) s.kernels.scale(row.data(), scale, x.channels(), row.data());
    }
  });
  return x;
}

Matrix CpuBackend::Norm(const Matrix& x, const NormWeights<Weight>& w, const NormSpec& spec) {
  return NormHeads(x, w, spec, 1);
}

Matrix CpuBackend::NormHeads(const Matrix& x, const NormWeights<Weight>& w, const NormSpec& spec, int heads) {
  State& s = *state_;
  Matrix y = s.arena.Take(x.rows(), x.channels());
  const int size = x.channels() / heads;
  const float* gain = w.gain ? std::get<Vector>(*w.gain).data() : s.Ones(size);
  const float* bias = w.bias ? std::get<Vector>(*w.bias).data() : nullptr;
  s.pool->Split(x.rows(), RowGrain(kLight, x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int h = 0; h < heads; ++h) {
        const float* from = x.Row(r) + h * size;
        float* to = y.Row(r) + h * size;
        if (spec.mean) Centre(from, size, to), from = to;
        s.kernels.norm(from, gain, spec.eps, size, to);
        if (bias) s.kernels.add(to, bias, size);
      }
  });
  return y;
}

Matrix CpuBackend::Linear(const Matrix& x, const LinearWeights<Weight>& w) {
  Matrix y = state_->arena.Take(x.rows(), int(Packed(w.weight).n));
  const Product product = ProductOf(w, y);
  state_->products.Multiply(x, {&product, 1});
  return y;
}

std::array<Matrix, 3> CpuBackend::Qkv(const Matrix& x, const LinearWeights<Weight>& q,
                                      const LinearWeights<Weight>& k, const LinearWeights<Weight>& v) {
  Arena& arena = state_->arena;
  std::array<Matrix, 3> out = {arena.Take(x.rows(), int(Packed(q.weight).n)),
                               arena.Take(x.rows(), int(Packed(k.weight).n)),
                               arena.Take(x.rows(), int(Packed(v.weight).n))};
  const Product products[] = {ProductOf(q, out[0]), ProductOf(k, out[1]), ProductOf(v, out[2])};
  state_->products.Multiply(x, products);
  return out;
}

Matrix CpuBackend::GatedMlp(const Matrix& x, const LinearWeights<Weight>& gate,
                            const LinearWeights<Weight>& up, const LinearWeights<Weight>& down,
                            const GateSpec& spec) {
  Matrix hidden = state_->arena.Take(x.rows(), int(Packed(gate.weight).n));
  Matrix y = state_->arena.Take(x.rows(), int(Packed(down.weight).n));
  state_->products.GatedMlp(x, ProductOf(gate, hidden), ProductOf(up, hidden), spec.act, ProductOf(down, y));
  return y;
}

Matrix CpuBackend::Rope(Matrix x, int heads, const RopeSpec& spec, const Rows& rows) {
  State& s = *state_;
  const int dim = x.channels() / heads;
  s.pool->Split(x.rows(), RowGrain(kLight, x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RopeTable& table = s.row_slot[size_t(r)]->TableOf(spec);
      const int position = rows.pos[size_t(r)];
      for (int h = 0; h < heads; ++h)
        s.kernels.rope(x.Row(r) + h * dim, table.Cos(position), table.Sin(position), table.half());
    }
  });
  return x;
}

void CpuBackend::Append(int layer, const AttentionSpec& a, Matrix k, Matrix v, const Rows& rows) {
  State& s = *state_;
  const int64_t dim = a.head_dim;
  s.pool->Split(k.rows(), RowGrain(kLight, 2 * k.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int h = 0; h < a.kv_heads; ++h) {
        const KvSlot& slot = *s.row_slot[size_t(r)];
        const int token = rows.pos[size_t(r)];
        s.kernels.to_half(k.Row(r) + h * dim, dim, slot.Keys(layer, h, token));
        s.kernels.to_half(v.Row(r) + h * dim, dim, slot.Values(layer, h, token));
      }
  });
}

Matrix CpuBackend::Attend(int layer, const AttentionSpec& a, Matrix q, const Rows&) {
  state_->attention.Attend(layer, a, q, state_->runs);
  return q;
}

Matrix CpuBackend::Gate(Matrix x, const Matrix* up, const GateSpec& spec) {
  State& s = *state_;
  const float* ones = up ? nullptr : s.Ones(x.channels());
  s.pool->Split(x.rows(), RowGrain(kHeavy, x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      s.kernels.gate[size_t(spec.act)](x.Row(r), up ? up->Row(r) : ones, x.channels());
  });
  return x;
}

Matrix CpuBackend::Add(Matrix x, const Matrix& y, float scale) {
  State& s = *state_;
  s.pool->Split(x.rows(), RowGrain(kLight, x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      if (scale == 1) {
        s.kernels.add(x.Row(r), y.Row(r), x.channels());
      } else {
        s.kernels.blend(x.Row(r), 1, y.Row(r), scale, x.channels());
      }
    }
  });
  return x;
}

Matrix CpuBackend::Logits(const Matrix& x, const Weight& head, std::optional<float> cap, float scale,
                          const Rows& rows) {
  State& s = *state_;
  const int count = int(rows.logits.size());
  Matrix chosen = s.arena.Take(count, x.channels()), y = s.arena.Take(count, Spec().vocab);
  for (int i = 0; i < count; ++i) std::copy_n(x.Row(rows.logits[size_t(i)]), x.channels(), chosen.Row(i));
  const Product product{&Packed(head), nullptr, &y};
  s.products.Multiply(chosen, {&product, 1}, kRefineAll);
  if (cap || scale != 1) {
    const int64_t parts = (y.channels() + kHeavy - 1) / kHeavy;
    s.pool->Split(parts * count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t from = i % parts * kHeavy;
        const int64_t n = std::min(kHeavy, y.channels() - from);
        float* values = y.Row(i / parts) + from;
        if (scale != 1) s.kernels.scale(values, scale, n, values);
        if (cap) s.kernels.soft_cap(values, *cap, n);
      }
    });
  }
  return y;
}

// ---- state ----

const ModelSpec& CpuBackend::Spec() const { return state_->model->spec(); }
const Weights<CpuWeight>& CpuBackend::ModelWeights() const { return state_->model->weights(); }
KvIdentity CpuBackend::Identity() const { return state_->model->id(); }

SlotId CpuBackend::OpenSlot(int capacity, const Variant& variant) {
  State& s = *state_;
  const size_t bytes = MemoryBytes(Spec(), kCpuMemory, capacity);
  if (bytes > s.kv_limit - s.kv_bytes)
    throw Fail(ErrorKind::kOutOfMemory,
               "cpu: a KV cache of {} tokens takes {} MB, and {} MB are left; use a shorter context",
               capacity, bytes >> 20, (s.kv_limit - s.kv_bytes) >> 20);
  auto slot = std::make_unique<KvSlot>(Spec(), capacity, s.TablesOf(variant.rope));
  auto free = std::find(s.slots.begin(), s.slots.end(), nullptr);
  if (free == s.slots.end()) free = s.slots.insert(free, nullptr);
  *free = std::move(slot);
  s.kv_bytes += bytes;
  return SlotId(free - s.slots.begin());
}

void CpuBackend::CloseSlot(SlotId slot) {
  state_->kv_bytes -= MemoryBytes(Spec(), kCpuMemory, state_->Slot(slot).capacity());
  state_->slots[size_t(slot)].reset();
}

void CpuBackend::BeginRows(const Rows& rows) {
  State& s = *state_;
  s.arena.BeginStep(rows.count());
  s.products.BeginStep(rows.count(), WidestOperand(Spec()));
  s.runs.clear();
  s.row_slot.clear();
  for (int r = 0; r < rows.count(); ++r) {
    const KvSlot* slot = &s.Slot(rows.slot[size_t(r)]);
    s.row_slot.push_back(slot);
    if (s.runs.empty() || s.runs.back().slot != slot) s.runs.push_back({slot, r, 0, rows.pos[size_t(r)]});
    ++s.runs.back().count;
  }
  for (const RowRun& run : s.runs) s.Slot(rows.slot[size_t(run.row)]).BeginWrite(run.position + run.count);
}

// Does nothing: later rows overwrite rows past the end.
void CpuBackend::TruncateSlot(SlotId slot, int count) { PD_CHECK(count <= state_->Slot(slot).capacity()); }

void CpuBackend::ImportRows(SlotId slot, const KvSegment& segment) {
  KvSlot& s = state_->Slot(slot);
  s.BeginWrite(segment.first + segment.count);
  s.Import(segment, state_->kernels, *state_->pool);
}

KvSegment CpuBackend::ExportRows(SlotId slot, int first, int count) {
  return state_->Slot(slot).Export(first, count);
}

std::span<const float> CpuBackend::ReadLogits(const Matrix& logits) {
  const auto rows = size_t(logits.rows()), vocab = size_t(logits.channels());
  if (int64_t(vocab) == logits.stride()) return {logits.Row(0), rows * vocab};
  state_->logits.resize(rows * vocab);
  for (size_t r = 0; r < rows; ++r) std::copy_n(logits.Row(int64_t(r)), vocab, &state_->logits[r * vocab]);
  return state_->logits;
}

}  // namespace pd::cpu
