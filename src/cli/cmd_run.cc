#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>

#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "coreml/export/bundle.h"
#include "engine/bandwidth.h"
#include "open/memory.h"
#include "open/open.h"
#include "text/text_stream.h"

namespace pd::cli {
namespace {

constexpr const char* kCoreMl = "coreml";  // the device whose weights are a bundle

struct RunOptions {
  std::string model, system, bundle;
  PromptOptions prompt;
  bool raw = false, json = false, quiet = false;
  std::string prefill = "cpu", decode = "cpu";
  int quantise_bits = 0;
  int prefill_chunk = 512, threads = 0, max_tokens = 256, context = 0;
  int logprobs = -1;  // alternatives for each token; -1: no log-probabilities at all
  SampleSpec sample;
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, float>> bias;
  std::vector<std::string> stops;
};

class Timer {
 public:
  double Milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
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
  if (options.context > spec.max_context)
    throw Fail(ErrorKind::kBadRequest, "--ctx: {} tokens, the model's context holds at most {}",
               options.context, spec.max_context);
  const int context = options.context == 0 ? spec.max_context : options.context;
  if (prompt > size_t(context))
    throw Fail(
        ErrorKind::kBadRequest,
        "the prompt has {} tokens and the context holds {}: shorten it by {} tokens{}", prompt, context,
        prompt - size_t(context),
        context < spec.max_context ? fmt::format(", or raise --ctx to at most {}", spec.max_context) : "");
  return context;
}

// The exported model that device coreml runs.
std::filesystem::path BundleFor(const RunOptions& options, ModelSource& model) {
  if (!options.bundle.empty()) return options.bundle;
  std::filesystem::path path = DefaultBundlePath(model);
  if (!std::filesystem::exists(path / kBundleFile))
    throw Fail(
        ErrorKind::kNotFound,
        "--prefill coreml: {} was not exported yet: run 'pd-engine export {}', or name a bundle with --ane",
        model.path.string(), model.path.string());
  return path;
}

Devices OpenAll(const RunOptions& options, ModelSource& model, int tokens, const Interrupt& interrupt) {
  const std::string names[] = {options.prefill, options.decode};
  CheckMemory(model, names, tokens, AvailableMemory(), options.quantise_bits);
  ProgressBar bar("loading", !options.quiet);
  OpenOptions open;
  open.threads = options.threads;
  if (options.prefill == kCoreMl) open.bundle = BundleFor(options, model);
  open.quantise_bits = options.quantise_bits;
  if (!options.quiet) open.note = [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); };
  open.progress = [&](size_t done, size_t total) {
    interrupt.Check();
    bar.Show(done, total);
  };
  return OpenDevices(model, options.prefill, options.decode, open);
}

// Passes text on as it comes and remembers it all.
class Speaker {
 public:
  Speaker(std::shared_ptr<const Tokenizer> tokenizer, const RunOptions& options)
      : tokenizer_(std::move(tokenizer)),
        stream_(tokenizer_, {.continues = options.raw, .stops = options.stops}),
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
void AddRates(RunReport& report, const ModelSpec& spec, const Devices& devices, int threads) {
  const DeviceInfo &prefill = devices.prefill->Info(), &decode = devices.decode->Info();
  const GenerateStats& stats = report.result.stats;
  report.prefill = PrefillRates(spec, stats, PeakFlops(prefill.physical, threads));
  const BandwidthStore store(CacheFolder().value_or(".") / "machine.json");
  const bool measurable = decode.physical.kind == PhysicalDevice::Kind::kCpu && stats.decode_tokens > 0;
  const BandwidthKey key = BandwidthKeyFor(decode.weight_bytes, threads);
  if (measurable) report.bandwidth = store.Get(key);
  const auto rates = [&] {
    return DecodeRates(spec, stats, decode, PeakFlops(decode.physical, threads), report.bandwidth);
  };
  report.decode = rates();
  if (report.decode.bandwidth_used > 1) {  // something else ran when it was measured
    report.bandwidth = store.Improve(key);
    report.decode = rates();
  }
}

void CheckOptions(const RunOptions& options) {
  CheckPrefillDeviceName(options.prefill);
  CheckDeviceName(options.decode);
  if (!options.bundle.empty() && options.prefill != kCoreMl)
    throw Fail(ErrorKind::kBadRequest, "--ane: only --prefill {} runs an exported model", kCoreMl);
  if (options.quantise_bits != 0 && options.prefill != "mlx" && options.decode != "mlx")
    throw Fail(ErrorKind::kBadRequest, "--quantize: only mlx quantises at load; add --decode mlx");
  if (options.raw && !options.system.empty())
    throw Fail(ErrorKind::kBadRequest, "--system: a plain completion (--raw) has no system message");
  if (options.logprobs >= 0 && !options.json)
    throw Fail(ErrorKind::kBadRequest, "--logprobs: log-probabilities are printed with --json only");
  for (const std::string& stop : options.stops)
    if (stop.empty())
      throw Fail(ErrorKind::kBadRequest, "--stop: an empty string would stop every text at once");
}

int Run(RunOptions options) {
  CheckOptions(options);
  const Interrupt interrupt;
  const std::string prompt = ReadPrompt(options.prompt, interrupt);

  RunReport report;
  const Timer load;
  ModelSource model = OpenModel(ModelPath(options.model));
  const auto tokenizer = OpenTokenizer(model);
  const auto ids = EncodePrompt(options, prompt, model, *tokenizer);
  const int context = CheckContext(options, model.spec, ids.size());
  const int tokens = int(std::min<int64_t>(context, int64_t(ids.size()) + options.max_tokens));
  const Devices devices = OpenAll(options, model, tokens, interrupt);
  report.load_ms = load.Milliseconds();

  if (options.sample.temperature > 0) report.seed = options.seed ? *options.seed : std::random_device{}();
  options.sample.seed = report.seed.value_or(0);
  options.sample.bias = options.bias;
  options.sample.top_logprobs = std::max(options.logprobs, 0);
  Speaker speaker(tokenizer, options);
  report.result = Generate(model.spec, *devices.prefill, *devices.decode,
                           {.prompt = ids,
                            .max_tokens = options.max_tokens,
                            .end_tokens = tokenizer->end_ids(),
                            .sample = options.sample,
                            .context = context,
                            .prefill_chunk = options.prefill_chunk,
                            .cancel = &interrupt.flag()},
                           std::ref(speaker));
  speaker.Finish();
  if (speaker.closed()) return kOutputClosed;

  const bool cancelled = report.result.finish == FinishReason::kCancelled;
  if (options.json || !options.quiet) {
    report.model = model.path.string();
    report.text = speaker.text();
    report.prompt_tokens = int(ids.size());
    report.logprobs = speaker.TakeReports();
    report.prefill_device = devices.prefill->Info().name, report.decode_device = devices.decode->Info().name;
    AddRates(report, model.spec, devices, ThreadCount({.threads = options.threads}));
  }
  if (!options.quiet) fmt::print(stderr, "{}{}", options.json ? "" : "\n", ToTable(report));
  if (options.json && !WriteOutput(ToLine(ToJson(report)))) return kOutputClosed;
  return cancelled ? ExitCode(ErrorKind::kCancelled) : kOk;
}

void AddSampling(CLI::App& command, RunOptions& o) {
  Penalties& p = o.sample.penalties;
  AddNumber(command, "--temp", o.sample.temperature, {0, 100},
            "temperature; 0, the default: the likeliest token");
  AddInteger(command, "--top-k", o.sample.top_k, {0, INT32_MAX}, "keep the N likeliest tokens; 0: all");
  AddNumber(command, "--top-p", o.sample.top_p, {0, 1, true},
            "keep the likeliest tokens that together reach X; 1: all");
  AddNumber(command, "--min-p", o.sample.min_p, {0, 1},
            "keep tokens at least X times as likely as the likeliest");
  command
      .add_option_function<std::string>(
          "--seed",
          [&o](const std::string& text) { o.seed = uint64_t(ParseInteger("--seed", text, 0, INT64_MAX)); },
          "of the draws; default: a new one each time, which the statistics name")
      ->type_name("N");
  AddNumber(command, "--repeat-penalty", p.repetition, {0.001, 1000},
            "divides logits of tokens that occurred; 1: off");
  AddNumber(command, "--presence-penalty", p.presence, {-1000, 1000},
            "subtracted from logits of generated tokens");
  AddNumber(command, "--frequency-penalty", p.frequency, {-1000, 1000},
            "likewise, for each time they occurred");
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&o](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) o.bias.push_back(ParseBias("--logit-bias", text));
          },
          "added to a token's logit; may be repeated")
      ->type_name("ID:X")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
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
  command->add_option("--prefill", o.prefill, "device that computes the prompt")->capture_default_str();
  command
      ->add_option("--ane", o.bundle,
                   "with --prefill coreml: the exported model; default: where 'pd-engine export' puts it")
      ->type_name("DIR");
  command->add_option("--decode", o.decode, "device that generates")->capture_default_str();
  AddChoice<int>(*command, "--quantize", o.quantise_bits, {{"none", 0}, {"q4", 4}, {"q8", 8}},
                 "quantise at load what mlx would hold in 16 bits");
  AddInteger(*command, "--prefill-chunk", o.prefill_chunk, {1, INT32_MAX},
             "tokens prefilled and handed over at a time")
      ->default_str("512");
  AddInteger(*command, "--threads", o.threads, {1, 1024}, "threads of a CPU device; default: all processors");
  AddInteger(*command, "-n,--max-tokens", o.max_tokens, {0, INT32_MAX}, "tokens generated at most")
      ->default_str("256");
  AddInteger(*command, "--ctx", o.context, {1, INT32_MAX},
             "tokens of prompt and text together; default: the model's");
  command->add_option("--stop", o.stops, "end the text before this string; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  AddSampling(*command, o);
  AddInteger(*command, "--logprobs", o.logprobs, {0, 20},
             "with --json: log-probabilities, and of N alternatives");
  command->add_flag("--json", o.json, "print one JSON object instead of the text");
  command->add_flag("-q,--quiet", o.quiet, "no statistics and no progress bar");
  command->footer("Prompt and text of a file or standard input: one newline at the end is dropped.");
  command->callback([&action, options] { action = [options] { return Run(*options); }; });
}

}  // namespace pd::cli
