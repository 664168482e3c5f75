#include "serving/engine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace pd {

Engine::Engine(ModelSpec spec, EngineDevices devices, EngineOptions options)
    : spec_(std::move(spec)), options_(std::move(options)), decode_info_(devices.decode->Info()) {
  SchedulerOptions scheduling;
  scheduling.decode_name = decode_info_.name;
  scheduling.max_rows = decode_info_.max_rows;
  scheduling.runs_ahead = decode_info_.runs_ahead;
  const auto bytes_of = [this](const DeviceInfo& info) -> SequenceBytes {
    return [this, format = info.memory](int tokens) { return MemoryBytes(spec_, format, tokens); };
  };
  scheduling.slot_bytes = bytes_of(decode_info_);
  scheduling.even_slots = decode_info_.even_slots;
  scheduling.kv_limit = options_.kv_limit;
  scheduling.max_queued = options_.max_queued;
  scheduling.max_running = options_.max_running;
  scheduling.choose = options_.choose;

  std::vector<PhysicalDevice> physical;  // by lane
  std::vector<LaneDevices> on_lane(devices.prefill.size() + 1);
  scheduling.decode_lane = LaneOf(decode_info_.physical, physical);
  on_lane[size_t(scheduling.decode_lane)].decode = std::move(devices.decode);
  for (size_t unit = 0; unit < devices.prefill.size(); ++unit) {
    std::unique_ptr<PrefillDevice>& device = devices.prefill[unit];
    const DeviceInfo& info = prefill_info_.emplace_back(device->Info());
    const LaneId lane = LaneOf(info.physical, physical);
    scheduling.prefill.push_back(
        {info.name, lane, [d = device.get()](int first) { return d->Reach(first); }, bytes_of(info)});
    on_lane[size_t(lane)].prefill[unit] = std::move(device);
  }
  lane_count_ = scheduling.lanes = int(physical.size());
  energy_ = EnergyLedger(options_.meters, physical);
  running_.resize(physical.size());

  for (LaneId id = 0; id < lane_count_; ++id)
    lanes_.push_back(std::make_unique<Lane>(spec_, std::move(on_lane[size_t(id)]),
                                            Lane::Options{id, physical[size_t(id)], options_.leave_lane},
                                            [this](Done done) { inbox_.Push(std::move(done)); }));
  if (options_.prefix_cache_bytes > 0) {
    const bool stores = !options_.disk_cache.empty();
    cache_ = std::make_unique<PrefixCache>(spec_, options_.prefix_cache_bytes, stores);
    scheduling.cache = cache_.get();
    if (stores)
      disk_ = std::make_unique<DiskCache>(
          PrefixStore(options_.disk_cache, spec_, CacheIdentity(), options_.disk_cache_bytes),
          [this](DiskResult result) { inbox_.Push(std::move(result)); });
  }
  thread_ = std::thread([this, scheduling = std::move(scheduling)] { Work(scheduling); });
}

// Keys and values of a text come from any device of the engine, and later ones follow from earlier ones. So
// what is on disk is used by engines of the same devices only.
KvIdentity Engine::CacheIdentity() const {
  KvIdentity id = decode_info_.kv_id;
  std::set<uint64_t> computed = {id.computed};
  for (const DeviceInfo& info : prefill_info_) computed.insert(info.kv_id.computed);
  if (computed.size() > 1) id.computed = ComputedBy(fmt::format("{:x}", fmt::join(computed, " ")));
  return id;
}

Engine::~Engine() { Stop(false); }

RequestId Engine::Submit(Request request, EventSink sink) {
  Submission submission{nullptr, PlanRequest(spec_, request), std::move(sink), next_id_++};
  submission.request = std::make_shared<const Request>(std::move(request));
  const RequestId id = submission.id;
  if (stopped_ || !inbox_.Push(std::move(submission)))
    throw Fail(ErrorKind::kCancelled, "the engine is shutting down");
  return id;
}

void Engine::Cancel(RequestId id) { inbox_.Push(Cancelled{id}); }

void Engine::Stop(bool finish) {
  if (!thread_.joinable()) return;
  stopped_ = true;
  inbox_.Push(StopAll{finish});
  thread_.join();
  lanes_.clear();
  disk_.reset();  // once everything is written
}

double Engine::Now() const {
  return std::chrono::duration<double, std::milli>(Clock::now() - start_).count();
}

void Engine::Work(SchedulerOptions options) {
  Scheduler scheduler(std::move(options));
  if (disk_) {
    for (PrefixStore::Entry& entry : disk_->TakeFound())
      cache_->InsertStored(entry.tokens, entry.first, entry.variant, std::move(entry.run));
    Warn(disk_->TakeFoundWarnings());
  }
  while (!stopping_ || !scheduler.idle() || !loading_.empty()) {
    std::optional<Message> message;
    if (const auto timeout = scheduler.NextTimeout()) {
      message = inbox_.PopUntil(start_ + std::chrono::microseconds(int64_t(*timeout * 1000) + 1));
    } else {
      message = inbox_.Pop();
    }
    scheduler.On(Tick{Now()});
    if (message) std::visit([&](auto& m) { Take(std::move(m), scheduler); }, *message);
    Say(scheduler);
    for (const auto& lane : lanes_)
      if (auto job = scheduler.Next(LaneId(&lane - lanes_.data())))
        Post(LaneId(&lane - lanes_.data()), std::move(*job));
    if (disk_)
      for (PrefixCache::New& run : cache_->TakeNew()) disk_->Write(std::move(run));
  }
  for (Message& late : inbox_.Close())
    if (auto* submission = std::get_if<Submission>(&late))
      submission->sink.end({{}, FinishReason::kCancelled, {}, {}});
}

