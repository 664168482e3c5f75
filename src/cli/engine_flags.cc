#include "cli/engine_flags.h"

#include <climits>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/terminal.h"

namespace pd::cli {

Flag AddModel(const Command& command, std::string& model) {
  return command.Text("-m,--model", model,
                      "a .gguf file or a Hugging Face folder; default: the default model");
}

Flag AddThreads(const Command& command, int& threads) {
  return command.Integer("--threads", threads, {1, 1024}, "threads of a CPU device; default: all processors");
}

Flag AddQuantise(const Command& command, int& bits) {
  return command.Choice<int>(
      "--quantize", bits, {{"none", 0}, {"q4", 4}, {"q8", 8}},
      fmt::format("quantise 16-bit weights at load, on {}", BackendsThat(&BackendInfo::quantises)));
}

Flag AddBundle(const Command& command, std::string& bundle) {
  return command
      .Text("--bundle,--ane", bundle,
            fmt::format("the exported model that device {} runs; default: where 'pd-engine export' puts it",
                        BundleDevice()))
      .ValueName("DIR");
}

Flag AddQuiet(const Command& command, bool& quiet, const std::string& what) {
  return command.Switch("-q,--quiet", quiet, what);
}

Flag AddJson(const Command& command, bool& json) {
  return command.Switch("--json", json, "print one JSON object");
}

void AddPrefillFlags(const Command& command, EngineFlags& flags) {
  command.Text("--prefill", flags.prefill,
               "device that computes the prompt; auto: for each prompt the best of those that 'pd-engine "
               "calibrate' measured");
  command.Integer("--prefill-chunk", flags.prefill_chunk, {1, INT32_MAX},
                  "tokens prefilled and handed over at a time");
}

void AddDeviceFlags(const Command& command, EngineFlags& flags) {
  AddBundle(command, flags.bundle);
  command.Text("--decode", flags.decode, "device that generates");
  AddQuantise(command, flags.quantise_bits);
  AddThreads(command, flags.threads);
  command.Integer("--prefill-threads", flags.prefill_threads, {1, 1024},
                  "processors that only prefill on the CPU uses, so that it runs beside decode");
  command.Integer("--decode-threads", flags.decode_threads, {1, 1024},
                  "likewise for decode; default of either: what the other leaves");
}

PrefixCacheFlags AddPrefixCacheFlags(const Command& command, EngineFlags& flags) {
  PrefixCacheFlags added;
  added.folder = command
                     .Text("--prefix-cache-dir", flags.prefix_cache_folder,
                           "keep keys and values of prompts here, for later runs that begin alike")
                     .ValueName("DIR");
  added.memory = command.Integer(
      "--prefix-cache-mb", flags.prefix_cache_mb, {0, 1 << 20},
      "size limit in MB of keys and values kept in memory for prompts that begin alike; 0: none");
  command
      .Integer("--prefix-cache-dir-mb", flags.prefix_cache_disk_mb, {1, 1 << 24},
               "size limit of --prefix-cache-dir in MB")
      .Needs(added.folder);
  return added;
}

std::string BackendsThat(bool BackendInfo::* property) {
  std::string names;
  for (const BackendInfo& backend : Backends())
    if (backend.*property) names += (names.empty() ? "" : ", ") + backend.name;
  return names;
}

bool AnyBackend(std::span<const std::string> names, bool BackendInfo::* property) {
  for (const std::string& name : names)
    if (const BackendInfo* backend = FindBackend(name); backend && backend->*property) return true;
  return false;
}

void CheckEngineFlags(const EngineFlags& flags) {
  CheckDevices(ToSettings(flags));
  const std::string used[] = {flags.prefill, flags.decode};
  if (!flags.bundle.empty() && flags.prefill != kAuto && !AnyBackend({used, 1}, &BackendInfo::needs_bundle))
    throw Fail(ErrorKind::kBadRequest, "--bundle: only --prefill {} runs a bundle", BundleDevice());
  if (flags.quantise_bits != 0 && !AnyBackend(used, &BackendInfo::quantises))
    throw Fail(ErrorKind::kBadRequest, "--quantize: only {0} quantises at load; add --decode {0}",
               BackendsThat(&BackendInfo::quantises));
  if (!flags.prefix_cache_folder.empty() && flags.prefix_cache_mb == 0)
    throw Fail(ErrorKind::kBadRequest, "--prefix-cache-dir: it needs --prefix-cache-mb above 0");
  if (flags.threads > 0 && flags.prefill_threads + flags.decode_threads > 0)
    throw Fail(ErrorKind::kBadRequest,
               "--threads: --prefill-threads and --decode-threads say how many; leave it out");
}

DeviceSettings ToSettings(const EngineFlags& flags) {
  return {.prefill = flags.prefill,
          .decode = flags.decode,
          .bundle = flags.bundle,
          .quantise_bits = flags.quantise_bits,
          .threads = flags.threads,
          .prefill_threads = flags.prefill_threads,
          .decode_threads = flags.decode_threads,
          .cache = CacheFolder(),
          .trial_arguments = {kTrialCommand}};
}

BundleRuntime RuntimeOfBundles(const Interrupt& interrupt) {
  BundleRuntime runtime;
  if (const auto cache = CacheFolder()) runtime.compiled = *cache / "compiled";
  runtime.trial_arguments = {kTrialCommand};
  runtime.cancelled = [&interrupt] { return interrupt.flag().load(); };
  return runtime;
}

std::unique_ptr<Engine> LoadEngine(const EngineFlags& flags, ModelSource& model, int tokens, bool quiet,
                                   const Interrupt& interrupt, int parallel,
                                   std::function<void(const Span&)> observe) {
  EngineSettings settings;
  settings.devices = ToSettings(flags);
  settings.tokens = tokens;
  settings.max_running = parallel;
  settings.max_queued = INT_MAX;  // the commands submit no more than they want to wait for
  settings.prefix_cache_bytes = size_t(flags.prefix_cache_mb) << 20;
  settings.prefix_folder = flags.prefix_cache_folder;
  settings.prefix_disk_bytes = size_t(flags.prefix_cache_disk_mb) << 20;

  ProgressBar bar("loading", !quiet);
  EngineHooks hooks;
  hooks.progress = [&](size_t done, size_t total) {
    interrupt.Check();
    bar.Show(done, total);
  };
  hooks.cancelled = [&interrupt] { return interrupt.flag().load(); };
  if (!quiet) hooks.note = [](const std::string& sentence) { Report(sentence + "\n"); };
  hooks.warn = [](const std::string& line) { Report(fmt::format("pd-engine: {}\n", line)); };
  hooks.observe = std::move(observe);
  return OpenEngine(model, settings, hooks);
}

}  // namespace pd::cli
