#include "cli/bench_devices.h"

#include <algorithm>
#include <chrono>
#include <climits>

#include "base/clock.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "open/memory.h"
#include "open/open.h"
#include "planning/bandwidth.h"
#include "planning/profile.h"
#include "planning/rates.h"
#include "planning/roofline.h"
#include "planning/timing.h"
#include "reference/count_ops.h"
#include "serving/lane_thread.h"
#include "session/bundles.h"

namespace pd::cli {
namespace {

constexpr int kChunk = 512;  // of devices that only prefill

struct Row {
  std::string device;
  bool decode = false;
  int tokens = 0;  // of the prompt; of each sequence's context
  int batch = 1;
  Timing time;
  double flops = 0, bytes = 0;  // in `time`
  RooflineRates rates;
};

struct Device {
  std::string name;
  double open_ms = 0, first_ms = 0;  // cold: loading, and the first prompt
  int first_tokens = 0;
  DeviceLimits limits;
  bool published = false;  // limits.flops is a published chip's
  std::vector<std::string> notes;
};

// Tokens that the largest measurement holds at a time.
int LongestSequences(const BenchOptions& options) {
  const int batch = *std::ranges::max_element(options.batches);
  return std::max(*std::ranges::max_element(options.prompts), batch * (options.context + options.repeat + 2));
}

class Bench {
 public:
  Bench(const BenchOptions& options, ModelSource& model, const Interrupt& interrupt)
      : options_(options), model_(model), interrupt_(interrupt), bar_("bench", !options.quiet) {
    open_.threads = options.threads;
    open_.quantise_bits = options.quantise_bits;
    open_.batches = options.batches;
  }

  void Run(const std::vector<std::string>& names) {
    total_ = names.size() * (options_.prompts.size() + options_.batches.size() + 2);
    for (const std::string& name : names) Measure(name);
  }

