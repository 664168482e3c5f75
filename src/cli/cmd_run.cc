#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/prefill_setup.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/text_flags.h"
#include "engine/bandwidth.h"
#include "engine/generate.h"
#include "text/text_stream.h"

namespace pd::cli {
namespace {

struct RunOptions {
  std::string model, system;
  PromptOptions prompt;
  bool raw = false, json = false, quiet = false;
  EngineFlags engine;
  TextFlags generate;
  int logprobs = -1;  // alternatives for each token; -1: no log-probabilities at all
};

std::vector<TokenId> EncodePrompt(const RunOptions& options, const std::string& text,
                                  const ModelSource& model, const Tokenizer& tokenizer) {
  if (options.raw) return tokenizer.Encode(text);
  const auto chat = OpenChatTemplate(model);
  if (!chat)
    throw Fail(ErrorKind::kUnsupported,
               "{} has no chat template: give --raw to continue the prompt as plain text",
               model.path.string());
  ChatInput input;
  if (!options.system.empty()) input.messages.push_back({{"role", "system"}, {"content", options.system}});
  input.messages.push_back({{"role", "user"}, {"content", text}});
  return tokenizer.Encode(chat->Render(input));
}

// The tokens that prompt and text may have together.
int CheckContext(const RunOptions& options, const ModelSpec& spec, size_t prompt) {
  if (options.generate.context > spec.max_context)
    throw Fail(ErrorKind::kBadRequest, "--ctx: {} tokens, the model's context holds at most {}",
               options.generate.context, spec.max_context);
  const int context = options.generate.context == 0 ? spec.max_context : options.generate.context;
  if (prompt > size_t(context))
    throw Fail(
        ErrorKind::kBadRequest,
        "the prompt has {} tokens and the context holds {}: shorten it by {} tokens{}", prompt, context,
        prompt - size_t(context),
        context < spec.max_context ? fmt::format(", or raise --ctx to at most {}", spec.max_context) : "");
  return context;
}

// Passes text on as it comes and remembers it all.
class Speaker {
 public:
  Speaker(std::shared_ptr<const Tokenizer> tokenizer, const RunOptions& options)
      : tokenizer_(std::move(tokenizer)),
        stream_(tokenizer_, {.continues = options.raw, .stops = options.generate.stops}),
        shows_(!options.json),
        logprobs_(options.logprobs >= 0) {}

  // A TokenSink: false once a stop string is complete, or nobody listens any more.
  bool operator()(const Sampled& sampled) {
    if (logprobs_) {
      TokenReport report{sampled, Piece(sampled.token), {}};
      for (const TokenLogprob& t : sampled.top) report.top_pieces.push_back(Piece(t.token));
      reports_.push_back(std::move(report));
    }
    Say(stream_.Push(sampled.token));
    return !stream_.stopped() && !closed_;
  }

  // The end of the text, and of its last line.
  void Finish() {
    Say(stream_.Flush());
    if (shows_ && !closed_) closed_ = !WriteOutput("\n");
  }

  bool closed() const { return closed_; }
  const std::string& text() const { return text_; }
  std::vector<TokenReport> TakeReports() { return std::move(reports_); }

 private:
  void Say(const std::string& delta) {
    text_ += delta;
    if (shows_ && !closed_ && !delta.empty()) closed_ = !WriteOutput(delta);
  }
  std::string Piece(TokenId id) const { return tokenizer_->Piece(id, false, false).bytes; }

