// A disk cache of compiled models: a package is compiled once per system, by any process.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "coreml/runtime/core_ml.h"
#include "coreml/runtime/engagement.h"
#include "coreml/runtime/status.h"

namespace pd {

// What a compiled model depends on. A system update gives another key, so the package is compiled again.
struct CompiledKey {
  std::string package;         // the package's name in its bundle, for human readers
  uint64_t content = 0;        // digest of the package's files
  std::string os_build;        // "24A335"
  std::string machine;         // "Mac16,1"
  std::string Folder() const;  // a folder name, different for different keys
};

// What is known of one function on this system; stored beside the compiled model.
struct FunctionVerdict {
  bool tried = false;    // its first prediction succeeded, in a separate process
  bool audited = false;  // Core ML gave a plan, which sets the next two
  double share_of_ops = 0, share_of_cost = 0;
  std::optional<Engagement> engagement;  // set once measured
  std::string refused;                   // not empty: why it must not be used, in one sentence
};

// An entry: its folder, protected from eviction while this object lives. A model that could not be put into
// the cache is in a temporary folder, which the destructor removes.
class CompiledModel {
 public:
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;
  ~CompiledModel();

  const std::filesystem::path& path() const { return path_; }  // of the .mlmodelc
  bool kept() const { return !entry_.empty(); }                // in the cache: the next process finds it
  const std::string& why_not_kept() const { return why_not_kept_; }
  bool found() const { return found_; }  // compiled earlier

  // What is known of a function; nullopt if nothing is known or the record cannot be read.
  std::optional<FunctionVerdict> Verdict(const std::string& function) const;
  // Never fails: a verdict that cannot be written is determined again.
  void SetVerdict(const std::string& function, const FunctionVerdict& verdict) const;

 private:
  friend class CompiledCache;
  CompiledModel() = default;
  std::filesystem::path path_, entry_, temporary_;
  std::string why_not_kept_;
  bool found_ = false;
  int lock_ = -1;  // descriptor of a shared lock
  mutable std::mutex mutex_;
  mutable std::map<std::string, FunctionVerdict> verdicts_;  // determined by this process
};

// Any thread and any process may use it; each entry has its own lock (flock).
class CompiledCache {
 public:
  // Compiles into a temporary folder: CoreMl::Compile of the package.
  using Compiler = std::function<Status(std::filesystem::path* compiled)>;

  // With an empty folder nothing is kept. `most_bytes`: size limit; entries in use and the newest are kept
  // even beyond it.
  CompiledCache(std::filesystem::path folder, int64_t most_bytes);

  // The entry of `key`; compiles it if it is missing, incomplete, or `anew`. Waits for another process that
  // is compiling it. Removes entries of the same package for earlier systems of this machine, then the least
  // recently used ones until all fit. An unwritable folder is not a failure: the model is then used where it
  // was compiled, and why_not_kept says so. Fails as the compiler does, and with kCancelled.
  Status Get(const CompiledKey& key, bool anew, const CancelCheck& cancelled, const Compiler& compile,
             std::shared_ptr<const CompiledModel>* model) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int64_t most_bytes_;
};

}  // namespace pd
