#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/cores.h"
#include "base/json.h"
#include "base/percentile.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "planning/calibration.h"
#include "planning/planner.h"
#include "planning/timing.h"
#include "serving/lane_thread.h"
#include "session/bundles.h"

namespace pd::cli {
namespace {

using Clock = std::chrono::steady_clock;

// None of them is a length that calibration measures.
constexpr int kUnseen[] = {20, 45, 90, 150, 200, 310, 440, 600, 900, 1300, 1800, 2400};
constexpr int kKnown = 128;  // that calibration does measure
constexpr int kChunk = 512;

struct Options {
  std::string model, bundle;
  int repeat = 5;
  std::pair<bool, bool> parts = {true, true};  // predictions, choices
  bool json = false, quiet = false;
};

// ---- predicted against measured ----

struct Prediction {
  std::string device;
  int tokens = 0;
  double predicted_ms = 0, measured_ms = 0;
  double drift = 1;  // what calibration measured took so many times as long when measured again beside this
  double Error() const { return predicted_ms / measured_ms - 1; }
  double NetError() const { return predicted_ms * drift / measured_ms - 1; }
};

// ---- choices ----

// A prompt that comes while texts run, perhaps just behind another prompt.
struct Case {
  int tokens = 0, texts = 0, ahead = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int tokens : {33, 129, 501, 1001})
    for (const Case& around : {Case{0, 0, 0}, Case{0, 3, 0}, Case{0, 0, 400}})
      cases.push_back({tokens, around.texts, around.ahead});
  return cases;
}

struct Outcome {
  std::string machine;
  Case about;
  double unit_ms = 0, direct_ms = 0;  // what everybody waits when the unit, or the decode device, reads it
  bool chose_unit = false;
  double Chosen(bool unit) const { return unit ? unit_ms : direct_ms; }
  bool Good(bool unit) const { return Chosen(unit) <= 1.1 * std::min(unit_ms, direct_ms); }
};

// One engine of a unit and a decode device, whose prompts go where they are told.
class Arena {
 public:
  Arena(ModelSource& model, Devices opened, MachineCosts costs, const Interrupt& interrupt)
      : planner_(std::move(costs)), interrupt_(interrupt) {
    EngineDevices devices;
    devices.prefill = std::move(opened.prefill);
    devices.decode = std::move(opened.decode);
    EngineOptions options;
    options.leave_lane = opened.leave_thread;
    options.choose = [this](const PrefillQuestion& question) {
      const std::lock_guard lock(mutex_);
      if (question.request == watched_) chosen_ = planner_.Choose(question);
      PrefillChoice choice{std::nullopt, kChunk, {}};
      if (question.request != watched_ || told_unit_) choice.unit = 0;
      return choice;
    };
    engine_ = std::make_unique<Engine>(model.spec, std::move(devices), std::move(options));
  }

  // What everybody waits because of the prompt: its first token, that of the prompt ahead, and the time that
  // each text loses until then.
  double Waiting(const Case& about, bool unit) {
    std::vector<std::shared_ptr<Text>> texts;
    for (int i = 0; i < about.texts; ++i) texts.push_back(Start(2, 4000, false, unit));
    for (const auto& text : texts) Wait(texts, [&] { return text->tokens >= 4; });
    constexpr int kWatch = 24;  // tokens of each text that say how fast they are alone
    const auto alone = Clock::now();
    const auto before = Tokens(texts);
    Wait(texts, [&] { return Tokens(texts) >= before + kWatch * about.texts; });
    const double gap =
        about.texts > 0 ? MillisecondsSince(alone) * about.texts / double(Tokens(texts) - before) : 0;

    const auto asked = Clock::now();
    const int64_t tokens = Tokens(texts);
    const auto ahead = about.ahead > 0 ? Start(about.ahead, 1, false, unit) : nullptr;
    const auto prompt = Start(about.tokens, 1, true, unit);
    const RequestResult read = prompt->end.get();
    if (read.finish == FinishReason::kError) throw Error(read.failure.kind, read.failure.message);
    const double first = MillisecondsSince(asked);
    double waiting = first + about.texts * first - double(Tokens(texts) - tokens) * gap;
    if (ahead) waiting += ahead->end.get().stats.first_token_ms;
    for (const auto& text : texts) engine_->Cancel(text->id);
    for (const auto& text : texts) text->end.get();
    return waiting;
  }

