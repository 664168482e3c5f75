#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>

#include "base/cores.h"
#include "base/files.h"
#include "base/json.h"
#include "base/percentile.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "planning/bandwidth.h"
#include "planning/overlap.h"
#include "planning/rates.h"

namespace pd::cli {
namespace {

struct Options {
  std::string model, svg;
  EngineFlags engine;
  OverlapOptions overlap;
  int repeat = 3;
  bool json = false, quiet = false;
};

// One arrangement of devices.
struct Arrangement {
  std::string prefill, decode;         // names, with processors
  std::vector<OverlapResult> repeats;  // at least one
  std::vector<Span> spans;
  DeviceInfo decode_info;

  double MedianOf(const std::function<double(const OverlapResult&)>& of) const {
    std::vector<double> values;
    std::ranges::transform(repeats, std::back_inserter(values), of);
    return Median(std::move(values));
  }
  // Of one stretch in all repeats.
  std::vector<double> Gaps(StreamRates OverlapResult::* stretch) const {
    std::vector<double> gaps;
    for (const OverlapResult& r : repeats)
      gaps.insert(gaps.end(), (r.*stretch).gaps_ms.begin(), (r.*stretch).gaps_ms.end());
    std::ranges::sort(gaps);
    return gaps;
  }
};

std::string NameOf(const DeviceInfo& device) {
  if (device.physical.cores.empty()) return device.name;
  const size_t cores = device.physical.cores.size();
  return fmt::format("{} on {} processor{}", device.name, cores, cores == 1 ? "" : "s");
}

Arrangement Measure(const Options& options, const EngineFlags& flags, ModelSource& model, bool two_lanes,
                    const Interrupt& interrupt) {
  Arrangement arrangement;
  const int tokens =
      std::max(options.overlap.prompt + 1, std::min(options.overlap.text, model.spec.max_context));
  {
    const auto engine =
        LoadEngine(flags, model, tokens, options.quiet, interrupt, options.overlap.streams + 1,
                   [&](const Span& span) { arrangement.spans.push_back(span); });
    if (two_lanes && engine->lanes() < 2)
      throw Fail(ErrorKind::kBadRequest,
                 "--prefill {} and --decode {} are one device here: give each its processors with "
                 "--prefill-threads and --decode-threads, or name two devices",
                 flags.prefill, flags.decode);
    arrangement.decode_info = engine->decode_info();
    arrangement.decode = NameOf(engine->decode_info());
    arrangement.prefill = two_lanes ? NameOf(engine->prefill_info(0)) : arrangement.decode;
    ProgressBar bar(two_lanes ? "two lanes" : "one lane", !options.quiet);
    for (int i = 0; i <= options.repeat; ++i) {
      OverlapResult result = MeasureOverlap(*engine, options.overlap, [&] { interrupt.Check(); });
      if (i > 0) arrangement.repeats.push_back(std::move(result));  // the first one warms memory
      bar.Show(size_t(i) + 1, size_t(options.repeat) + 1);
    }
  }  // all spans are there when the engine has ended
  return arrangement;
}

// Two lanes where the flags ask for none: the CPU's processors, or as many as --threads says, in halves.
EngineFlags TwoLanes(EngineFlags flags) {
  if (flags.prefill == kAuto) flags.prefill = flags.bundle.empty() ? flags.decode : BundleDevice();
  if (flags.prefill != flags.decode || flags.prefill_threads + flags.decode_threads > 0) return flags;
  if (flags.threads == 1) throw Fail(ErrorKind::kBadRequest, "--threads: two lanes need at least 2");
  const int all = flags.threads > 0 ? flags.threads : int(AvailableCores().size());
  flags.prefill_threads = std::max(1, all / 2);
  if (flags.threads > 0) flags.decode_threads = all - flags.prefill_threads;
  flags.threads = 0;
  return flags;
}

// The decode device alone, with everything that two lanes had between them.
EngineFlags OneLane(EngineFlags flags) {
  flags.prefill = flags.decode;
  flags.bundle.clear();
  if (flags.prefill_threads + flags.decode_threads > 0) {
    const int rest = int(AvailableCores().size());
    flags.threads = flags.prefill_threads > 0 && flags.decode_threads > 0
                        ? flags.prefill_threads + flags.decode_threads
                        : rest;
  }
  flags.prefill_threads = flags.decode_threads = 0;
  return flags;
}

// What memory leaves for decode while prefill reads its weights, at best.
struct Bound {
  double machine = 0, decode = 0, prefill = 0;  // bytes a second; what each takes alone
  double ratio = 0;                             // 0: unknown
};

Bound MemoryBound(const Options& options, const ModelSpec& spec, const Arrangement& two) {
  Bound bound;
  const DeviceInfo& info = two.decode_info;
  if (info.physical.kind != PhysicalDevice::Kind::kCpu) return bound;
  const BandwidthStore store = MachineRates();
  bound.machine = store.Get(BandwidthKeyFor(info.weight_bytes, int(AvailableCores().size())));
  const double context = two.MedianOf([](const auto& r) { return r.alone.context; });
  const auto kv = double(MemoryBytes(spec, info.memory, int(context)));
  const double step = double(info.weight_bytes) + options.overlap.streams * kv;
  bound.decode =
      step * two.MedianOf([](const auto& r) { return r.alone.tokens_per_s; }) / options.overlap.streams;
  const int chunks = (options.overlap.prompt + options.overlap.chunk - 2) / options.overlap.chunk;
  const double prefill_ms = two.MedianOf([](const auto& r) { return r.prompt.prefill_ms; });
  if (prefill_ms > 0) bound.prefill = LayerBytes(spec, info.weight_bytes) * chunks / (prefill_ms / 1000);
  bound.ratio = std::clamp((bound.machine - bound.prefill) / bound.decode, 0.0, 1.0);
  return bound;
}

Json ToJson(const Arrangement& a) {
  const auto stretch = [&](StreamRates OverlapResult::* rates) {
    const std::vector<double> gaps = a.Gaps(rates);
    return Json{{"tokens_per_s", a.MedianOf([&](const auto& r) { return (r.*rates).tokens_per_s; })},
                {"gap_p50_ms", Percentile(gaps, 50)},
                {"gap_p99_ms", Percentile(gaps, 99)},
                {"gap_max_ms", Percentile(gaps, 100)}};
  };
  Json json = {
      {"prefill", a.prefill},
      {"decode", a.decode},
      {"decode_ratio", a.MedianOf([](const auto& r) { return r.decode_ratio; })},
      {"decode_ratios", Json::array()},
      {"context", a.MedianOf([](const auto& r) { return r.alone.context; })},
      {"alone", stretch(&OverlapResult::alone)},
      {"first_token_ms", a.MedianOf([](const auto& r) { return r.first_token_ms; })},
      {"prefill_tokens", a.repeats[0].prompt.prefill_tokens + a.repeats[0].prompt.tail_tokens},
      {"prefill_ms", a.MedianOf([](const auto& r) { return r.prompt.prefill_ms + r.prompt.tail_ms; })},
      {"handoff_ms", a.MedianOf([](const auto& r) { return r.prompt.handoff_ms; })}};
  json.update(stretch(&OverlapResult::beside));
  for (const OverlapResult& r : a.repeats) json["decode_ratios"].push_back(r.decode_ratio);
  return json;
}

std::string ToText(const char* name, const Arrangement& a) {
  std::string text = fmt::format("{}: prefill {}, decode {}\n", name, a.prefill, a.decode);
  const auto row = [&](const char* when, StreamRates OverlapResult::* rates) {
    const std::vector<double> gaps = a.Gaps(rates);
    text += fmt::format(
        "  {:<24}{:>8.1f} tok/s   gaps: median {:>6.1f} ms, p99 {:>6.1f} ms, longest {:>6.1f} ms\n", when,
        a.MedianOf([&](const auto& r) { return (r.*rates).tokens_per_s; }), Percentile(gaps, 50),
        Percentile(gaps, 99), Percentile(gaps, 100));
  };
  row("texts alone", &OverlapResult::alone);
  row("while the prompt is read", &OverlapResult::beside);
  const auto ratio = [](const OverlapResult& r) { return r.decode_ratio; };
  const auto [least, most] = std::ranges::minmax(a.repeats, {}, ratio);
  return text + fmt::format(
                    "  {:.1f} % of their speed ({:.1f} to {:.1f}); the prompt's first token after "
                    "{:.0f} ms\n",
                    100 * a.MedianOf(ratio), 100 * least.decode_ratio, 100 * most.decode_ratio,
                    a.MedianOf([](const auto& r) { return r.first_token_ms; }));
}

// All lanes in one picture, in which the prompt's first chunk begins at the same moment.
std::string Picture(const Arrangement& two, const Arrangement& one) {
  constexpr double kBefore = 150, kAfter = 1350;  // ms around it
  std::vector<Span> spans;
  std::vector<std::string> lanes;
  for (const Arrangement* a : {&two, &one}) {
    int most = 0;
    double begin = -1;
    for (const Span& s : a->spans) {
      most = std::max(most, s.lane + 1);
      if (begin < 0 && s.kind == SpanKind::kPrefill && s.request == a->repeats[0].request) begin = s.begin_ms;
    }
    for (Span s : a->spans) {
      s.begin_ms += kBefore - begin, s.end_ms += kBefore - begin;
      s.lane += LaneId(lanes.size());
      spans.push_back(s);
    }
    for (int lane = 0; lane < most; ++lane)
      lanes.push_back(most == 1 ? "one lane" : lane == 0 ? "decode lane" : "prefill lane");
  }
  return TimelineSvg(spans, lanes, 0, kBefore + kAfter);
}

int MeasureBoth(const Options& options) {
  CheckEngineFlags(options.engine);
  const Interrupt interrupt;
  ModelSource model = OpenModel(ModelPath(options.model));
  EngineFlags flags = options.engine;
  flags.prefix_cache_mb = 0;  // the prompt is read once
  const Arrangement two = Measure(options, TwoLanes(flags), model, true, interrupt),
                    one = Measure(options, OneLane(TwoLanes(flags)), model, false, interrupt);
  const Bound bound = MemoryBound(options, model.spec, two);
  if (!options.svg.empty() && !WriteOutputFile(options.svg, Picture(two, one))) return kOutputClosed;
  if (options.json) {
    const auto rate = [](double value) { return value > 0 ? Json(value / 1e9) : Json(nullptr); };
    const Json json = {{"model", model.path.string()},
                       {"streams", options.overlap.streams},
                       {"prompt", options.overlap.prompt},
                       {"chunk", options.overlap.chunk},
                       {"repeat", options.repeat},
                       {"two_lanes", ToJson(two)},
                       {"one_lane", ToJson(one)},
                       {"memory_bound",
                        {{"machine_gb_per_s", rate(bound.machine)},
                         {"decode_gb_per_s", rate(bound.decode)},
                         {"prefill_gb_per_s", rate(bound.prefill)},
                         {"decode_ratio", bound.ratio > 0 ? Json(bound.ratio) : Json(nullptr)}}}};
    return WriteOutput(ToLine(json)) ? kOk : kOutputClosed;
  }
  std::string text = fmt::format("{} texts, and a prompt of {} tokens in chunks of {}; medians of {}\n\n",
                                 options.overlap.streams, Grouped(options.overlap.prompt),
                                 options.overlap.chunk, options.repeat);
  text += ToText("two lanes", two) + ToText("one lane", one);
  if (bound.ratio > 0)
    text += fmt::format(
        "\nMemory: {} in all; texts alone take {}, the prompt {}: texts could keep {:.0f} % of their "
        "speed.\n",
        WithUnit(bound.machine, "B/s"), WithUnit(bound.decode, "B/s"), WithUnit(bound.prefill, "B/s"),
        100 * bound.ratio);
  return WriteOutput(text) ? kOk : kOutputClosed;
}

}  // namespace

void AddBenchOverlap(const Command& bench) {
  const Command command =
      bench.Add("overlap", "What running texts feel while a long prompt is read: two lanes, and one");
  auto options = std::make_shared<Options>();
  Options& o = *options;
  AddModel(command, o.model);
  command.Integer("--streams", o.overlap.streams, {1, 256}, "texts that run");
  command.Integer("--prompt", o.overlap.prompt, {2, 1 << 20}, "tokens of the prompt");
  command.Integer("--repeat", o.repeat, {1, 1000}, "times, after one that does not count");
  AddPrefillFlags(command, o.engine);
  AddDeviceFlags(command, o.engine);
  command.Text("--svg", o.svg, "write a timeline of the lanes around the prompt's beginning")
      .ValueName("FILE");
  AddJson(command, o.json);
  AddQuiet(command, o.quiet, "no progress bar");
  command.Footer(
      "Two lanes: the devices that --prefill and --decode name; one device gets half of the processors for "
      "each. One lane:\n"
      "the decode device with all of them does both. Texts are watched for 1.5 s before and after the "
      "prompt, "
      "too; since steps\n"
      "take longer as texts grow, their speed alone is the one they had at the length they have beside it.");
  command.Runs([options] {
    options->overlap.chunk = options->engine.prefill_chunk;
    return MeasureBoth(*options);
  });
}

}  // namespace pd::cli
