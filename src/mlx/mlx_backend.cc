#include "mlx/mlx_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "mlx/sampling.h"

namespace pd {

MlxBackend::MlxBackend(std::shared_ptr<const MlxModel> model, std::unique_ptr<MlxKernels> kernels)
    : MlxOps(model->spec, model->activations, std::move(kernels)), model_(std::move(model)) {}

// Uncollected steps depend on the one that failed. If steps write in place, a failed one leaves other slots'
// rows intact; otherwise the contents of all arrays are unknown.
void MlxBackend::LoseSlots(std::span<const SlotId> failed) {
  const bool others_too = !kernels_->WritesInPlace();
  for (auto& [id, slot] : slots_)
    slot.lost = slot.lost || others_too || slot.under_way > 0 || std::ranges::count(failed, id) > 0;
  try {
    mx::synchronize();  // clears the failure from the stream, so that it does not affect later steps
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the failure being handled
  }
  if (others_too) cache_.Reset();
  step_slots_.clear();
  ++failures_;
}

MlxBackend::Slot& MlxBackend::Usable(SlotId slot) {
  Slot& s = slots_.at(slot);
  if (s.lost)
    throw Fail(ErrorKind::kDevice,
               "mlx: slot {} was lost when the device failed; close it and open a new one", slot);
  return s;
}

SlotId MlxBackend::OpenSlot(int capacity, const Variant& variant) {
  int longest = capacity;
  for (const auto& [id, slot] : slots_) longest = std::max(longest, slot.capacity);
  cache_.CheckRoom(int(slots_.size()) + 1, longest);
  const SlotId slot = cache_.Open();
  Slot& s = slots_[slot] = Slot();
  s.variant = variant;
  s.capacity = capacity;
  return slot;
}

void MlxBackend::CloseSlot(SlotId slot) {
  slots_.erase(slot);
  cache_.Close(slot);
  std::vector<RopeVariant> used;
  for (const auto& [id, s] : slots_) used.push_back(s.variant.rope);
  if (used.empty()) used.emplace_back();
  tables_.Keep(used);
}

void MlxBackend::BeginRows(const Rows& rows) {
  DropAppend();
  std::vector<RopeVariant> variants;
  for (SlotId slot : rows.slot) variants.push_back(Usable(slot).variant.rope);
  const int longest = *std::max_element(rows.pos.begin(), rows.pos.end()) + 1;
  OnDevice(rows.slot, [&] { cache_.Reserve(longest); });

  MlxPlan plan;
  plan.count = rows.count();
  plan.longest = longest;
  for (int i = 0; i < rows.count(); ++i) {
    const SlotId slot = rows.slot[size_t(i)];
    if (i > 0 && plan.runs.back().slot == slot) {
      ++plan.runs.back().count;
    } else {
      plan.runs.push_back({slot, i, 1, rows.pos[size_t(i)]});
    }
  }
  // A decode step that continues the last one finds all its inputs on the device.
  const bool same_slots = std::ranges::equal(rows.slot, step_slots_);
  const bool next = same_slots && std::ranges::equal(rows.pos, step_pos_, {}, [](int p) { return p - 1; });
  plan.slot = same_slots ? plan_.slot : Vector(rows.slot);
  plan.pos = next ? plan_.pos + mx::array(1) : Vector(rows.pos);
  step_slots_.assign(rows.slot.begin(), rows.slot.end());
  step_pos_.assign(rows.pos.begin(), rows.pos.end());
  plan_ = std::move(plan);

  ids_ = Ids(rows);
  logit_rows_.reset();
  if (!rows.logits.empty() && rows.logits.size() < size_t(rows.count())) logit_rows_ = Vector(rows.logits);
  tables_.Begin(rows.pos, variants, plan_.pos);
}

void MlxBackend::BeginLayer(int layer, Tensor& x) {
  OnDevice(step_slots_, [&] { SubmitLayer(layer, x); });
}

// Tokens of the rows [N]: the host's ids; for kLastSampled, the token that the slot's last step left on the
// device.
mx::array MlxBackend::Ids(const Rows& rows) const {
  std::vector<mx::array> pieces;
  for (size_t from = 0, to; from < rows.ids.size(); from = to) {
    to = from + 1;
    if (rows.ids[from] != kLastSampled) {
      while (to < rows.ids.size() && rows.ids[to] != kLastSampled) ++to;
      pieces.push_back(Vector(rows.ids.subspan(from, to - from)));
      continue;
    }
    const LastToken& first = *slots_.at(rows.slot[from]).last;
    const auto follows = [&](size_t i) {
      if (rows.ids[i] != kLastSampled) return false;
      const LastToken& last = *slots_.at(rows.slot[i]).last;
      return last.tokens.id() == first.tokens.id() && last.row == first.row + int(i - from);
    };
    while (to < rows.ids.size() && follows(to)) ++to;
    const int count = int(to - from);
    const bool all = first.row == 0 && count == first.tokens.shape(0);
    pieces.push_back(all ? first.tokens : mx::slice(first.tokens, {first.row}, {first.row + count}));
  }
  return pieces.size() == 1 ? pieces[0] : mx::concatenate(std::move(pieces), 0);
}

MlxBackend::Running MlxBackend::Start(const Rows& rows, const std::optional<Tensor>& logits,
                                      std::span<const SampleSpec> sample) {
  return OnDevice(rows.slot, [&] {
    Running running;
    running.failures = failures_;
    std::vector<mx::array> outputs;
    running.pending = FlushAppend();
    if (running.pending) outputs.push_back(*running.pending);
    for (const MlxLayerCache& layer : cache_.layers) outputs.push_back(layer.k), outputs.push_back(layer.v);
    if (!logits) {
      mx::async_eval(outputs);
      Count(running, rows);
      return running;
    }
    mx::array tokens(0);
    if (std::ranges::all_of(sample, SamplesOnDevice)) {
      const MlxChoice choice = SampleRows(*kernels_, Array(*logits), sample);
      tokens = choice.tokens;
      running.pending = choice.report;
      running.chosen = true;
      outputs.push_back(tokens), outputs.push_back(choice.report);
      mx::async_eval(outputs);
    } else {
      running.sampled = SampleOnHost(rows, Array(*logits), sample);
      std::vector<TokenId> ids;
      for (const Sampled& s : running.sampled) ids.push_back(s.token);
      tokens = Vector(ids);
    }
    for (size_t i = 0; i < rows.logits.size(); ++i)
      slots_.at(rows.slot[size_t(rows.logits[i])]).last = LastToken{tokens, int(i)};
    Count(running, rows);
    return running;
  });
}

// Counts a step as uncollected in its slots.
void MlxBackend::Count(Running& running, const Rows& rows) {
  for (SlotId slot : rows.slot)
    if (running.slots.empty() || running.slots.back() != slot) running.slots.push_back(slot);
  for (SlotId slot : running.slots) ++slots_.at(slot).under_way;
}

std::vector<Sampled> MlxBackend::Finish(Running running) {
  for (SlotId slot : running.slots)
    if (const auto it = slots_.find(slot); it != slots_.end() && it->second.under_way > 0)
      --it->second.under_way;
  if (running.failures != failures_)
    throw Fail(ErrorKind::kDevice, "mlx: an earlier step failed, so this one failed too");
  if (!running.pending) return std::move(running.sampled);
  OnDevice(running.slots, [&] {
    running.pending->eval();
    CheckStream();
  });
  if (!running.chosen) return {};
  const int32_t* report = running.pending->data<int32_t>();
  std::vector<Sampled> sampled(static_cast<size_t>(running.pending->shape(0)));
  for (Sampled& s : sampled) {
    s.token = *report++;
    s.logprob = std::bit_cast<float>(*report++);
    if (s.token < 0 || s.token >= Spec().vocab || !std::isfinite(s.logprob))
      throw Fail(ErrorKind::kDevice, "mlx: a logit is not a number; with f16 activations, try bf16 or f32");
  }
  return sampled;
}

std::vector<Sampled> MlxBackend::SampleOnHost(const Rows& rows, const mx::array& logits,
                                              std::span<const SampleSpec> sample) {
  const std::vector<float> values = ReadFloats(logits);
  const std::vector<TokenId> ids = ReadInts(ids_);
  const size_t vocab = size_t(Spec().vocab);
  std::vector<Sampled> sampled;
  for (size_t i = 0; i < sample.size(); ++i) {
    const auto row = size_t(rows.logits[i]);
    // The host has not seen what it sent as kLastSampled.
    const std::span<const TokenId> unseen(&ids[row], rows.ids[row] == kLastSampled ? size_t(1) : size_t(0));
    sampled.push_back(sampler_.Sample(std::span(values).subspan(i * vocab, vocab), sample[i], unseen));
  }
  return sampled;
}

std::span<const float> MlxBackend::ReadLogits(const Tensor& logits) {
  OnDevice(step_slots_, [&] { logits_ = ReadFloats(Array(logits)); });
  return logits_;
}

}  // namespace pd