  // The planner's answer to the last prompt.
  bool ChoseUnit() {
    const std::lock_guard lock(mutex_);
    return chosen_.unit.has_value();
  }

 private:
  struct Text {
    std::atomic<int> tokens = 0;
    std::future<RequestResult> end;
    RequestId id = 0;
  };

  void Wait(const std::vector<std::shared_ptr<Text>>& texts, const std::function<bool()>& done) {
    while (!done()) {
      interrupt_.Check();
      for (const auto& text : texts)
        if (text->end.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
          throw Fail(ErrorKind::kBadRequest, "the model's context of {} tokens is too short for this",
                     engine_->spec().max_context);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static int64_t Tokens(const std::vector<std::shared_ptr<Text>>& texts) {
    int64_t sum = 0;
    for (const auto& text : texts) sum += text->tokens;
    return sum;
  }

  std::shared_ptr<Text> Start(int prompt, int output, bool watched, bool unit) {
    auto text = std::make_shared<Text>();
    const auto end = std::make_shared<std::promise<RequestResult>>();
    text->end = end->get_future();
    Request request;
    for (int i = 0; i < prompt; ++i)
      request.prompt.push_back(TokenId((i * 31 + prompt) % engine_->spec().vocab));
    request.max_tokens = std::min(output, engine_->spec().max_context - prompt);
    request.prefill_chunk = kChunk;
    const std::lock_guard lock(mutex_);  // before the engine asks about it
    text->id =
        engine_->Submit(std::move(request), {[t = text](const Sampled&) {
                                               ++t->tokens;
                                               return true;
                                             },
                                             [end](RequestResult r) { end->set_value(std::move(r)); }});
    if (watched) watched_ = text->id, told_unit_ = unit;
    return text;
  }

  const Planner planner_;
  const Interrupt& interrupt_;
  std::mutex mutex_;  // of the next three: the engine's thread asks, this one tells
  RequestId watched_ = 0;
  bool told_unit_ = false;
  PrefillChoice chosen_;
  std::unique_ptr<Engine> engine_;
};

class PlannerBench {
 public:
  PlannerBench(const Options& options, ModelSource& model, const Interrupt& interrupt)
      : options_(options), model_(model), interrupt_(interrupt), bar_("planner", !options.quiet) {}

  void Run() {
    const int processors = int(AvailableCores().size());
    if (processors < 2) throw Fail(ErrorKind::kUnsupported, "bench planner compares two processors with one");
    const auto bundle = FindBundle(options_.bundle, CacheFolder(), model_);
    one_lane_.threads = processors;
    one_thread_.threads = 1;
    if (bundle) one_lane_.bundle = *bundle;
    two_lanes_.prefill_threads = processors / 2;
    two_lanes_.decode_threads = processors - processors / 2;
    const OpenUnit one_thread = [&] { return OpenPrefillDevice(model_, kDefaultDevice, one_thread_); };
    if (options_.parts.first) {
      Predict("cpu, 1 processor", one_thread);
      if (bundle) Predict("", [&] { return OpenPrefillDevice(model_, BundleDevice(), one_lane_); });
      Predict(fmt::format("cpu, {} processors", processors), nullptr);
    }
    if (!options_.parts.second) return;
    const MachineCosts one = Calibrated(OpenOneLane(one_thread));
    Choose(fmt::format("1 processor, or all {} that decode", processors), OpenOneLane(one_thread), one);
    const MachineCosts two = Calibrated(OpenTwoLanes());
    Choose("a processor of its own, or the one that decodes", OpenTwoLanes(), two);
  }

  const std::vector<Prediction>& predictions() const { return predictions_; }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  void Step() {
    interrupt_.Check();
    bar_.Show(++done_, 400);
  }

  using OpenUnit = std::function<std::unique_ptr<PrefillDevice>()>;

  // A unit, if any, beside a device of all processors that decodes.
  Devices OpenOneLane(const OpenUnit& open) {
    Devices devices;
    if (open) devices.prefill.push_back(open());
    devices.decode = OpenDevice(model_, kDefaultDevice, one_lane_);
    return devices;
  }

  // The same device twice, with half of the processors each.
  Devices OpenTwoLanes() { return OpenDevices(model_, kDefaultDevice, kDefaultDevice, two_lanes_); }

  MachineCosts Calibrated(Devices devices) {
    return Calibrate({std::move(devices.prefill), std::move(devices.decode), devices.leave_thread},
                     model_.spec, {[&](int, int) { Step(); }});
  }

  // Calibrates, and measures right after that: the unit, named as it names itself if `name` is empty; without
  // one the device that decodes.
  void Predict(const std::string& name, const OpenUnit& open) {
    const MachineCosts costs = Calibrated(OpenOneLane(open));
    const PrefillCost& cost = open ? costs.units[0] : costs.direct;
    Devices devices = OpenOneLane(open);
    if (open) UseMeasuredCalls(*devices.prefill[0], cost);
    LaneThread thread(devices.decode->Info().physical, devices.leave_thread);
    const int vocab = model_.spec.vocab, known = std::min(kKnown, model_.spec.max_context);
    const auto time = [&](int tokens) {
      double ms = 0;
      thread.Do([&] {
        ms = (open ? TimePrefill(*devices.prefill[0], vocab, 0, tokens, kChunk, {options_.repeat})
                   : TimePrompt(*devices.decode, vocab, 0, tokens, kChunk, {options_.repeat}))
                 .median_ms;
      });
      return ms;
    };
    for (const int tokens : kUnseen) {
      Step();
      if (tokens > model_.spec.max_context) continue;
      const double again = time(known), ms = time(tokens);
      predictions_.push_back({name.empty() ? cost.device : name, tokens, cost.PromptMs(0, tokens, kChunk), ms,
                              again / cost.PromptMs(0, known, kChunk)});
    }
    thread.Do([&] { devices.prefill.clear(), devices.decode.reset(); });
  }

  void Choose(const std::string& machine, Devices devices, const MachineCosts& costs) {
    Arena arena(model_, std::move(devices), costs, interrupt_);
    for (const Case& about : Cases()) {
      if (about.tokens >= model_.spec.max_context) continue;
      Outcome outcome{machine, about, 0, 0, false};
      std::array<std::vector<double>, 2> waiting;
      for (int run = 0; run < 3; ++run)
        for (const bool unit : {false, true}) {
          Step();
          waiting[size_t(unit)].push_back(arena.Waiting(about, unit));
        }
      outcome.chose_unit = arena.ChoseUnit();
      for (auto& values : waiting) std::ranges::sort(values);
      outcome.direct_ms = Percentile(waiting[0], 50), outcome.unit_ms = Percentile(waiting[1], 50);
      outcomes_.push_back(std::move(outcome));
    }
  }

  const Options& options_;
  ModelSource& model_;
  const Interrupt& interrupt_;
  ProgressBar bar_;
  OpenOptions one_lane_, one_thread_, two_lanes_;
  size_t done_ = 0;
  std::vector<Prediction> predictions_;
  std::vector<Outcome> outcomes_;
};

struct Errors {
  double median = 0, worst = 0;
};
Errors ErrorsOf(const std::vector<Prediction>& predictions, const std::string& device,
                double (Prediction::*error)() const) {
  std::vector<double> errors;
  for (const Prediction& p : predictions)
    if (p.device == device) errors.push_back(std::abs((p.*error)()));
  std::ranges::sort(errors);
  return {Percentile(errors, 50), Percentile(errors, 100)};
}

std::vector<std::string> DevicesOf(const std::vector<Prediction>& predictions) {
  std::vector<std::string> devices;
  for (const Prediction& p : predictions)
    if (devices.empty() || devices.back() != p.device) devices.push_back(p.device);
  return devices;
}

struct Score {
  int64_t planner = 0, unit = 0, direct = 0, cases = 0;  // cases within 10 % of the best
};
Score ScoreOf(const std::vector<Outcome>& outcomes) {
  Score score;
  for (const Outcome& o : outcomes) {
    score.planner += o.Good(o.chose_unit), score.unit += o.Good(true), score.direct += o.Good(false);
    ++score.cases;
  }
  return score;
}

Json ToJson(const PlannerBench& bench) {
  Json predictions = Json::array(), errors = Json::object(), choices = Json::array();
  for (const Prediction& p : bench.predictions())
    predictions.push_back({{"device", p.device},
                           {"tokens", p.tokens},
                           {"predicted_ms", p.predicted_ms},
                           {"measured_ms", p.measured_ms},
                           {"error", p.Error()},
                           {"drift", p.drift - 1}});
  for (const std::string& device : DevicesOf(bench.predictions())) {
    const Errors all = ErrorsOf(bench.predictions(), device, &Prediction::Error),
                 net = ErrorsOf(bench.predictions(), device, &Prediction::NetError);
    errors[device] = {{"median", all.median},
                      {"worst", all.worst},
                      {"median_without_drift", net.median},
                      {"worst_without_drift", net.worst}};
  }
  for (const Outcome& o : bench.outcomes())
    choices.push_back({{"devices", o.machine},
                       {"tokens", o.about.tokens},
                       {"texts", o.about.texts},
                       {"ahead", o.about.ahead},
                       {"first_ms", o.unit_ms},
                       {"second_ms", o.direct_ms},
                       {"chose", o.chose_unit ? "first" : "second"},
                       {"good", o.Good(o.chose_unit)}});
  const Score score = ScoreOf(bench.outcomes());
  return {{"predictions", predictions},
          {"errors", errors},
          {"choices", choices},
          {"good",
           {{"of", score.cases},
            {"planner", score.planner},
            {"always_first", score.unit},
            {"always_second", score.direct}}}};
}

std::string ToText(const PlannerBench& bench) {
  std::string text;
  if (!bench.predictions().empty()) text += "Prefill, predicted right after calibration and measured\n";
  for (const std::string& device : DevicesOf(bench.predictions())) {
    const Errors all = ErrorsOf(bench.predictions(), device, &Prediction::Error),
                 net = ErrorsOf(bench.predictions(), device, &Prediction::NetError);
    text += fmt::format(
        "\n{}: median error {:.1f} %, worst {:.1f} %; without the machine's drift {:.1f} and {:.1f} %\n",
        device, 100 * all.median, 100 * all.worst, 100 * net.median, 100 * net.worst);
    for (const Prediction& p : bench.predictions())
      if (p.device == device)
        text += fmt::format(
            "  {:>6} tokens: predicted {:>8.1f} ms, measured {:>8.1f} ms, {:+5.1f} %; drift "
            "{:+5.1f} %\n",
            Grouped(p.tokens), p.predicted_ms, p.measured_ms, 100 * p.Error(), 100 * (p.drift - 1));
  }
  if (bench.outcomes().empty()) return text;
  text += "\nWhat everybody waits when the first or the second device reads a prompt\n";
  std::string machine;
  for (const Outcome& o : bench.outcomes()) {
    if (o.machine != machine) text += fmt::format("\n{}\n", machine = o.machine);
    text += fmt::format(
        "  {:>6} tokens, {} texts, {:>3} tokens ahead: {:>8.1f} ms, {:>8.1f} ms; chose the {}{}\n",
        Grouped(o.about.tokens), o.about.texts, o.about.ahead, o.unit_ms, o.direct_ms,
        o.chose_unit ? "first" : "second", o.Good(o.chose_unit) ? "" : ", wrongly");
  }
  const Score s = ScoreOf(bench.outcomes());
  return text + fmt::format(
                    "\nBest, or within 10 % of it: the planner in {} of {}; the first always {}, the second "
                    "always {}\n",
                    s.planner, s.cases, s.unit, s.direct);
}

int RunPlannerBench(const Options& options) {
  const Interrupt interrupt;
  ModelSource model = OpenModel(ModelPath(options.model));
  PlannerBench bench(options, model, interrupt);
  bench.Run();
  return WriteOutput(options.json ? ToLine(ToJson(bench)) : ToText(bench)) ? kOk : kOutputClosed;
}

}  // namespace

void AddBenchPlanner(const Command& bench) {
  const Command command =
      bench.Add("planner", "How well prefill times are predicted, and devices chosen, on this machine");
  auto options = std::make_shared<Options>();
  Options& o = *options;
  AddModel(command, o.model);
  AddBundle(command, o.bundle);
  command.Choice<std::pair<bool, bool>>(
      "--part", o.parts, {{"all", {true, true}}, {"predictions", {true, false}}, {"choices", {false, true}}},
      "only how long prompts take, or only who reads them");
  command.Integer("--repeat", o.repeat, {1, 1000}, "runs of each length, after one that does not count");
  AddJson(command, o.json);
  AddQuiet(command, o.quiet, "no progress bar");
  command.Footer(
      "The cpu with one processor and with all, and the device that runs bundles if the model was exported, "
      "at twelve lengths\n"
      "that calibration does not measure; then 24 prompts, alone, beside running texts and behind another "
      "prompt, each read by\n"
      "both of two devices.\n"
      "Drift: how much longer a length that calibration measured takes when measured again beside each of "
      "the twelve.\n"
      "Takes some minutes; let nothing else run.");
  command.Runs([options] { return RunPlannerBench(*options); });
}

}  // namespace pd::cli
