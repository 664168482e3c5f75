#include "planning/profile.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "planning/profile_data.h"
#include "planning/shapes.h"
#include "reference/count_ops.h"

namespace pd {
namespace {

constexpr std::string_view kRemedy = "remove or correct them";  // keys that nobody reads

// Lengths of the Neural Engine's functions; a shorter chunk takes as long as the next length.
constexpr int kFunctions[] = {64, 128, 256, 512};
constexpr double kBytesOfAHalf = 2;
constexpr double kPackageBytes = 0.9e9;  // limit of weights in one program; several run one after the other
// A copy within memory reads and writes, beside other traffic.
constexpr double kCopyShare = 0.3, kCopyMs = 0.1;
// Upper bounds of a workstation's processor: two 512-bit vectors of half precision a cycle and core at 5 GHz,
// or matrix units.
constexpr double kCpuFlops = 100e12, kCpuBandwidth = 1e12;

Figure ReadFigure(JsonReader& parent, std::string_view key) {
  JsonReader json = parent.Object(key);
  Figure figure{json.Number("value"), json.String("source"), json.String("confidence")};
  json.Done(kRemedy);
  const bool graded =
      figure.confidence == "high" || figure.confidence == "medium" || figure.confidence == "low";
  if (!(figure.value > 0) || !std::isfinite(figure.value) || figure.source.empty() || !graded)
    throw Fail(ErrorKind::kCorruptFile, "{}: {} needs a positive value, a source and a confidence",
               json.where(), key);
  return figure;
}

Measurement ReadMeasurement(JsonReader json) {
  Measurement m;
  m.model = json.String("model");
  m.device = json.String("device");
  m.bits = json.Number("bits");
  m.phase = json.String("phase");
  m.tokens = int(json.Int("tokens", 1));
  m.value = json.Number("value");
  m.unit = json.String("unit");
  m.source = json.String("source");
  m.note = json.StringOr("note", "");
  json.Done(kRemedy);
  const bool known = (m.device == "gpu" || m.device == "ane") &&
                     (m.phase == "prefill" || m.phase == "decode") && (m.unit == "ms" || m.unit == "tok/s") &&
                     m.value > 0;
  if (!known)
    throw Fail(ErrorKind::kCorruptFile, "{}: unknown device, phase or unit, or a value not above 0",
               json.where());
  return m;
}

// No effective rate may exceed the device's peak, and decode may not read faster than the memory.
void CheckPhysics(const ChipProfile& chip) {
  const auto require = [&](bool ok, const char* what) {
    if (!ok) throw Fail(ErrorKind::kCorruptFile, "profile {}: {}", chip.id, what);
  };
  require(chip.gpu.prefill_flops.value <= chip.gpu.peak_flops.value, "the GPU exceeds its peak");
  require(chip.ane.prefill_flops.value <= chip.ane.peak_flops.value, "the Neural Engine exceeds its peak");
  require(chip.gpu.bandwidth_share.value <= 1, "decode reads faster than the memory");
  require(chip.ane.bandwidth.value <= chip.memory_bandwidth.value,
          "the Neural Engine reads faster than the memory");
  require(chip.ane.slowdown.value >= 1, "a text gains from prefill beside it");
}

// Per token of a chunk and token of context, over all layers.
double AttentionFlops(const ModelSpec& spec) {
  double flops = 0;
  for (const LayerSpec& layer : spec.layers) flops += 4.0 * AttentionOf(layer).q_width();
  return flops;
}
double KvBytesPerToken(const ModelSpec& spec) { return double(MemoryBytes(spec, {.kv = DType::kF16}, 1)); }

// The cost of attention to history: `ms` per token of the chunk and token before it.
std::vector<PrefillCost::Later> Later(const Curve& chunk, double ms) {
  constexpr int kFirst = 1024;  // any position: the cost is linear
  PrefillCost::Later later{kFirst, {}};
  for (const auto& [count, alone] : chunk) later.ratio.emplace_back(count, 1 + ms * count * kFirst / alone);
  return {later};
}

std::string Folded(std::string_view name) {
  std::string folded;
  for (const char c : name)
    folded += c == '-' || c == '_' ? ' ' : char(std::tolower(static_cast<unsigned char>(c)));
  if (folded.starts_with("apple ")) folded.erase(0, 6);
  return folded;
}

// Letters and digits only, in lower case.
std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for (const char c : text) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter && !inside) words.emplace_back();
    if (letter) words.back() += char(std::tolower(static_cast<unsigned char>(c)));
    inside = letter;
  }
  return words;
}

