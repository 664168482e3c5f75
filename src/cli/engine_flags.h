// Flags that say which devices a command uses and how, and what follows from them for the commands that share
// them.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "session/open_engine.h"

namespace pd::cli {

struct EngineFlags {
  std::string prefill = kAuto, decode = kDefaultDevice;
  std::string bundle;  // empty: where 'export' puts the model's
  int quantise_bits = 0;
  int prefill_chunk = 512;
  int threads = 0, prefill_threads = 0, decode_threads = 0;
  int prefix_cache_mb = 1024, prefix_cache_disk_mb = 4096;
  std::string prefix_cache_folder;  // empty: no disk tier
};

// A command adds only the groups it uses: a flag without effect must be refused.
Flag AddModel(const Command& command, std::string& model);    // -m,--model
Flag AddThreads(const Command& command, int& threads);        // --threads
Flag AddQuantise(const Command& command, int& bits);          // --quantize
Flag AddBundle(const Command& command, std::string& bundle);  // --bundle, and its alias --ane
Flag AddQuiet(const Command& command, bool& quiet, const std::string& what);
Flag AddJson(const Command& command, bool& json);
// What reads prompts, and in what portions: --prefill, --prefill-chunk.
void AddPrefillFlags(const Command& command, EngineFlags& flags);
// How devices are opened: --bundle, --decode, --quantize, --threads, --prefill-threads, --decode-threads.
void AddDeviceFlags(const Command& command, EngineFlags& flags);
// What is kept of prompts: --prefix-cache-dir, --prefix-cache-mb, --prefix-cache-dir-mb.
struct PrefixCacheFlags {
  Flag folder, memory;
};
PrefixCacheFlags AddPrefixCacheFlags(const Command& command, EngineFlags& flags);

// Before anything is loaded. Throws kBadRequest, kUnsupported.
void CheckEngineFlags(const EngineFlags& flags);

// Names of backends that have a property, for messages and checks: "mlx", or "a, b".
std::string BackendsThat(bool BackendInfo::* property);
// Whether one of these devices has it.
bool AnyBackend(std::span<const std::string> names, bool BackendInfo::* property);

DeviceSettings ToSettings(const EngineFlags& flags);

// How this program runs bundles: compiled programs in the cache folder, first predictions in a process of its
// own, given up on Ctrl-C.
BundleRuntime RuntimeOfBundles(const Interrupt& interrupt);

// Loads the model behind a progress bar, unless `quiet`. Throws what OpenEngine throws, and kCancelled on
// Ctrl-C. At most `parallel` requests run at a time. Warnings, and unless `quiet` notes, go to standard
// error.
std::unique_ptr<Engine> LoadEngine(const EngineFlags& flags, ModelSource& model, int tokens, bool quiet,
                                   const Interrupt& interrupt, int parallel = 1,
                                   std::function<void(const Span&)> observe = {});

}  // namespace pd::cli
