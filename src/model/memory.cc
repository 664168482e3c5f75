#include "model/memory.h"

namespace pd {
namespace {

size_t Product(int a, int b, int c) { return size_t(a) * size_t(b) * size_t(c); }

}  // namespace

size_t KvEntries(const LayerSpec& layer) {
  const AttentionSpec* a = FindAttention(layer);
  if (!a || a->kv_from) return 0;
  if (a->latent) return size_t(a->latent->kv_rank) + size_t(a->latent->rope_dim);
  return size_t(a->kv_width()) + (a->values == Values::kCachedKey ? 0 : size_t(a->v_width()));
}

size_t StateEntries(const LayerSpec& layer) {
  if (const auto* d = std::get_if<DeltaNetSpec>(&layer.mixer))
    return Product(d->value_heads, d->key_dim, d->value_dim);
  if (const auto* m = std::get_if<MambaSpec>(&layer.mixer)) return Product(m->heads, m->head_dim, m->state);
  return 0;
}

size_t TailEntries(const LayerSpec& layer) {
  const auto tail = [](const ConvSpec& c) { return Product(c.taps - 1, c.channels, 1); };
  if (const auto* d = std::get_if<DeltaNetSpec>(&layer.mixer)) return tail(d->conv);
  if (const auto* m = std::get_if<MambaSpec>(&layer.mixer)) return tail(m->conv);
  if (const auto* s = std::get_if<ShortConvSpec>(&layer.mixer)) return tail(s->conv);
  return 0;
}

size_t MemoryBytes(const ModelSpec& spec, LayerRange range, const MemoryFormat& format, int tokens) {
  size_t rows = 0, states = 0;
  for (int i = range.first; i < range.last; ++i) {
    const LayerSpec& layer = spec.layers[size_t(i)];
    rows += RowBytes(format.kv, int64_t(KvEntries(layer)));
    states += RowBytes(format.state, int64_t(StateEntries(layer) + TailEntries(layer)));
  }
  return states + rows * size_t(tokens);
}

size_t MemoryBytes(const ModelSpec& spec, const MemoryFormat& format, int tokens) {
  return MemoryBytes(spec, AllLayers(spec), format, tokens);
}

}  // namespace pd
