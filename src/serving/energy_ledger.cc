#include "serving/energy_ledger.h"

#include <algorithm>

namespace pd {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr double kNearlyAll = 0.9;
constexpr Seconds kLongStep{3};  // Apple's late counters move every two seconds
// Pauses between two reads of a meter, in multiples of how long the last one took.
constexpr int kPauseInPrefill = 10, kPauseInText = 50;

}  // namespace

EnergyLedger::EnergyLedger(std::vector<std::shared_ptr<PowerMeter>> meters,
                           const std::vector<PhysicalDevice>& lanes, std::function<Time()> now)
    : now_(std::move(now)) {
  for (auto& meter : meters) {
    Meter& added = meters_.emplace_back();
    added.meter = std::move(meter);
    added.seen = now_();
  }
  for (const PhysicalDevice& device : lanes) {
    Lane lane;
    for (size_t i = 0; i < meters_.size() && !lane.meter; ++i) {
      const PhysicalDevice metered = meters_[i].meter->Device();
      if (metered.kind == device.kind && metered.index == device.index) lane.meter = i;
    }
    lanes_.push_back(std::move(lane));
  }
}

EnergyLedger::Owners EnergyLedger::OwnersOf(const Job& job) {
  Owners owners;
  if (const auto* chunk = std::get_if<PrefillChunk>(&job))
    owners.emplace_back(chunk->request, Phase::kPrefill);
  if (const auto* import = std::get_if<ImportSegment>(&job))
    owners.emplace_back(import->request, Phase::kHandoff);
  if (const auto* step = std::get_if<SubmitStep>(&job))
    for (const RequestId request : step->request)
      owners.emplace_back(request, step->sample.empty() ? Phase::kPrefill : Phase::kDecode);
  return owners;
}

void EnergyLedger::Begin(size_t lane, const Job& job) {
  if (meters_.empty()) return;
  Lane& at = lanes_.at(lane);
  const auto* step = std::get_if<SubmitStep>(&job);
  at.submits = step != nullptr;
  at.collects = std::holds_alternative<CollectStep>(job);
  at.long_job = std::holds_alternative<PrefillChunk>(job) || std::holds_alternative<ImportSegment>(job) ||
                (step && step->sample.empty());
  Read(at);
  at.owners = at.collects ? at.steps.front() : OwnersOf(job);
  if (at.submits) at.steps.push_back(at.owners);
  for (const auto& [request, phase] : at.owners)
    if (!at.collects) sums_[request][size_t(phase)].unmetered |= !at.meter;
}

void EnergyLedger::End(size_t lane, bool failed) {
  if (meters_.empty()) return;
  Lane& at = lanes_.at(lane);
  Read(at);
  if (at.collects) at.steps.pop_front();
  if (at.submits && failed) at.steps.pop_back();
  at.owners = at.steps.empty() ? Owners() : at.steps.front();
}

// Reads the lane's meter, and those that have yet to count the work of other lanes.
void EnergyLedger::Read(const Lane& lane) {
  for (size_t i = 0; i < meters_.size(); ++i)
    if (lane.meter == i || !meters_[i].shares.empty())
      Read(i, lane.meter == i && lane.long_job ? kPauseInPrefill : kPauseInText);
}

void EnergyLedger::Read(size_t index, int pause) {
  Meter& meter = meters_[index];
  const Time now = now_();
  if (now < meter.asked + pause * meter.answer_took) return Pass(index, now);
  const std::optional<EnergyReading> reading = meter.meter->Read();
  meter.asked = now_();
  meter.answer_took = meter.asked - now;
  if (!reading || (meter.joules && reading->until <= meter.counted)) return Pass(index, now);

  const Time until = std::clamp(reading->until, meter.seen, now);
  Pass(index, until);
  Count(index, *reading, std::min(reading->until, now));
  Pass(index, now);
}

// Adds the time since `seen` to the owners of what runs now.
void EnergyLedger::Pass(size_t index, Time until) {
  Meter& meter = meters_[index];
  const double seconds = Seconds(until - meter.seen).count();
  meter.seen = until;
  const auto runs = [&](const Lane& lane) { return lane.meter == index && !lane.owners.empty(); };
  const auto lanes = double(std::ranges::count_if(lanes_, runs));
  if (lanes == 0 || seconds <= 0) return;
  meter.busy += seconds;
  for (const Lane& lane : lanes_) {
    if (!runs(lane)) continue;
    const double share = seconds / lanes / double(lane.owners.size());
    for (const Owner& owner : lane.owners) {
      const auto sums = sums_.find(owner.first);
      if (sums == sums_.end()) continue;  // it has ended
      sums->second[size_t(owner.second)].seconds += share;
      meter.shares[owner] += share;
    }
  }
}

void EnergyLedger::Count(size_t index, const EnergyReading& reading, Time until) {
  Meter& meter = meters_[index];
  const double taken =
      meter.joules ? reading.joules - *meter.joules : 0;  // the first reading is only a start
  const Seconds step = until - meter.counted;
  const bool short_step = step <= kLongStep;
  if (taken <= 0 && short_step && !meter.shares.empty()) return;  // the counter may be late
  if (taken > 0 && (short_step || meter.busy >= kNearlyAll * step.count()))
    for (const auto& [owner, seconds] : meter.shares) {
      const auto sums = sums_.find(owner.first);
      if (sums == sums_.end()) continue;
      sums->second[size_t(owner.second)].joules += taken * seconds / meter.busy;
      sums->second[size_t(owner.second)].counted += seconds;
    }
  meter.joules = reading.joules;
  meter.counted = until;
  meter.shares.clear();
  meter.busy = 0;
}

void EnergyLedger::Take(RequestId request, RequestStats& stats) {
  if (meters_.empty()) return;
  const auto waits = [&](const auto& share) { return share.first.first == request; };
  for (size_t i = 0; i < meters_.size(); ++i) {
    if (std::ranges::any_of(meters_[i].shares, waits)) Read(i, 0);
    std::erase_if(meters_[i].shares, waits);
  }

  const auto at = sums_.find(request);
  const std::array<Sums, 3> sums = at == sums_.end() ? std::array<Sums, 3>{} : at->second;
  if (at != sums_.end()) sums_.erase(at);
  const auto of = [&](Phase phase) -> std::optional<double> {
    const Sums& s = sums[size_t(phase)];
    if (s.unmetered || s.counted < kNearlyAll * s.seconds) return std::nullopt;
    return s.counted > 0 ? s.joules * s.seconds / s.counted : 0;
  };
  stats.prefill_joules = of(Phase::kPrefill);
  stats.handoff_joules = of(Phase::kHandoff);
  stats.decode_joules = of(Phase::kDecode);
}

}  // namespace pd