// The published chip named by the words, the longest name first ("m4 max" before "m4"); nullptr when there is
// none. Throws kBadRequest for a word that looks like an unknown chip.
const ChipProfile* ChipIn(const std::vector<std::string>& words, std::string_view device) {
  const ChipProfile* found = nullptr;
  size_t most = 0;
  for (const ChipProfile& chip : PublishedChips()) {
    const std::vector<std::string> name = Words(Folded(chip.name));
    if (name.size() > most && std::ranges::search(words, name).size() == name.size())
      found = &chip, most = name.size();
  }
  if (found) return found;
  for (const std::string& word : words)
    if ((word[0] == 'm' || word[0] == 'a') && word.size() > 1 &&
        std::isdigit(static_cast<unsigned char>(word[1])))
      throw Fail(ErrorKind::kBadRequest,
                 "device '{}': there is no profile of this chip; 'pd-engine plan --list' lists the chips, "
                 "and gpu or ane alone stand for the fastest",
                 device);
  return nullptr;
}

}  // namespace

ChipProfile ReadChip(std::string_view text, const std::string& id) {
  const std::string where = "profile " + id;
  const Json object = ParseJson(text, where);
  JsonReader json(object, where);
  ChipProfile chip;
  chip.id = id;
  chip.name = json.String("name");
  chip.memory_bandwidth = ReadFigure(json, "memory_bandwidth");
  JsonReader gpu = json.Object("gpu");
  chip.gpu = {ReadFigure(gpu, "peak_flops"), ReadFigure(gpu, "prefill_flops"), ReadFigure(gpu, "chunk_ms"),
              ReadFigure(gpu, "bandwidth_share"), ReadFigure(gpu, "layer_ms")};
  gpu.Done(kRemedy);
  JsonReader ane = json.Object("ane");
  chip.ane = {ReadFigure(ane, "peak_flops"), ReadFigure(ane, "prefill_flops"), ReadFigure(ane, "chunk_ms"),
              ReadFigure(ane, "bandwidth"), ReadFigure(ane, "slowdown")};
  ane.Done(kRemedy);
  const Json& measurements = json.Value("measurements");
  for (const Json& m : measurements) chip.measurements.push_back(ReadMeasurement(JsonReader(m, where)));
  json.Done(kRemedy);
  CheckPhysics(chip);
  return chip;
}

const std::vector<ChipProfile>& PublishedChips() {
  static const std::vector<ChipProfile> chips = [] {
    std::vector<ChipProfile> all;
    for (const ProfileText& text : kProfileTexts) all.push_back(ReadChip(text.json, text.id));
    return all;
  }();
  return chips;
}

const ChipProfile& FindChip(std::string_view name) {
  std::vector<std::string> names;
  for (const ChipProfile& chip : PublishedChips()) {
    if (Folded(chip.id) == Folded(name) || Folded(chip.name) == Folded(name)) return chip;
    names.push_back(chip.id);
  }
  throw Fail(ErrorKind::kNotFound, "there is no profile of a chip '{}': there are {}", name,
             fmt::join(names, ", "));
}

