#include "doctor/ane_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "coreml/device/results.h"
#include "doctor/kv_golden.h"
#include "doctor/unproven.h"
#include "planning/calibration.h"
#include "planning/profile.h"
#include "planning/roofline.h"
#include "planning/shapes.h"

namespace pd {
namespace {

// A check before it is known what ran the programs.
struct Answer {
  Outcome outcome = Outcome::kNotRun;
  std::string reason;
  Json numbers = Json::object();
};

std::string FunctionLabel(const FunctionReport& f) { return f.package + "/" + f.function; }

class Examination {
 public:
  Examination(const AneSubject& subject, CalibrationDevices devices,
              const std::function<void(const AneProgress&)>& progress)
      : s_(subject), devices_(std::move(devices)), decode_(devices_.decode->Info()), progress_(progress) {}

  AneReport Run() {
    Numerics();  // first: it calls every function, so that the runtime compiles, plans and tries them
    Speed();
    if (s_.runtime) runtime_ = s_.runtime();
    Compile();
    Placement();
    Formats();
    Set("energy",
        {Outcome::kNotRun,
         "compare prefill.joules of one long prompt: pd-engine run --json --decode mlx with --prefill "
         "coreml and with --prefill mlx; where they are null, watch sudo powermetrics --samplers "
         "ane_power,gpu_power,cpu_power meanwhile"});
    return Collect();
  }

 private:
  void Set(std::string_view name, Answer answer) {
    FindClaim(name);  // exists
    answers_[std::string(name)] = std::move(answer);
  }

  // `work` gives the answer; what it throws is one too.
  void Try(std::string_view name, Outcome when_it_throws, const std::function<Answer()>& work) {
    try {
      Set(name, work());
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCancelled) throw;
      Set(name, {when_it_throws, error.what()});
    }
  }

  // None when the file is absent or of no use.
  KvGoldens KeptGoldens() const {
    try {
      return ReadGoldens(s_.goldens, *s_.spec);
    } catch (const Error&) {
      return {};
    }
  }

  KvGoldens Goldens(const std::vector<int>& lengths) {
    KvGoldens goldens = KeptGoldens();
    const uint64_t digest = BundleDigest(*s_.bundle);
    if (goldens.bundle == digest && goldens.text == s_.text &&
        std::ranges::equal(goldens.golden, lengths, {}, &KvGolden::length))
      return goldens;
    goldens = {digest, s_.text, {}};
    const auto reference = s_.reference();
    for (const int length : lengths) {
      progress_({"goldens", int(goldens.golden.size()), int(lengths.size())});
      goldens.golden.push_back(MakeGolden(*reference, *s_.spec, s_.text, length));
    }
    WriteGoldens(s_.goldens, goldens);
    return goldens;
  }

  void Numerics() {
    // Goldens that cannot be had say nothing of the device; a device that fails on a prompt is refuted.
    Try("numerics", Outcome::kNotRun, [&] {
      goldens_ =
          Goldens(GoldenLengths(s_.bundle->functions, std::min(int(s_.text.size()), s_.spec->max_context)));
      return Answer{Outcome::kNotRun, "the context holds no chunk of the bundle's functions"};
    });
    if (!goldens_.golden.empty()) Try("numerics", Outcome::kRefuted, [&] { return CompareAll(); });
  }

  Answer CompareAll() const {
    Answer answer{Outcome::kProved, "", {}};
    std::vector<std::string> wrong;
    for (const KvGolden& want : goldens_.golden) {
      progress_({"numerics", int(answer.numbers["prompts"].size()), int(goldens_.golden.size())});
      Json prompt = {{"tokens", want.length}};
      try {
        const KvDistance d =
            Compare(MakeGolden(*devices_.units.front(), *s_.spec, s_.text, want.length), want);
        prompt.update({{"finite", true},
                       {"least_cosine", d.cosine},
                       {"rms_ratio", d.rms_ratio},
                       {"worst_layer", d.layer}});
        if (!(d.cosine >= kLeastCosine && std::abs(d.rms_ratio - 1) <= kMostRmsError))
          wrong.push_back(fmt::format("{} tokens, layer {}", want.length, d.layer));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kDevice) throw;
        if (dynamic_cast<const NotFinite*>(&error)) prompt["finite"] = false;
        prompt["why"] = error.what();
        wrong.push_back(fmt::format("{} tokens: {}", want.length, error.what()));
      }
      answer.numbers["prompts"].push_back(std::move(prompt));
    }
    answer.outcome = wrong.empty() ? Outcome::kProved : Outcome::kRefuted;
    const std::string bounds =
        fmt::format("cosine of at least {}, sizes within {} %", kLeastCosine, kMostRmsError * 100);
    answer.reason = wrong.empty()
                        ? fmt::format("keys and values of every prompt are the interpreter's: {}", bounds)
                        : fmt::format("beyond the bounds ({}): {}", bounds, fmt::join(wrong, "; "));
    return answer;
  }

