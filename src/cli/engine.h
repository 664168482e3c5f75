// The engine that a command works with: its flags, and how it is opened.
#pragma once
#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/interrupt.h"
#include "engine/engine.h"
#include "formats/model_source.h"
#include "open/open.h"

namespace pd::cli {

struct EngineFlags {
  std::string prefill = "auto", decode = "cpu";
  std::string bundle;  // that device coreml runs; empty: where 'export' puts the model's
  int quantise_bits = 0;
  int prefill_chunk = 512;
  int threads = 0, prefill_threads = 0, decode_threads = 0;
  int prefix_cache_mb = 1024, prefix_cache_disk_mb = 4096;
  std::string prefix_cache_folder;  // empty: no disk tier
};

// A command adds the groups that it heeds, for a flag that changes nothing must be refused.
// Who reads prompts, and in what portions: --prefill, --prefill-chunk.
void AddPrefillFlags(CLI::App& command, EngineFlags& flags);
// How devices are opened: --ane, --decode, --quantize, --threads, --prefill-threads, --decode-threads.
void AddDeviceFlags(CLI::App& command, EngineFlags& flags);
// What is kept of prompts: --prefix-cache-dir, --prefix-cache-mb, --prefix-cache-dir-mb.
void AddPrefixCacheFlags(CLI::App& command, EngineFlags& flags);

// Before anything is loaded. Throws kBadRequest, kUnsupported.
void CheckEngineFlags(const EngineFlags& flags);

// The exported model that device coreml would run, if there is one: that of --ane, or where 'export' puts it.
std::optional<std::filesystem::path> FindBundle(const std::string& bundle, ModelSource& model);

// With a bundle when `prefill` names coreml; throws kNotFound when the model was not exported.
OpenOptions ToOpenOptions(const EngineFlags& flags, ModelSource& model, std::span<const std::string> prefill);

// Loads the model behind a progress bar, unless `quiet`. Throws kOutOfMemory when devices and sequences of
// `tokens` tokens in all do not fit, kCancelled on Ctrl-C, and what opening throws. At most `parallel`
// requests run at a time; what the prefix cache ignores, and unless `quiet` what loading did to the weights,
// is said on standard error. `observe`: EngineOptions::observe.
std::unique_ptr<Engine> OpenEngine(const EngineFlags& flags, ModelSource& model, int tokens, bool quiet,
                                   const Interrupt& interrupt, int parallel = 1,
                                   std::function<void(const Span&)> observe = {});

}  // namespace pd::cli
