// Compiled models on disk, so that a package is compiled once: by any process, for one system.
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

// What a compiled model depends on. An update of the system is another key: its entry is compiled anew.
struct CompiledKey {
  std::string package;         // the package's name in its bundle, to be read by people
  uint64_t content = 0;        // digest of the package's files
  std::string os_build;        // "24A335"
  std::string machine;         // "Mac16,1"
  std::string Folder() const;  // a name for a folder, different for different keys
};

// What was learnt of one function on this system; kept beside the compiled model.
struct FunctionVerdict {
  bool tried = false;    // its first prediction ended well, in a process of its own
  bool audited = false;  // Core ML gave a plan, and the next two are of it
  double share_of_ops = 0, share_of_cost = 0;
  std::optional<Engagement> engagement;  // when it was measured
  std::string refused;                   // not empty: why it must not be used, in a sentence
};

// An entry: its folder, kept from eviction while this object lives. A model that could not be put into the
// cache lives in a temporary folder, and goes with this object.
class CompiledModel {
 public:
  CompiledModel(const CompiledModel&) = delete;
  CompiledModel& operator=(const CompiledModel&) = delete;
  ~CompiledModel();

  const std::filesystem::path& path() const { return path_; }  // of the .mlmodelc
  bool kept() const { return !entry_.empty(); }                // in the cache: the next process finds it
  const std::string& why_not_kept() const { return why_not_kept_; }
  bool found() const { return found_; }  // compiled earlier

  // What is known of a function; nothing when nobody looked yet, or what is written there cannot be read.
  std::optional<FunctionVerdict> Verdict(const std::string& function) const;
  // Never fails: a verdict that cannot be written is found out again.
  void SetVerdict(const std::string& function, const FunctionVerdict& verdict) const;

 private:
  friend class CompiledCache;
  CompiledModel() = default;
  std::filesystem::path path_, entry_, temporary_;
  std::string why_not_kept_;
  bool found_ = false;
  int lock_ = -1;  // descriptor of a shared lock
  mutable std::mutex mutex_;
  mutable std::map<std::string, FunctionVerdict> verdicts_;  // learnt by this process
};

// Any thread and any process; entries are locked one by one with flock.
class CompiledCache {
 public:
  // Compiles into a temporary folder: CoreMl::Compile of the package.
  using Compiler = std::function<Status(std::filesystem::path* compiled)>;

  // An empty folder keeps nothing. `most_bytes`: entries in use and the newest are kept even beyond it.
  CompiledCache(std::filesystem::path folder, int64_t most_bytes);

  // The entry of `key`; compiled if it is absent, incomplete, or `anew`. Waits for another process that is
  // compiling it. Entries of the same package
  // for earlier systems of this machine are removed, then the least recently used
  // until all fit. A folder that cannot be written is no failure: the model is then used where it was
  // compiled, and says so. Fails as the compiler does, and with kCancelled.
  Status Get(const CompiledKey& key, bool anew, const CancelCheck& cancelled, const Compiler& compile,
             std::shared_ptr<const CompiledModel>* model) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  int64_t most_bytes_;
};

}  // namespace pd
