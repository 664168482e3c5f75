// The disk below a prefix cache: a thread of its own, so that nobody else waits for it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/queue.h"
#include "engine/request.h"
#include "kv/prefix_cache.h"
#include "kv/prefix_store.h"

namespace pd {

// What the disk has done.
struct DiskResult {
  RequestId request = 0;  // that asked for `loaded`; 0: none
  // Absent segments could not be read.
  std::vector<std::pair<std::shared_ptr<const StoredRun>, std::optional<KvSegment>>> loaded;
  struct Written {
    PrefixCache::New run;
    std::shared_ptr<const StoredRun> stored;
  };
  std::optional<Written> written;
  std::vector<std::string> warnings;
};

// Called by one thread.
class DiskCache {
 public:
  // Looks through the folder before it returns. `report` is called on the thread of the disk.
  DiskCache(PrefixStore store, std::function<void(DiskResult)> report);
  ~DiskCache();  // when all is written
  DiskCache(const DiskCache&) = delete;
  DiskCache& operator=(const DiskCache&) = delete;

  // What was there at the beginning.
  std::vector<PrefixStore::Entry> TakeFound() { return std::move(found_); }
  std::vector<std::string> TakeFoundWarnings() { return std::move(found_warnings_); }

  void Load(RequestId request, std::vector<std::shared_ptr<const StoredRun>> runs);
  // Not done when too many wait: the run stays in memory only.
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