  // One calibration answers speed, overlap and handoff.
  void Speed() {
    constexpr const char* kOf[] = {"prefill_speed", "overlap", "handoff", "gpu_speed"};
    MachineCosts costs;
    try {
      costs = Calibrate(std::move(devices_), *s_.spec,
                        {[&](int done, int total) { progress_({"speed", done, total}); }});
      if (const std::string why = Impossible(costs); !why.empty())
        throw Fail(ErrorKind::kDevice, "these times cannot be true, and are not shown: {}", why);
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCancelled) throw;
      for (const char* name : kOf) Set(name, {Outcome::kNotRun, error.what()});
      return;
    }
    costs.machine = s_.machine;
    costs.model = s_.bundle->family;
    PrefillSpeed(costs);
    Overlap(costs.units.front());
    Handoff(costs.units.front());
    GpuSpeed(costs.decode);
    costs_ = std::move(costs);
  }

  // Why a Neural Engine cannot have been so fast; empty when it can.
  std::string Impossible(const MachineCosts& costs) const {
    if (!s_.stand_in.empty()) return "";
    std::vector<TimedRow> rows;
    for (const auto& [tokens, ms] : costs.units.front().FirstChunks())
      rows.push_back({"ane", tokens, ms, PeakOf("ane")});
    for (const CheckedRow& row : CheckRows(CountLayerParameters(*s_.spec), rows))
      if (row.verdict == Verdict::kImpossible) return row.why;
    return "";
  }

  void PrefillSpeed(const MachineCosts& costs) {
    const PrefillCost &unit = costs.units.front(), &direct = costs.direct;
    Answer answer;
    std::vector<int> faster;
    for (const auto& [tokens, ms] : unit.FirstChunks()) {
      const double other = direct.ChunkMs(0, tokens);
      answer.numbers["chunks"].push_back({{"tokens", tokens},
                                          {"ms", ms},
                                          {"tokens_per_s", ms > 0 ? tokens / ms * 1e3 : 0},
                                          {"decode_device_ms", other}});
      if (tokens >= kLeastPrompt && ms < other) faster.push_back(tokens);
    }
    answer.numbers["decode_device"] = direct.device;
    answer.outcome = faster.empty() ? Outcome::kRefuted : Outcome::kProved;
    answer.reason = faster.empty() ? fmt::format("{} reads chunks of {} tokens and more as fast or faster",
                                                 direct.device, kLeastPrompt)
                                   : fmt::format("faster than {} for chunks of {} tokens", direct.device,
                                                 fmt::join(faster, ", "));
    Set("prefill_speed", std::move(answer));
  }

  void Overlap(const PrefillCost& unit) {
    if (!unit.own_lane())
      return Set("overlap", {Outcome::kNotRun, "both devices are the same silicon, so nothing overlaps"});
    Set("overlap",
        {unit.slowdown <= kMostSlowdown ? Outcome::kProved : Outcome::kRefuted,
         fmt::format("a decode step takes {:.2f} times as long while prompts are read", unit.slowdown),
         {{"slowdown", unit.slowdown}, {"most", kMostSlowdown}}});
  }

  void Handoff(const PrefillCost& unit) {
    const double bytes = double(MemoryBytes(*s_.spec, decode_.memory, 1)), ms = unit.handoff_token_ms;
    Json numbers = {{"call_ms", unit.handoff_ms}, {"token_ms", ms}};
    if (ms > 0) numbers["bytes_per_s"] = bytes / ms * 1e3;
    Set("handoff", {Outcome::kNotRun,
                    "a rate alone does not show whether memory was copied: beside the machine's "
                    "bandwidth it says how much",
                    std::move(numbers)});
  }

  void GpuSpeed(const DecodeCost& decode) {
    Answer answer;
    for (const auto& [rows, ms] : decode.step)
      answer.numbers["steps"].push_back(
          {{"rows", rows}, {"ms", ms}, {"tokens_per_s", ms > 0 ? rows / ms * 1e3 : 0}});
    const double step_ms = decode.StepMs(1, 0);
    const double rate = step_ms > 0 ? double(decode_.weight_bytes) / step_ms * 1e3 : 0;
    answer.numbers.update({{"device", decode.device},
                           {"weight_bytes_per_s", rate},
                           {"published_bandwidth", s_.bandwidth > 0 ? Json(s_.bandwidth) : Json()}});
    const double share = s_.bandwidth > 0 ? rate / s_.bandwidth : 0;
    if (!s_.metal) {
      answer.reason = fmt::format("{} decodes here, which is no GPU of a Mac", decode.device);
    } else if (share == 0) {
      answer.reason = "this chip's bandwidth is not among the published ones (profiles/)";
    } else if (share > 1) {
      answer.reason =
          "impossible: more bytes a second than the chip's memory gives; the model lies in a cache, or "
          "nothing was computed";
    } else {
      answer.outcome = share >= kLeastBandwidthShare ? Outcome::kProved : Outcome::kRefuted;
      answer.reason = fmt::format("a step reads weights at {:.0f} % of the chip's bandwidth", share * 100);
    }
    Set("gpu_speed", std::move(answer));
  }

  Answer WithoutRuntime() const { return {Outcome::kNotRun, "Core ML did not run this bundle here"}; }

  void Compile() {
    if (!runtime_) {
      Set("compile", WithoutRuntime());
      Set("compile_time", WithoutRuntime());
      return;
    }
    Answer compile{Outcome::kProved, "every package compiled and every function that was wanted ran", {}},
        time;
    std::vector<std::string> broken;
    if (!runtime_->disabled.empty()) broken.push_back(runtime_->disabled);
    double slowest = 0;
    bool compiled = false;
    for (const FunctionReport& f : runtime_->functions) {
      if (!f.disabled.empty()) broken.push_back(fmt::format("{}: {}", FunctionLabel(f), f.disabled));
      compile.numbers["functions"].push_back(
          {{"function", FunctionLabel(f)}, {"predictions", f.predictions}, {"disabled", f.disabled}});
      time.numbers["functions"].push_back({{"function", FunctionLabel(f)},
                                           {"compiled_now", f.compiled_here},
                                           {"compile_ms", f.compile_ms},
                                           {"load_ms", f.load_ms}});
      slowest = std::max(slowest, f.compile_ms + f.load_ms);
      compiled |= f.compiled_here;
    }
    compile.numbers.update({{"retries", runtime_->retries},
                            {"reloads", runtime_->reloads},
                            {"recompiles", runtime_->recompiles},
                            {"fallbacks", runtime_->fallbacks},
                            {"copies", runtime_->copies},
                            {"distrusted_strides", runtime_->distrusted}});
    if (!broken.empty())
      compile = {Outcome::kRefuted, fmt::format("{}", fmt::join(broken, "; ")), compile.numbers};
    Set("compile", std::move(compile));
    time.outcome = !compiled                      ? Outcome::kNotRun
                   : slowest <= kMostFirstStartMs ? Outcome::kProved
                                                  : Outcome::kRefuted;
    time.reason = compiled
                      ? fmt::format("the slowest function took {:.1f} s to compile and load", slowest / 1e3)
                      : "all was compiled before; remove the folder of compiled models to time it";
    Set("compile_time", std::move(time));
  }

  void Placement() {
    if (!runtime_) {
      Set("placement", WithoutRuntime());
      Set("engagement", WithoutRuntime());
      return;
    }
    Answer placement, engagement;
    std::vector<std::string> elsewhere, idle;
    int audited = 0, timed = 0;
    for (const FunctionReport& f : runtime_->functions) {
      const bool planned = f.placement || (f.verdict && f.verdict->audited);
      if (planned) {
        const double share = f.placement ? f.placement->ShareOfOps() : f.verdict->share_of_ops;
        const double share_of_cost = f.placement ? f.placement->ShareOfCost() : f.verdict->share_of_cost;
        Json ops = Json::object();
        if (f.placement)
          for (const PlannedOp& op : f.placement->elsewhere) {
            Json& count = ops[op.type + " on " + op.device];
            count = (count.is_null() ? 0 : count.get<int>()) + 1;
          }
        placement.numbers["functions"].push_back({{"function", FunctionLabel(f)},
                                                  {"share_of_ops", share},
                                                  {"share_of_cost", share_of_cost},
                                                  {"elsewhere", ops}});
        ++audited;
        if (share < 1) elsewhere.push_back(FunctionLabel(f));
      }
      if (f.verdict && f.verdict->engagement) {
        const Engagement& e = *f.verdict->engagement;
        engagement.numbers["functions"].push_back({{"function", FunctionLabel(f)},
                                                   {"verdict", Name(e.verdict)},
                                                   {"engine_ms", e.engine_ms},
                                                   {"cpu_ms", e.cpu_ms}});
        timed += e.verdict != Engagement::Verdict::kUnknown;
        if (e.verdict == Engagement::Verdict::kNotEngaged) idle.push_back(FunctionLabel(f));
      }
    }
    placement.outcome = audited == 0        ? Outcome::kNotRun
                        : elsewhere.empty() ? Outcome::kProved
                                            : Outcome::kRefuted;
    placement.reason = audited == 0 ? "Core ML gave no plan"
                       : elsewhere.empty()
                           ? "every operation of every function is planned on the Neural Engine"
                           : fmt::format("operations run elsewhere in {}", fmt::join(elsewhere, ", "));
    engagement.outcome = !idle.empty() ? Outcome::kRefuted : timed > 0 ? Outcome::kProved : Outcome::kNotRun;
    engagement.reason = !idle.empty()
                            ? fmt::format("as slow as the processor alone: {}", fmt::join(idle, ", "))
                        : timed > 0 ? "functions are clearly faster than on the processor alone"
                                    : "the functions are too short to tell, or nobody timed them";
    placed_ = placement.outcome;
    Set("placement", std::move(placement));
    Set("engagement", std::move(engagement));
  }

  // What this bundle's own choices say, given where its operations ran.
  void Formats() {
    const std::string command = "export it another way and compare the reports";
    Set("attention_form", {Outcome::kNotRun,
                           fmt::format("{}: {}", command, FindClaim("attention_form").command),
                           {{"attention", mil::Name(s_.bundle->lowering.attention)}}});
    const bool plain = s_.bundle->format == WeightFormat::kFp16;
    Set("weight_format", {plain ? Outcome::kNotRun : placed_,
                          plain ? "this bundle is fp16; export --weights int8 and lut4, and examine those"
                                : fmt::format("{} weights: as placement says", Name(s_.bundle->format)),
                          {{"weights", Name(s_.bundle->format)}}});
    Json shards = Json::array();
    for (const BundleShard& shard : s_.bundle->shards) shards.push_back(shard.weight_bytes);
    Set("shard_size",
        {placed_, "packages of these sizes: as placement says", {{"weight_bytes", std::move(shards)}}});
  }

  AneReport Collect() {
    AneReport report{s_.version, s_.machine, s_.os_build, s_.stand_in, BundleJson(), {}, std::move(costs_)};
    for (const Claim& claim : Claims()) {
      AneCheck check{claim.number, std::string(claim.name), Outcome::kNotRun, Json::object(), ""};
      if (const auto found = answers_.find(check.name); found != answers_.end()) {
        Answer& answer = found->second;
        check.outcome = answer.outcome;
        check.numbers = std::move(answer.numbers);
        check.reason = std::move(answer.reason);
        // Wrong values are wrong wherever they come from; nothing else here says anything of a Neural Engine.
        const bool wrong = check.name == "numerics" && check.outcome == Outcome::kRefuted;
        if (!s_.stand_in.empty() && check.outcome != Outcome::kNotRun && !wrong) {
          check.outcome = Outcome::kNotRun;
          check.reason = fmt::format("of {}, which is no Neural Engine: {}", s_.stand_in, check.reason);
        }
      } else {
        check.reason = fmt::format("not by this command: {}", claim.command);
      }
      report.checks.push_back(std::move(check));
    }
    return report;
  }

  Json BundleJson() const {
    Json functions = Json::array();
    for (const mil::PrefillShape& f : s_.bundle->functions) functions.push_back(mil::FunctionName(f));
    int64_t bytes = 0;
    for (const BundleShard& shard : s_.bundle->shards) bytes += shard.weight_bytes;
    return {{"family", s_.bundle->family},
            {"digest", fmt::format("{:016x}", BundleDigest(*s_.bundle))},
            {"layers", s_.spec->layers.size()},
            {"width", s_.spec->width},
            {"weights", Name(s_.bundle->format)},
            {"weight_bytes", bytes},
            {"packages", s_.bundle->shards.size()},
            {"attention", mil::Name(s_.bundle->lowering.attention)},
            {"functions", functions}};
  }

  const AneSubject& s_;
  CalibrationDevices devices_;  // until they are timed, which is last
  const DeviceInfo decode_;
  const std::function<void(const AneProgress&)>& progress_;
  std::map<std::string, Answer> answers_;
  KvGoldens goldens_;
  std::optional<RuntimeReport> runtime_;
  std::optional<MachineCosts> costs_;
  Outcome placed_ = Outcome::kNotRun;
};

}  // namespace

AneReport Examine(const AneSubject& subject, CalibrationDevices devices,
                  const std::function<void(const AneProgress&)>& progress) {
  return Examination(subject, std::move(devices), progress).Run();
}

}  // namespace pd
