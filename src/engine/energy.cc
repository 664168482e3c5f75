#include "engine/energy.h"

#include <algorithm>

namespace pd {

EnergyLedger::EnergyLedger(std::vector<std::shared_ptr<PowerMeter>> meters,
                           const std::vector<PhysicalDevice>& lanes) {
  for (auto& meter : meters) meters_.push_back({std::move(meter), std::nullopt});
  for (const PhysicalDevice& device : lanes) {
    Lane lane;
    for (size_t i = 0; i < meters_.size() && !lane.meter; ++i) {
      const PhysicalDevice metered = meters_[i].meter->Device();
      if (metered.kind == device.kind && metered.index == device.index) lane.meter = i;
    }
    lanes_.push_back(std::move(lane));
  }
}

EnergyLedger::Owners EnergyLedger::WhoseIs(const Job& job) {
  Owners whose;
  if (const auto* chunk = std::get_if<PrefillChunk>(&job))
    whose.emplace_back(chunk->request, Phase::kPrefill);
  if (const auto* import = std::get_if<ImportSegment>(&job))
    whose.emplace_back(import->request, Phase::kHandoff);
  if (const auto* step = std::get_if<SubmitStep>(&job))
    for (const RequestId request : step->request)
      whose.emplace_back(request, step->sample.empty() ? Phase::kPrefill : Phase::kDecode);
  return whose;
}

void EnergyLedger::Begin(size_t lane, const Job& job) {
  if (meters_.empty()) return;
  Lane& at = lanes_.at(lane);
  if (at.meter) Read(*at.meter);
  at.submits = std::holds_alternative<SubmitStep>(job);
  at.collects = std::holds_alternative<CollectStep>(job);
  at.whose = at.collects ? at.steps.front() : WhoseIs(job);
  if (at.submits) at.steps.push_back(at.whose);
  for (const auto& [request, phase] : at.whose)
    if (!at.collects) sums_[request].unmetered[size_t(phase)] |= !at.meter;
}

void EnergyLedger::End(size_t lane, bool failed) {
  if (meters_.empty()) return;
  Lane& at = lanes_.at(lane);
  if (at.meter) Read(*at.meter);
  if (at.collects) at.steps.pop_front();
  if (at.submits && failed) at.steps.pop_back();
  at.whose = at.steps.empty() ? Owners() : at.steps.front();
}

void EnergyLedger::Read(size_t index) {
  Meter& meter = meters_[index];
  const std::optional<double> now = meter.meter->Joules();
  const double taken = now && meter.last ? std::max(0.0, *now - *meter.last) : 0;
  if (now) meter.last = now;
  const auto runs = [&](const Lane& lane) { return lane.meter == index && !lane.whose.empty(); };
  const auto busy = double(std::ranges::count_if(lanes_, runs));
  for (const Lane& lane : lanes_) {
    if (!runs(lane)) continue;
    for (const auto& [request, phase] : lane.whose)
      if (const auto sums = sums_.find(request); sums != sums_.end())  // one that has ended is not told
        sums->second.joules[size_t(phase)] += taken / busy / double(lane.whose.size());
  }
}

void EnergyLedger::Take(RequestId request, RequestStats& stats) {
  if (meters_.empty()) return;
  const auto at = sums_.find(request);
  const Sums sums = at == sums_.end() ? Sums{} : at->second;
  if (at != sums_.end()) sums_.erase(at);
  const auto of = [&](Phase phase) {
    return sums.unmetered[size_t(phase)] ? std::nullopt : std::optional(sums.joules[size_t(phase)]);
  };
  stats.prefill_joules = of(Phase::kPrefill);
  stats.handoff_joules = of(Phase::kHandoff);
  stats.decode_joules = of(Phase::kDecode);
}

}  // namespace pd
