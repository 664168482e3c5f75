#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/clock.h"
#include "cli/chat_flags.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/text_flags.h"
#include "formats/model_source.h"
#include "planning/bandwidth.h"
#include "session/text_engine.h"
#include "text/chat_template.h"

namespace pd::cli {
namespace {

struct RunOptions {
  std::string model, system;
  Flag system_flag;
  PromptOptions prompt;
  ChatFlags chat;
  bool raw = false, json = false, quiet = false;
  EngineFlags engine;
  TextSettings text;
  int logprobs = -1;  // alternatives for each token; -1: no log-probabilities at all
};

Prompt Encode(const RunOptions& options, const std::string& text, const ChatVariables& chat,
              const TextCodec& codec, const ModelSource& model) {
  if (options.raw) return codec.Plain(text);
  if (!codec.has_chat_template())
    throw Fail(ErrorKind::kUnsupported,
               "{} has no chat template: give --raw to continue the prompt as plain text",
               model.path.string());
  ChatInput input;
  if (options.system_flag.given())  // an empty one, too: it may stand for the template's own
    input.messages.push_back({{"role", "system"}, {"content", options.system}});
  input.messages.push_back({{"role", "user"}, {"content", text}});
  input.tools = chat.tools;
  input.extra = chat.variables;
  return codec.Chat(input);
}

// The tokens that prompt and text may have together.
int CheckContext(const RunOptions& options, const ModelSpec& spec, size_t prompt) {
  if (options.text.context > spec.max_context)
    throw Fail(ErrorKind::kBadRequest, "--ctx: {} tokens, the model's context holds at most {}",
               options.text.context, spec.max_context);
  const int context = options.text.context == 0 ? spec.max_context : options.text.context;
  if (prompt > size_t(context))
    throw Fail(
        ErrorKind::kBadRequest,
        "the prompt has {} tokens and the context holds {}: shorten it by {} tokens{}", prompt, context,
        prompt - size_t(context),
        context < spec.max_context ? fmt::format(", or raise --ctx to at most {}", spec.max_context) : "");
  return context;
}

// Prints text as it comes, and keeps what --logprobs reports.
class Printer {
 public:
  Printer(const TextCodec& codec, const RunOptions& options)
      : codec_(codec), prints_(!options.json), logprobs_(options.logprobs >= 0) {}

  // False once nobody reads the output any more.
  bool Show(const TextDelta& delta) {
    if (logprobs_ && delta.token) {
      TokenReport report{*delta.token, codec_.Piece(delta.token->token), {}};
      for (const TokenLogprob& t : delta.token->top) report.top_pieces.push_back(codec_.Piece(t.token));
      reports_.push_back(std::move(report));
    }
    return Print(delta.text);
  }

  bool EndLine() { return Print("\n"); }
  std::vector<TokenReport> TakeReports() { return std::move(reports_); }

 private:
  bool Print(const std::string& text) {
    if (prints_ && !closed_ && !text.empty()) closed_ = !WriteOutput(text);
    return !closed_;
  }