void Engine::Take(Submission submission, Scheduler& scheduler) {
  if (disk_) return LookOnDisk(std::move(submission), scheduler);
  Arrive(std::move(submission), scheduler);
}

// Cached keys and values that are only on disk are loaded before the request arrives: no lane waits for a
// disk.
void Engine::LookOnDisk(Submission submission, Scheduler& scheduler) {
  const std::span tokens(submission.request->prompt.data(), submission.request->prompt.size() - 1);
  auto runs = cache_->Unloaded(tokens, submission.plan.variant);
  if (runs.empty()) return Arrive(std::move(submission), scheduler);
  const RequestId id = submission.id;
  loading_[id] = std::move(submission);
  disk_->Load(id, std::move(runs));
}

void Engine::Arrive(Submission submission, Scheduler& scheduler) {
  readers_[submission.id].sink = std::move(submission.sink);
  scheduler.On(Arrived{submission.id, std::move(submission.request), submission.plan});
  if (stopping_ && !finishing_) scheduler.On(Cancelled{submission.id});
}

void Engine::Take(const Cancelled& cancelled, Scheduler& scheduler) {
  if (const auto at = loading_.find(cancelled.request); at != loading_.end()) {
    Submission submission = std::move(at->second);
    loading_.erase(at);
    submission.sink.end({{}, FinishReason::kCancelled, {}, {}});
  }
  scheduler.On(cancelled);
}

void Engine::Take(DiskResult result, Scheduler& scheduler) {
  Warn(result.warnings);
  if (result.written) cache_->Stored(result.written->run, result.written->stored);
  for (const auto& [run, segment] : result.loaded) cache_->Loaded(run, segment);
  if (const auto at = loading_.find(result.request); at != loading_.end()) {
    Submission submission = std::move(at->second);
    loading_.erase(at);
    Arrive(std::move(submission), scheduler);
  }
}

void Engine::Warn(const std::vector<std::string>& warnings) const {
  if (!options_.warn) return;
  for (const std::string& warning : warnings) options_.warn(warning);
}

void Engine::Take(const Done& done, Scheduler& scheduler) {
  energy_.End(size_t(done.lane), std::holds_alternative<Failure>(done.result));
  if (options_.observe) {
    Span span = running_[size_t(done.lane)];
    span.end_ms = Now();
    span.begin_ms = span.end_ms - done.ms;
    options_.observe(span);
  }
  scheduler.On(done);
}

void Engine::Post(LaneId lane, Job job) {
  if (options_.observe) running_[size_t(lane)] = {lane, KindOf(job), RequestOf(job), 0, 0};
  energy_.Begin(size_t(lane), job);
  lanes_[size_t(lane)]->Post(std::move(job));
}

void Engine::Take(const StopAll& stop, Scheduler& scheduler) {
  stopping_ = true;
  finishing_ = stop.finish;
  if (stop.finish) return;
  std::vector<RequestId> ids;
  for (const auto& [id, reader] : readers_) ids.push_back(id);
  for (const auto& [id, submission] : loading_) ids.push_back(id);
  for (RequestId id : ids) Take(Cancelled{id}, scheduler);
}

// Readers that want no more tokens must stop their requests before the scheduler is asked for jobs.
void Engine::Say(Scheduler& scheduler) {
  for (auto notices = scheduler.TakeNotices(); !notices.empty(); notices = scheduler.TakeNotices())
    for (Notice& notice : notices) {
      if (const auto* token = std::get_if<TokenOut>(&notice)) SayToken(*token, scheduler);
      if (auto* ended = std::get_if<Ended>(&notice)) SayEnd(std::move(*ended));
      if (const auto* warned = std::get_if<Warned>(&notice)) Warn({warned->message});
    }
}

void Engine::SayToken(const TokenOut& token, Scheduler& scheduler) {
  Reader& reader = readers_.at(token.request);
  if (!reader.sink.token || reader.enough) return;
  try {
    reader.enough = !reader.sink.token(token.sampled);
  } catch (...) {
    reader.enough = true;
    reader.failure = CurrentFailure();
  }
  if (reader.enough) scheduler.On(Stopped{token.request, reader.failure});
}

void Engine::SayEnd(Ended ended) {
  const auto at = readers_.find(ended.request);
  const Reader reader = std::move(at->second);
  readers_.erase(at);
  // The last token may have ended it with kLength at the same time.
  if (reader.enough && ended.result.finish == FinishReason::kLength)
    ended.result.finish = FinishReason::kStop;
  energy_.Take(ended.request, ended.result.stats);
  if (reader.failure) {
    ended.result.finish = FinishReason::kError;
    ended.result.failure = *reader.failure;
  }
  reader.sink.end(std::move(ended.result));
}

}  // namespace pd
