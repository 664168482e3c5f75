#include "engine/lane.h"

#include <numeric>
#include <utility>

#include "base/cores.h"

namespace pd {

JobResult LaneWorker::Run(const Job& job) {
  try {
    return std::visit([this](const auto& j) { return Do(j); }, job);
  } catch (...) {
    return CurrentFailure();
  }
}

JobResult LaneWorker::Do(const OpenSlot& job) { return devices_.decode->Open(job.capacity, job.variant); }

JobResult LaneWorker::Do(const PrefillChunk& job) {
  PrefillDevice& device = *devices_.prefill.at(job.unit);
  if (job.begin) {
    if (const auto reason = device.Refuses(job.begin->variant))
      throw Fail(ErrorKind::kUnsupported, "{} cannot prefill this request: {}", device.Info().name, *reason);
    sessions_[job.request] = device.Begin(job.begin->capacity, job.begin->variant, job.begin->prefix);
  }
  const auto tokens = std::span(job.of->prompt).subspan(size_t(job.first), size_t(job.count));
  Chunk chunk{sessions_.at(job.request)->Run(tokens, job.first), 0};
  chunk.bytes = chunk.segment.bytes(spec_);
  if (job.compact) chunk.segment = Compact(chunk.segment, spec_);
  return chunk;
}

JobResult LaneWorker::Do(const EndPrefill& job) {
  sessions_.erase(job.request);
  return {};
}

JobResult LaneWorker::Do(const ImportSegment& job) {
  devices_.decode->Import(job.slot, job.segment);
  return {};
}

JobResult LaneWorker::Do(const SubmitStep& job) {
  std::vector<SampleSpec> samples;
  for (const SubmitStep::Sampling& sampling : job.sample) {
    SampleSpec& spec = samples.emplace_back(sampling.spec);
    spec.bias = sampling.of->bias;
    spec.penalties.context = sampling.context;
    if (!sampling.context.empty()) spec.penalties.prompt_tokens = int(sampling.of->prompt.size());
  }
  std::vector<int32_t> logits(samples.size());
  std::iota(logits.begin(), logits.end(), 0);
  uncollected_.push_back(devices_.decode->Submit({{job.ids, job.pos, job.slot, logits}, samples}));
  return {};
}

JobResult LaneWorker::Do(const CollectStep&) {
  const StepId step = uncollected_.front();
  uncollected_.pop_front();
  return devices_.decode->Collect(step);
}

JobResult LaneWorker::Do(const ExportSegment& job) {
  Chunk chunk{Compact(devices_.decode->Export(job.slot, job.first, job.count), spec_), 0};
  chunk.bytes = chunk.segment.bytes(spec_);
  return chunk;
}

JobResult LaneWorker::Do(const TruncateSlot& job) {
  devices_.decode->Truncate(job.slot, job.count);
  return {};
}

JobResult LaneWorker::Do(const CloseSlot& job) {
  devices_.decode->Close(job.slot);
  return {};
}

Lane::Lane(const ModelSpec& spec, LaneDevices devices, Options options, std::function<void(Done)> report) {
  thread_ = std::thread([this, worker = LaneWorker(spec, std::move(devices)), options = std::move(options),
                         report = std::move(report)]() mutable { Work(std::move(worker), options, report); });
}

Lane::~Lane() {
  PD_CHECK(jobs_.Push(std::nullopt));
  thread_.join();
}

void Lane::Post(Job job) { PD_CHECK(jobs_.Push(std::move(job))); }

void Lane::Work(LaneWorker worker, const Options& options, const std::function<void(Done)>& report) {
  BindThisThread(options.cores);
  {
    LaneWorker mine = std::move(worker);
    while (const std::optional<Job> job = jobs_.Pop()) {
      const auto start = std::chrono::steady_clock::now();
      JobResult result = mine.Run(*job);
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
      report({options.id, std::move(result), time.count()});
    }
  }
  if (options.last) options.last();
}

}  // namespace pd