MachineCosts CostsOf(const ChipProfile& chip, const ModelSpec& spec, const std::string& model, double bits) {
  const double layers = CountLayerParameters(spec), head = double(spec.vocab) * spec.width;
  const double read = chip.memory_bandwidth.value * chip.gpu.bandwidth_share.value;
  const double kv = KvBytesPerToken(spec);
  MachineCosts costs;
  costs.machine = chip.name;
  costs.model = model;

  PrefillCost& gpu = costs.direct;
  gpu.device = "gpu";
  gpu.lane = 0;
  for (int n = 1; n <= 2048; n *= 2) {
    const double flops = CostOf(spec, 0, n, 0).flops;
    gpu.chunk.emplace_back(n, chip.gpu.chunk_ms.value + 1000 * std::max(flops / chip.gpu.prefill_flops.value,
                                                                        layers * bits / 8 / read));
  }
  gpu.later = Later(gpu.chunk, 1000 * AttentionFlops(spec) / chip.gpu.prefill_flops.value);

  PrefillCost ane;
  ane.device = "ane";
  const double calls = std::ceil(layers * kBytesOfAHalf / kPackageBytes);
  int from = 1;
  for (const int n : kFunctions) {
    const double flops = CostOf(spec, 0, n, 0).flops;
    const double ms =
        calls * chip.ane.chunk_ms.value + 1000 * std::max(flops / chip.ane.prefill_flops.value,
                                                          layers * kBytesOfAHalf / chip.ane.bandwidth.value);
    ane.chunk.emplace_back(from, ms);
    ane.chunk.emplace_back(n, ms);
    from = n + 1;
  }
  ane.later = Later(ane.chunk, 1000 * AttentionFlops(spec) / chip.ane.prefill_flops.value);
  ane.handoff_ms = kCopyMs;
  ane.handoff_token_ms = 1000 * kv / (chip.memory_bandwidth.value * kCopyShare);
  ane.slowdown = chip.ane.slowdown.value;
  costs.units = {ane};

  costs.decode.device = "gpu";
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    const double flops = 2 * (layers + head) * rows;
    const double ms =
        chip.gpu.layer_ms.value * double(spec.layers.size()) +
        1000 * std::max(flops / chip.gpu.prefill_flops.value, (layers + head) * bits / 8 / read);
    costs.decode.step.emplace_back(rows, ms);
  }
  costs.decode.context_ms = 1000 * kv / read;
  return costs;
}

double Predicted(const ChipProfile& chip, const Measurement& m) {
  const MachineCosts costs = CostsOf(chip, KnownShape(m.model), m.model, m.bits);
  double ms = 0;
  if (m.phase == "decode") {
    ms = costs.decode.StepMs(1, m.tokens);
    return m.unit == "ms" ? ms : 1000 / ms;
  }
  const PrefillCost& cost = m.device == "ane" ? costs.units[0] : costs.direct;
  ms = cost.PromptMs(0, m.tokens, m.device == "ane" ? 512 : 2048);
  return m.unit == "ms" ? ms : m.tokens / (ms / 1000);
}

DevicePeak PeakOf(std::string_view device) {
  const std::vector<std::string> words = Words(device);
  const auto says = [&](std::initializer_list<std::string_view> any) {
    return std::ranges::any_of(words, [&](const auto& w) { return std::ranges::find(any, w) != any.end(); });
  };
  const bool ane = says({"ane", "neural", "coreml", "npu"}),
             gpu = !ane && says({"gpu", "mlx", "metal", "mps"});
  if (!ane && !gpu) {
    if (says({"cpu"})) return {"any processor", kCpuFlops, kCpuBandwidth};
    throw Fail(ErrorKind::kBadRequest,
               "device '{}': say gpu, ane or cpu, or one chip's, as in \"M4 Max GPU\"", device);
  }
  const auto peak_of = [&](const ChipProfile& chip) {
    return DevicePeak{fmt::format("{} {}", chip.name, gpu ? "GPU" : "Neural Engine"),
                      gpu ? chip.gpu.peak_flops.value : chip.ane.peak_flops.value,
                      chip.memory_bandwidth.value};
  };
  if (const ChipProfile* chip = ChipIn(words, device)) return peak_of(*chip);
  DevicePeak best;
  for (const ChipProfile& chip : PublishedChips()) {
    const DevicePeak peak = peak_of(chip);
    if (peak.flops > best.flops) best.name = peak.name;
    best.flops = std::max(best.flops, peak.flops);
    best.bandwidth = std::max(best.bandwidth, peak.bandwidth);
  }
  return best;
}

}  // namespace pd
