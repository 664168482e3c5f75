#include "cli/engine.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <utility>

#include "cli/ane.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/prefill_setup.h"
#include "cli/terminal.h"
#include "coreml/export/bundle.h"
#include "open/memory.h"

namespace pd::cli {
namespace {

constexpr const char* kCoreMl = "coreml";  // the device whose weights are a bundle

// The exported model that device coreml runs.
std::filesystem::path BundleFor(const EngineFlags& flags, ModelSource& model) {
  if (auto path = FindBundle(flags.bundle, model)) return *path;
  FailNotExported("--prefill", model);
}

// Bytes for keys and values: three quarters of what is left, of the processor's memory or of a device's own,
// whichever is less. The rest is for whatever else runs.
size_t RoomForKv(std::span<const std::string> devices, const EngineFlags& flags, ModelSource& model,
                 size_t prefix_cache_bytes) {
  const size_t available = AvailableMemory();
  size_t room = available - std::min(available, prefix_cache_bytes);
  for (const std::string& device : devices) {
    const MemoryNeed need = EstimateMemory(model, device, flags.quantise_bits);
    if (!need.own_memory) continue;
    room = std::min(room, *need.own_memory - std::min(*need.own_memory, need.weights + need.activations));
  }
  return room / 4 * 3;
}

}  // namespace

std::optional<std::filesystem::path> FindBundle(const std::string& bundle, ModelSource& model) {
  if (!bundle.empty()) return bundle;
  if (!AnyBundle(model)) return std::nullopt;  // the path takes a look at all of the weights
  std::filesystem::path path = DefaultBundlePath(model);
  if (!std::filesystem::exists(path / kBundleFile)) return std::nullopt;
  return path;
}

void AddPrefillFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--prefill", flags.prefill,
                  "device that computes the prompt; auto: for each prompt the best of those that 'pd-engine "
                  "calibrate' measured")
      ->capture_default_str();
  AddInteger(command, "--prefill-chunk", flags.prefill_chunk, {1, INT32_MAX},
             "tokens prefilled and handed over at a time")
      ->default_str("512");
}

void AddDeviceFlags(CLI::App& command, EngineFlags& flags) {
  command
      .add_option("--ane", flags.bundle,
                  "the exported model that device coreml runs; default: where 'pd-engine export' puts it")
      ->type_name("DIR");
  command.add_option("--decode", flags.decode, "device that generates")->capture_default_str();
  AddChoice<int>(command, "--quantize", flags.quantise_bits, {{"none", 0}, {"q4", 4}, {"q8", 8}},
                 "quantise at load what mlx would hold in 16 bits");
  AddInteger(command, "--threads", flags.threads, {1, 1024},
             "threads of a CPU device; default: all processors");
  AddInteger(command, "--prefill-threads", flags.prefill_threads, {1, 1024},
             "processors that only prefill on the CPU uses, so that it runs beside decode");
  AddInteger(command, "--decode-threads", flags.decode_threads, {1, 1024},
             "likewise for decode; default of one: what the other leaves");
}

void AddPrefixCacheFlags(CLI::App& command, EngineFlags& flags) {
  CLI::Option* folder =
      command
          .add_option("--prefix-cache-dir", flags.prefix_cache_folder,
                      "keep keys and values of prompts here, for later runs that begin alike")
          ->type_name("DIR");
  AddInteger(command, "--prefix-cache-mb", flags.prefix_cache_mb, {0, 1 << 20},
             "memory for keys and values of prompts that later ones may begin with; 0: none")
      ->default_str("1024");
  AddInteger(command, "--prefix-cache-dir-mb", flags.prefix_cache_disk_mb, {1, 1 << 24},
             "what --prefix-cache-dir may come to")
      ->default_str("4096")
      ->needs(folder);
}

void CheckEngineFlags(const EngineFlags& flags) {
  if (flags.prefill != kAuto) CheckPrefillDeviceName(flags.prefill);
  CheckDeviceName(flags.decode);
  if (!flags.bundle.empty() && flags.prefill != kCoreMl && flags.prefill != kAuto)
    throw Fail(ErrorKind::kBadRequest, "--ane: only --prefill {} runs an exported model", kCoreMl);
  if (flags.quantise_bits != 0 && flags.prefill != "mlx" && flags.decode != "mlx")
    throw Fail(ErrorKind::kBadRequest, "--quantize: only mlx quantises at load; add --decode mlx");
  if (!flags.prefix_cache_folder.empty() && flags.prefix_cache_mb == 0)
    throw Fail(ErrorKind::kBadRequest, "--prefix-cache-dir: it needs --prefix-cache-mb above 0");
  if (flags.threads > 0 && flags.prefill_threads + flags.decode_threads > 0)
    throw Fail(ErrorKind::kBadRequest,
               "--threads: --prefill-threads and --decode-threads say how many; leave it out");
}

OpenOptions ToOpenOptions(const EngineFlags& flags, ModelSource& model,
                          std::span<const std::string> prefill) {
  OpenOptions open;
  open.threads = flags.threads;
  open.prefill_threads = flags.prefill_threads;
  open.decode_threads = flags.decode_threads;
  open.quantise_bits = flags.quantise_bits;
  if (std::ranges::find(prefill, kCoreMl) != prefill.end()) open.bundle = BundleFor(flags, model);
  return open;
}

std::unique_ptr<Engine> OpenEngine(const EngineFlags& flags, ModelSource& model, int tokens, bool quiet,
                                   const Interrupt& interrupt, int parallel,
                                   std::function<void(const Span&)> observe) {
  // First: finding a profile or an exported model reads all weights.
  CheckMemory(model, {&flags.decode, 1}, tokens, AvailableMemory(), flags.quantise_bits);
  const PrefillSetup prefill = SetUpPrefill(flags, model);
  std::vector<std::string> names = prefill.names;
  names.push_back(flags.decode);
  CheckMemory(model, names, tokens, AvailableMemory(), flags.quantise_bits);
  ProgressBar bar("loading", !quiet);
  OpenOptions open = ToOpenOptions(flags, model, prefill.names);
  open.runtime = AneRuntimeOptions([&interrupt] { return interrupt.flag().load(); });
  if (!quiet) open.note = [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); };
  open.progress = [&](size_t done, size_t total) {
    interrupt.Check();
    bar.Show(done, total);
  };
  Devices opened = OpenDevices(model, prefill.names, flags.decode, open);
  for (size_t i = 0; i < prefill.costs.size(); ++i) UseMeasuredCalls(*opened.prefill[i], prefill.costs[i]);
  EngineDevices devices;
  devices.prefill = std::move(opened.prefill);
  devices.decode = std::move(opened.decode);

  EngineOptions options;
  options.choose = prefill.choose;
  options.meters = OpenPowerMeters();
  options.max_running = parallel;
  options.max_queued = INT_MAX;  // the commands submit no more than they want to wait for
  options.prefix_cache_bytes = size_t(flags.prefix_cache_mb) << 20;
  options.disk_cache = flags.prefix_cache_folder;
  options.disk_cache_bytes = size_t(flags.prefix_cache_disk_mb) << 20;
  options.warn = [](const std::string& line) { fmt::print(stderr, "pd-engine: {}\n", line); };
  options.leave_lane = opened.leave_thread;
  options.observe = std::move(observe);
  options.kv_limit = RoomForKv(names, flags, model, options.prefix_cache_bytes);
  return std::make_unique<Engine>(model.spec, std::move(devices), std::move(options));
}

}  // namespace pd::cli
