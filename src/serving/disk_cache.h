// The disk tier of a prefix cache, on a thread of its own, so that no other thread waits for the disk.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "kv/prefix_cache.h"
#include "kv/prefix_store.h"
#include "serving/queue.h"
#include "serving/request.h"

namespace pd {

// The result of one load or write.
struct DiskResult {
  RequestId request = 0;  // that waits for `loaded`; 0: none
  // nullopt: the run could not be read.
  std::vector<std::pair<std::shared_ptr<const StoredRun>, std::optional<KvSegment>>> loaded;
  struct Written {
    PrefixCache::New run;
    std::shared_ptr<const StoredRun> stored;
  };
  std::optional<Written> written;
  std::vector<std::string> warnings;
};

// Not thread-safe.
class DiskCache {
 public:
  // Scans the folder. `report` is called on the disk's thread and must not throw.
  DiskCache(PrefixStore store, std::function<void(DiskResult)> report);
  ~DiskCache();  // waits until everything is written
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // What the scan found.
  std::vector<PrefixStore::Entry> TakeFound() { return std::move(found_); }
  std::vector<std::string> TakeFoundWarnings() { return std::move(found_warnings_); }

  void Load(RequestId request, std::vector<std::shared_ptr<const StoredRun>> runs);
  // Ignored when too many writes wait: then the run stays in memory only.
  void Write(PrefixCache::New run);

 private:
  struct LoadJob {
    RequestId request = 0;
    std::vector<std::shared_ptr<const StoredRun>> runs;
  };
  struct End {};
  using DiskJob = std::variant<LoadJob, PrefixCache::New, End>;

  void Work(PrefixStore store, const std::function<void(DiskResult)>& report);

  std::vector<PrefixStore::Entry> found_;
  std::vector<std::string> found_warnings_;
  Queue<DiskJob> jobs_;
  std::thread thread_;
};

}  // namespace pd