  const std::vector<Device>& devices() const { return devices_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  void Step() {
    interrupt_.Check();
    bar_.Show(++done_, total_);
  }

  void Measure(const std::string& name) {
    Device device;
    device.name = name;
    if (name == BundleDevice()) {
      open_.bundle = RequireBundle(options_.bundle, CacheFolder(), model_);
      open_.runtime = RuntimeOfBundles(interrupt_);
    }
    CheckMemory(model_, {&name, 1}, LongestSequences(options_), AvailableMemory(), options_.quantise_bits);
    const auto start = std::chrono::steady_clock::now();
    std::unique_ptr<DecodeDevice> decode;
    std::unique_ptr<PrefillDevice> prefill;
    const auto decoders = DeviceNames();
    if (std::ranges::find(decoders, name) != decoders.end()) {
      decode = OpenDevice(model_, name, open_);
    } else {
      prefill = OpenPrefillDevice(model_, name, open_);
    }
    device.open_ms = MillisecondsSince(start);
    const DeviceInfo info = decode ? decode->Info() : prefill->Info();
    device.name = info.name;
    Step();
    LaneThread thread(info.physical, LeaveDeviceThread);
    const size_t first_row = rows_.size();
    const auto measure = [&] {
      Prompts(device, info, decode.get(), prefill.get());
      if (decode) Steps(device, *decode);
      decode.reset(), prefill.reset();
      device.limits = Limits(name, info);
    };
    thread.Do(measure);
    Gate(device, name, info, thread, first_row);
    device.published = info.physical.kind == PhysicalDevice::Kind::kNeuralEngine;
    Step();
    devices_.push_back(std::move(device));
  }

  void Prompts(Device& device, const DeviceInfo& info, DecodeDevice* decode, PrefillDevice* prefill) {
    for (const int tokens : options_.prompts) {
      Step();
      if (tokens > model_.spec.max_context) {
        device.notes.push_back(fmt::format("{} tokens: the model's context holds {}", Grouped(tokens),
                                           Grouped(model_.spec.max_context)));
        continue;
      }
      if (prefill && !TakesPrompt(*prefill, tokens, kChunk)) {
        device.notes.push_back(
            fmt::format("{} tokens: more than the exported functions take", Grouped(tokens)));
        continue;
      }
      Row row{device.name, false, tokens, 1, {}, 0, 0, {}};
      row.time = decode ? TimePrompt(*decode, model_.spec.vocab, 0, tokens, INT_MAX, {options_.repeat})
                        : TimePrefill(*prefill, model_.spec.vocab, 0, tokens, kChunk, {options_.repeat});
      if (device.first_ms == 0) device.first_ms = row.time.first_ms, device.first_tokens = tokens;
      const Cost cost = CostOf(model_.spec, 0, tokens, 0);
      row.flops = cost.flops;
      // Layers are read once a call. What a device of ours reads in a decode step includes the head.
      const int most = decode ? info.max_rows : kChunk;
      const double layers = decode ? LayerBytes(model_.spec, info.weight_bytes) : double(info.weight_bytes);
      const int calls = (tokens + most - 1) / most;
      row.bytes = layers * calls + KvBytes(cost, info);
      rows_.push_back(std::move(row));
    }
  }

  void Steps(Device& device, DecodeDevice& decode) {
    const int context = options_.context;
    for (const int batch : options_.batches) {
      Step();
      if (batch > decode.Info().max_rows || context + options_.repeat + 2 > model_.spec.max_context) {
        device.notes.push_back(
            fmt::format("batch {} at {} tokens: more than device or model take", batch, Grouped(context)));
        continue;
      }
      Row row{device.name, true, context, batch, {}, 0, 0, {}};
      row.time = TimeStep(decode, model_.spec.vocab, batch, context, options_.repeat);
      const Cost cost = CostOf(model_.spec, context, 1, 1);
      row.flops = batch * cost.flops;
      row.bytes = double(decode.Info().weight_bytes) + batch * KvBytes(cost, decode.Info());
      rows_.push_back(std::move(row));
    }
  }

  // Measured on the device's thread, when the device is gone.
  DeviceLimits Limits(const std::string& name, const DeviceInfo& info) const {
    const MeasuredPeak peak = MeasurePeak(name, open_);
    DeviceLimits limits{peak.flops, peak.bandwidth};
    if (info.physical.kind == PhysicalDevice::Kind::kNeuralEngine) limits.flops = PeakOf("ane").flops;
    if (info.physical.kind == PhysicalDevice::Kind::kCpu) {
      const BandwidthStore store = MachineRates();
      limits.bandwidth = store.Get(BandwidthKeyFor(info.weight_bytes, ThreadCount(open_, info)));
    }
    return limits;
  }

  // A row above the peak has a second chance: something else may have run when the peak was measured.
  void Gate(Device& device, const std::string& name, const DeviceInfo& info, LaneThread& thread,
            size_t first_row) {
    const auto compute = [&] {
      bool above = false;
      for (size_t i = first_row; i < rows_.size(); ++i) {
        Row& row = rows_[i];
        row.rates = RatesAgainst(row.flops, row.bytes, row.time.median_ms, device.limits);
        above = above || row.rates.flops_share > 1 || row.rates.bandwidth_share > 1;
      }
      return above;
    };
    if (!compute()) return;
    thread.Do([&] {
      const DeviceLimits again = Limits(name, info);
      device.limits.flops = std::max(device.limits.flops, again.flops);
      device.limits.bandwidth = std::max(device.limits.bandwidth, again.bandwidth);
      if (info.physical.kind == PhysicalDevice::Kind::kCpu) {
        const BandwidthStore store = MachineRates();
        device.limits.bandwidth = store.Improve(BandwidthKeyFor(info.weight_bytes, ThreadCount(open_, info)));
      }
    });
    compute();
  }

  const BenchOptions& options_;
  ModelSource& model_;
  const Interrupt& interrupt_;
  ProgressBar bar_;
  OpenOptions open_;
  size_t done_ = 0, total_ = 0;
  std::vector<Device> devices_;
  std::vector<Row> rows_;
};

double TokensPerSecond(const Row& row) {
  return (row.decode ? row.batch : row.tokens) / (row.time.median_ms / 1000);
}

Json Known(double value, bool known = true) { return known && value > 0 ? Json(value) : Json(nullptr); }

Json ToJson(const BenchOptions& options, const ModelSource& model, const Bench& bench) {
  Json devices = Json::array(), rows = Json::array();
  for (const Device& d : bench.devices())
    devices.push_back(
        {{"device", d.name},
         {"cold_start",
          {{"open_ms", d.open_ms}, {"first_ms", Known(d.first_ms)}, {"first_tokens", d.first_tokens}}},
         {"peak_tflop_per_s", Known(d.limits.flops / 1e12)},
         {"peak_from", d.published ? "the fastest published chip" : "measured"},
         {"machine_gb_per_s", Known(d.limits.bandwidth / 1e9)},
         {"notes", d.notes}});
  for (const Row& row : bench.rows()) {
    const bool real = row.rates.impossible.empty();
    rows.push_back({{"device", row.device},
                    {"phase", row.decode ? "decode" : "prefill"},
                    {"tokens", row.tokens},
                    {"batch", row.batch},
                    {"ms", row.time.median_ms},
                    {"least_ms", row.time.least_ms},
                    {"most_ms", row.time.most_ms},
                    {"tokens_per_s", Known(TokensPerSecond(row), real)},
                    {"tflop_per_s", Known(row.rates.flops_per_s / 1e12, real)},
                    {"percent_of_peak", Known(100 * row.rates.flops_share, real)},
                    {"gb_per_s", Known(row.rates.bytes_per_s / 1e9, real)},
                    {"percent_of_bandwidth", Known(100 * row.rates.bandwidth_share, real)},
                    {"impossible", real ? Json(nullptr) : Json(row.rates.impossible)}});
  }
  return {{"model", model.path.string()}, {"repeat", options.repeat}, {"devices", devices}, {"rows", rows}};
}

std::string Share(double share) { return share > 0 ? fmt::format("{:.0f} %", 100 * share) : "?"; }

std::string ToTable(const BenchOptions& options, const Bench& bench) {
  std::string text;
  for (const Device& d : bench.devices()) {
    text += fmt::format("{}: at most {} ({}), memory {}\n", d.name,
                        d.limits.flops > 0 ? WithUnit(d.limits.flops, "FLOP/s") : "unknown",
                        d.published ? "the fastest published chip" : "measured",
                        d.limits.bandwidth > 0 ? WithUnit(d.limits.bandwidth, "B/s") : "unknown");
    text += fmt::format("  cold start: opened in {:.0f} ms, first {} tokens in {:.1f} ms\n", d.open_ms,
                        d.first_tokens, d.first_ms);
    for (const std::string& note : d.notes) text += "  not measured: " + note + "\n";
  }
  text += fmt::format("\n{:<14}{:<9}{:>7}{:>7}{:>11}  {:^20}{:>9}{:>10}{:>7}{:>9}{:>8}\n", "device", "phase",
                      "tokens", "batch", "median ms", fmt::format("spread of {}", options.repeat), "tok/s",
                      "TFLOP/s", "peak", "GB/s", "memory");
  for (const Row& row : bench.rows()) {
    text += fmt::format("{:<14}{:<9}{:>7}{:>7}{:>11.2f}  {:^20}", row.device,
                        row.decode ? "decode" : "prefill", Grouped(row.tokens), row.batch, row.time.median_ms,
                        fmt::format("{:.2f} to {:.2f}", row.time.least_ms, row.time.most_ms));
    if (!row.rates.impossible.empty()) {
      text += "  impossible: " + row.rates.impossible + "\n";
      continue;
    }
    text += fmt::format("{:>9.0f}{:>10.3f}{:>7}{:>9.1f}{:>8}\n", TokensPerSecond(row),
                        row.rates.flops_per_s / 1e12, Share(row.rates.flops_share),
                        row.rates.bytes_per_s / 1e9, Share(row.rates.bandwidth_share));
  }
  return text;
}

// Their names, and that no flag is without effect.
void CheckDeviceFlags(const BenchOptions& options) {
  for (const std::string& name : options.devices) CheckPrefillDeviceName(name);
  const auto names = options.devices.empty() ? UsefulDeviceNames() : options.devices;
  if (options.quantise_bits != 0 && !AnyBackend(names, &BackendInfo::quantises))
    throw Fail(ErrorKind::kBadRequest, "--quantize: only {0} quantises at load; add --device {0}",
               BackendsThat(&BackendInfo::quantises));
  if (!options.bundle.empty() && !AnyBackend(names, &BackendInfo::needs_bundle))
    throw Fail(ErrorKind::kBadRequest, "--bundle: only device {0} runs a bundle; add --device {0}",
               BundleDevice());
}

// All that can be opened, or those that were named.
std::vector<std::string> DevicesOf(const BenchOptions& options, ModelSource& model) {
  std::vector<std::string> names = options.devices;
  const bool all = names.empty();
  if (all) names = UsefulDeviceNames();
  // First: finding a bundle reads all weights. A device without one takes no memory.
  const int tokens = LongestSequences(options);
  for (const std::string& name : names)
    if (!all || name != BundleDevice())
      CheckMemory(model, {&name, 1}, tokens, AvailableMemory(), options.quantise_bits);
  if (all && !FindBundle(options.bundle, CacheFolder(), model)) std::erase(names, BundleDevice());
  return names;
}

}  // namespace

std::shared_ptr<BenchOptions> AddBenchDevices(const Command& bench) {
  auto options = std::make_shared<BenchOptions>();
  BenchOptions& o = *options;
  AddModel(bench, o.model);
  bench.List("--device", o.devices, "devices to measure, commas between; default: all there are")
      .ValueName("NAME");
  bench.Integers("--prompts", o.prompts, {1, 1 << 20}, "lengths of prompts");
  bench.Integers("--batches", o.batches, {1, 4096}, "sequences of a decode step");
  bench.Integer("--context", o.context, {1, 1 << 20}, "tokens of each sequence in a decode step");
  bench.Integer("--repeat", o.repeat, {1, 1000}, "runs of each, after one that does not count");
  AddThreads(bench, o.threads);
  AddQuantise(bench, o.quantise_bits);
  AddBundle(bench, o.bundle);
  AddJson(bench, o.json);
  AddQuiet(bench, o.quiet, "no progress bar");
  return options;
}

int BenchDevices(const BenchOptions& options) {
  const Interrupt interrupt;
  CheckDeviceFlags(options);
  ModelSource model = OpenModel(ModelPath(options.model));
  const auto names = DevicesOf(options, model);
  Bench bench(options, model, interrupt);
  bench.Run(names);
  const std::string text = options.json ? ToLine(ToJson(options, model, bench)) : ToTable(options, bench);
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace pd::cli
