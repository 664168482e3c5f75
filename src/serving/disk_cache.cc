#include "serving/disk_cache.h"

#include "base/error.h"

namespace pd {
namespace {

// Limit of runs that wait to be written, since they keep their memory.
constexpr size_t kMaxWaiting = 64;

}  // namespace

DiskCache::DiskCache(PrefixStore store, std::function<void(DiskResult)> report)
    : found_(store.Scan()), found_warnings_(store.TakeWarnings()) {
  thread_ = std::thread([this, store = std::move(store), report = std::move(report)]() mutable {
    Work(std::move(store), report);
  });
}

DiskCache::~DiskCache() {
  jobs_.Push(End{});
  thread_.join();
}

void DiskCache::Load(RequestId request, std::vector<std::shared_ptr<const StoredRun>> runs) {
  jobs_.PushFirst(LoadJob{request, std::move(runs)});  // a request waits for it
}

void DiskCache::Write(PrefixCache::New run) {
  if (jobs_.size() < kMaxWaiting) jobs_.Push(std::move(run));
}

void DiskCache::Work(PrefixStore store, const std::function<void(DiskResult)>& report) {
  for (;;) {
    DiskJob job = jobs_.Pop();
    if (std::holds_alternative<End>(job)) return;
    DiskResult result;
    try {
      if (auto* load = std::get_if<LoadJob>(&job)) {
        result.request = load->request;
        for (auto& run : load->runs) result.loaded.emplace_back(run, store.Read(*run));
      } else if (auto* run = std::get_if<PrefixCache::New>(&job)) {
        if (auto stored = store.Write(run->tokens, run->first, run->segment))
          result.written = {std::move(*run), std::move(stored)};
      }
      result.warnings = store.TakeWarnings();
    } catch (...) {  // costs a prefix, never the process
      result.warnings.push_back("the disk cache: " + CurrentFailure().message);
    }
    report(std::move(result));
  }
}

}  // namespace pd