  std::shared_ptr<const Tokenizer> tokenizer_;
  TextStream stream_;
  bool shows_, logprobs_;
  bool closed_ = false;
  std::string text_;
  std::vector<TokenReport> reports_;
};

// Rates of both phases. The machine's bandwidth is measured when nobody has yet, after the text is out.
void AddRates(RunReport& report, const Engine& engine, const OpenOptions& open) {
  const ModelSpec& spec = engine.spec();
  const DeviceInfo& decode = engine.decode_info();
  const int threads = ThreadCount(open, decode);
  const RequestStats& stats = report.result.stats;
  const DeviceInfo* prefill = &decode;
  for (size_t unit = 0; unit < engine.prefill_units(); ++unit)
    if (engine.prefill_info(unit).name == stats.prefill_device) prefill = &engine.prefill_info(unit);
  report.prefill = PrefillRates(spec, stats, PeakFlops(prefill->physical, ThreadCount(open, *prefill)));
  const BandwidthStore store = MachineRates();
  const bool measurable = decode.physical.kind == PhysicalDevice::Kind::kCpu && stats.decode_tokens > 0;
  const BandwidthKey key = BandwidthKeyFor(decode.weight_bytes, threads);
  if (measurable) report.bandwidth = store.Get(key);
  const auto rates = [&] {
    return DecodeRates(spec, stats, decode, PeakFlops(decode.physical, threads), report.bandwidth);
  };
  report.decode = rates();
  if (report.decode.bandwidth_share > 1) {  // something else ran when it was measured
    report.bandwidth = store.Improve(key);
    report.decode = rates();
  }
}

void CheckOptions(const RunOptions& options) {
  CheckEngineFlags(options.engine);
  if (options.raw && !options.system.empty())
    throw Fail(ErrorKind::kBadRequest, "--system: a plain completion (--raw) has no system message");
  if (options.logprobs >= 0 && !options.json)
    throw Fail(ErrorKind::kBadRequest, "--logprobs: log-probabilities are printed with --json only");
  CheckTextFlags(options.generate);
}

int Run(RunOptions options) {
  CheckOptions(options);
  const Interrupt interrupt;
  const std::string prompt = ReadPrompt(options.prompt, interrupt);

  RunReport report;
  const auto start = std::chrono::steady_clock::now();
  ModelSource model = OpenModel(ModelPath(options.model));
  const auto tokenizer = OpenTokenizer(model);
  const auto ids = EncodePrompt(options, prompt, model, *tokenizer);
  const int context = CheckContext(options, model.spec, ids.size());
  const int tokens = int(std::min<int64_t>(context, int64_t(ids.size()) + options.generate.max_tokens));
  if (options.engine.prefix_cache_folder.empty()) options.engine.prefix_cache_mb = 0;
  const auto engine = OpenEngine(options.engine, model, tokens, options.quiet, interrupt);
  report.load_ms = MillisecondsSince(start);

  if (options.generate.sample.temperature > 0)
    report.seed = options.generate.seed ? *options.generate.seed : std::random_device{}();
  options.generate.sample.seed = report.seed.value_or(0);
  options.generate.sample.top_logprobs = std::max(options.logprobs, 0);
  Speaker speaker(tokenizer, options);
  report.result =
      Generate(*engine,
               {.prompt = ids,
                .max_tokens = options.generate.max_tokens,
                .end_tokens = tokenizer->end_ids(),
                .sample = options.generate.sample,
                .bias = options.generate.bias,
                .context = context,
                .prefill_chunk = options.engine.prefill_chunk,
                .prefill_is_named = options.engine.prefill != kAuto || !options.engine.bundle.empty()},
               std::ref(speaker), &interrupt.flag());
  speaker.Finish();
  if (speaker.closed()) return kOutputClosed;

  const bool cancelled = report.result.finish == FinishReason::kCancelled;
  if (options.json || !options.quiet) {
    report.model = model.path.string();
    report.text = speaker.text();
    report.prompt_tokens = int(ids.size());
    report.logprobs = speaker.TakeReports();
    report.decode_device = engine->decode_info().name;
    RequestStats& stats = report.result.stats;
    stats = WithDirectPrefill(std::move(stats), report.decode_device);
    report.prefill_device = stats.prefill_device.empty() ? report.decode_device : stats.prefill_device;
    AddRates(report, *engine, ToOpenOptions(options.engine, model, {}));
  }
  if (!options.quiet) fmt::print(stderr, "{}{}", options.json ? "" : "\n", ToTable(report));
  if (options.json && !WriteOutput(ToLine(ToJson(report)))) return kOutputClosed;
  return cancelled ? ExitCode(ErrorKind::kCancelled) : kOk;
}

}  // namespace

void AddRun(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("run", "Generate text");
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  AddModel(*command, o.model);
  AddPrompt(*command, o.prompt);
  command->add_option("--system", o.system, "system message for the chat template");
  command->add_flag("--raw", o.raw, "continue the prompt as plain text, without the chat template");
  AddPrefillFlags(*command, o.engine);
  AddDeviceFlags(*command, o.engine);
  AddPrefixCacheFlags(*command, o.engine);
  // One request profits from what others computed only if it was kept over the restart.
  command->get_option("--prefix-cache-mb")->needs("--prefix-cache-dir");
  AddTextFlags(*command, o.generate);
  AddInteger(*command, "--logprobs", o.logprobs, {0, 20},
             "with --json: log-probabilities, and of N alternatives");
  command->add_flag("--json", o.json, "print one JSON object instead of the text");
  command->add_flag("-q,--quiet", o.quiet, "no statistics and no progress bar");
  command->footer("Prompt and text of a file or standard input: one newline at the end is dropped.");
  command->callback([&action, options] { action = [options] { return Run(*options); }; });
}

}  // namespace pd::cli
