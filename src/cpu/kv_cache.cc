#include "cpu/kv_cache.h"

#include <cstring>

#include "base/error.h"

namespace pd::cpu {
namespace {

// Slots up to this size take 2 MB pages: attention reads keys and values up to twice as fast, at the price of
// memory for the whole capacity as soon as the first tokens come. Above it, memory follows the tokens.
constexpr size_t kHugeSlot = size_t(64) << 20;

}  // namespace

// What a segment owns: the memory, and the fact that it is being read.
struct KvSlot::Publication {
  explicit Publication(std::shared_ptr<Memory> shared) : memory(std::move(shared)) { ++memory->published; }
  ~Publication() { --memory->published; }
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;
  std::shared_ptr<Memory> memory;
};

KvSlot::KvSlot(const ModelSpec& spec, int capacity, RopeVariant variant, RopeTables tables)
    : spec_(spec), capacity_(capacity), variant_(variant), tables_(std::move(tables)) {
  for (const LayerSpec& layer : spec.layers) {
    const size_t part = size_t(layer.attn.kv_width()) * size_t(capacity);
    layers_.push_back({halves_, halves_ + part});
    halves_ += 2 * part;
  }
  memory_ = Allocate();
}

std::shared_ptr<KvSlot::Memory> KvSlot::Allocate() const {
  auto memory = std::make_shared<Memory>();
  const size_t bytes = halves_ * sizeof(uint16_t);
  const bool huge = bytes >= size_t(2) << 20 && bytes <= kHugeSlot;
  memory->pages = Pages(bytes, huge ? Pages::Size::kHuge : Pages::Size::kSmall, "KV cache");
  return memory;
}

uint16_t* KvSlot::Half(size_t place, int layer, int head) const {
  const auto dim = size_t(spec_.layers[size_t(layer)].attn.head_dim);
  return reinterpret_cast<uint16_t*>(memory_->pages.data()) + place + size_t(head) * size_t(capacity_) * dim;
}

RopeTable& KvSlot::TableOf(const RopeSpec& spec) const {
  for (const auto& table : tables_)
    if (table->spec() == spec) return *table;
  PD_CHECK(false);  // the backend makes a table for every rope of the model
}

void KvSlot::BeginWrite(int first, int end) {
  // Acquires what readers did before they let go: they are done with the rows.
  if (memory_->published.load(std::memory_order_acquire) == 0) memory_->published_end = 0;
  if (first < memory_->published_end) {
    const std::shared_ptr<Memory> old = std::exchange(memory_, Allocate());
    const std::byte* from = old->pages.data();
    for (size_t i = 0; i < layers_.size(); ++i) {
      const AttentionSpec& a = spec_.layers[i].attn;
      for (int h = 0; h < a.kv_heads; ++h)
        for (uint16_t* to : {Keys(int(i), h), Values(int(i), h)}) {
          const size_t at = size_t(reinterpret_cast<std::byte*>(to) - memory_->pages.data());
          std::memcpy(to, from + at, size_t(first) * size_t(a.head_dim) * sizeof(uint16_t));
        }
    }
  }
  for (const auto& table : tables_) table->Fill(end);
}

KvSegment KvSlot::Export(int first, int count) {
  KvSegment segment;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t dim = spec_.layers[i].attn.head_dim;
    const auto row = [&](uint16_t* head) { return reinterpret_cast<const std::byte*>(head + first * dim); };
    segment.layers.push_back({first, count, row(Keys(int(i), 0)), row(Values(int(i), 0)), DType::kF16,
                              int64_t(capacity_) * dim, dim, 1});
  }
  segment.id.rope = variant_;
  segment.owner = std::make_shared<Publication>(memory_);
  memory_->published_end = std::max(memory_->published_end, first + count);
  return segment;
}

}  // namespace pd::cpu