  const TextCodec& codec_;
  bool prints_, logprobs_;
  bool closed_ = false;
  std::vector<TokenReport> reports_;
};

// Rates of both phases. The machine's bandwidth is measured when nobody has yet, after the text is out; not
// for one that was interrupted, whose reader wants to leave.
void AddRates(RunReport& report, const Engine& engine, const OpenOptions& open) {
  const ModelSpec& spec = engine.spec();
  const DeviceInfo& decode = engine.decode_info();
  const int threads = ThreadCount(open, decode);
  const RequestStats& stats = report.result.stats;
  const DeviceInfo* prefill = &decode;
  for (size_t unit = 0; unit < engine.prefill_units(); ++unit)
    if (!stats.direct && engine.prefill_info(unit).name == stats.prefill_device)
      prefill = &engine.prefill_info(unit);
  report.prefill = PrefillRates(spec, stats, PeakFlops(prefill->physical, ThreadCount(open, *prefill)));
  const BandwidthStore store = MachineRates();
  const bool measurable = decode.physical.kind == PhysicalDevice::Kind::kCpu && stats.decode_tokens > 0 &&
                          report.result.finish != FinishReason::kCancelled;
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
  if (options.raw && options.system_flag.given())
    throw Fail(ErrorKind::kBadRequest, "--system: a plain completion (--raw) has no system message");
  if (options.logprobs >= 0 && !options.json)
    throw Fail(ErrorKind::kBadRequest, "--logprobs: log-probabilities are printed with --json only");
  CheckTextFlags(options.text);
}

int Run(RunOptions options) {
  CheckOptions(options);
  const Interrupt interrupt;
  const ChatVariables chat = ReadChatFlags(options.chat, options.raw, options.prompt.Input(), interrupt);
  const std::string prompt = ReadPrompt(options.prompt, interrupt);

  RunReport report;
  const auto start = std::chrono::steady_clock::now();
  ModelSource model = OpenModel(ModelPath(options.model));
  const auto codec = std::make_shared<const TextCodec>(model);
  TextRequest request{Encode(options, prompt, chat, *codec, model), options.text};
  report.prompt_tokens = int(request.prompt.ids.size());
  const int context = CheckContext(options, model.spec, request.prompt.ids.size());
  const int tokens = int(std::min<int64_t>(context, int64_t(report.prompt_tokens) + options.text.max_tokens));
  if (options.engine.prefix_cache_folder.empty()) options.engine.prefix_cache_mb = 0;
  TextEngine engine(codec, LoadEngine(options.engine, model, tokens, options.quiet, interrupt));
  report.load_ms = MillisecondsSince(start);

  request.settings.context = context;
  request.settings.sample.top_logprobs = std::max(options.logprobs, 0);
  request.settings.prefill_chunk = options.engine.prefill_chunk;
  request.settings.prefill_is_named = options.engine.prefill != kAuto || !options.engine.bundle.empty();
  Printer printer(*codec, options);
  TextAnswer answer = engine.Generate(
      std::move(request), [&](const TextDelta& delta) { return printer.Show(delta); }, &interrupt.flag());
  if (!printer.EndLine()) return kOutputClosed;

  const bool cancelled = answer.result.finish == FinishReason::kCancelled;
  if (options.json || !options.quiet) {
    report.model = model.path.string();
    report.text = std::move(answer.text);
    report.seed = answer.seed;
    report.result = std::move(answer.result);
    report.logprobs = printer.TakeReports();
    report.decode_device = engine.engine().decode_info().name;
    const RequestStats& stats = report.result.stats;
    report.prefill_device = stats.prefill_device.empty() ? report.decode_device : stats.prefill_device;
    AddRates(report, engine.engine(), ToOpenOptions(ToSettings(options.engine), model, {}));
  }
  if (!options.quiet) Report((options.json ? "" : "\n") + ToTable(report));
  if (options.json && !WriteOutput(ToJsonLine(report))) return kOutputClosed;
  return cancelled ? ExitCode(ErrorKind::kCancelled) : kOk;
}

}  // namespace

void AddRun(const Command& program) {
  const Command command = program.Add("run", "Generate text");
  auto options = std::make_shared<RunOptions>();
  RunOptions& o = *options;
  AddModel(command, o.model);
  AddPrompt(command, o.prompt);
  o.system_flag = command.AnyText("--system", o.system, "system message for the chat template");
  AddChatFlags(command, o.chat);
  command.Switch("--raw", o.raw, "continue the prompt as plain text, without the chat template");
  AddPrefillFlags(command, o.engine);
  AddDeviceFlags(command, o.engine);
  PrefixCacheFlags cache = AddPrefixCacheFlags(command, o.engine);
  cache.memory.Needs(cache.folder);  // without it a single request has nothing to reuse
  AddTextFlags(command, o.text);
  command.Integer("--logprobs", o.logprobs, {0, 20}, "with --json: log-probabilities, and of N alternatives");
  command.Switch("--json", o.json, "print one JSON object instead of the text");
  AddQuiet(command, o.quiet, "no statistics and no progress bar");
  command.Footer(
      "Of a prompt that is read from a file or standard input one newline at the end is dropped, and a byte "
      "order\n"
      "mark at the beginning; CR LF and CR become LF. -p is taken as it is.");
  command.Runs([options] { return Run(*options); });
}

}  // namespace pd::cli
