#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>

#include "base/digest.h"
#include "base/json.h"
#include "cli/answer_file.h"
#include "cli/batch_lines.h"
#include "cli/chat_flags.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/terminal.h"
#include "cli/text_flags.h"
#include "cli/text_input.h"
#include "formats/model_source.h"
#include "serving/queue.h"
#include "session/text_engine.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostInputBytes = size_t(4) << 30;

struct BatchOptions {
  std::string model, input, output;
  bool raw = false, quiet = false;
  int parallel = 16;
  ChatFlags chat;
  EngineFlags engine;
  TextSettings text;
};

// Lines without their ends; a last one needs none. Blank lines do not count.
std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// What decides on the texts, beside the questions: an interrupted batch continues under the same. How many
// run at a time, threads, chunks and caches change no text.
Json SettingsOf(const BatchOptions& options, const ChatVariables& chat, const ModelSource& model) {
  const TextSettings& text = options.text;
  const SampleSpec& sample = text.sample;
  Json bias = Json::object();
  for (const auto& [token, value] : text.bias) bias[std::to_string(token)] = value;
  return {{"model", fmt::format("{}-{:016x}", model.family, model.Digest())},
          {"prefill", options.engine.prefill},
          {"decode", options.engine.decode},
          {"bundle", options.engine.bundle},
          {"quantize", options.engine.quantise_bits},
          {"raw", options.raw},
          {"chat_template_kwargs", chat.variables},
          {"tools", chat.tools},
          {"max_tokens", text.max_tokens},
          {"ctx", text.context},
          {"stop", text.stops},
          {"temp", sample.temperature},
          {"top_k", sample.top_k},
          {"top_p", sample.top_p},
          {"min_p", sample.min_p},
          {"seed", text.seed ? Json(*text.seed) : Json(nullptr)},
          {"repeat_penalty", sample.penalties.repetition},
          {"presence_penalty", sample.penalties.presence},
          {"frequency_penalty", sample.penalties.frequency},
          {"logit_bias", bias}};
}

// An answer on its way from the engine's thread.
struct Finished {
  size_t index = 0;
  TextAnswer answer;
};

class Batch {
 public:
  Batch(TextEngine& engine, const BatchSetting& setting, std::span<const std::string_view> questions,
        const std::string& where, AnswerFile& answers)
      : engine_(engine), setting_(setting), questions_(questions), where_(where), answers_(answers) {}

  ~Batch() { engine_.Stop(false); }  // its sinks refer to this object
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Until all are answered, or whoever reads the answers went away: false.
  bool Run(size_t parallel, ProgressBar& bar, const Interrupt& interrupt) {
    size_t next = answers_.done();
    while (!closed_ && answers_.done() < questions_.size()) {
      // Some wait beside those that run; not so many that their answers pile up behind a slow one.
      while (next < questions_.size() && asked_.size() < 2 * parallel &&
             next < answers_.done() + 8 * parallel)
        Ask(next++);
      const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      auto finished = finished_.PopUntil(patience);
      interrupt.Check();  // what it has cut short is no answer
      if (finished) Answer(std::move(*finished));
      bar.Show(answers_.done(), questions_.size());
    }
    return !closed_;
  }
  int failed() const { return failed_; }  // lines

 private:
  void Ask(size_t index) {
    BatchLine line{
        .number = int(index) + 1, .digest = Digest(questions_[index]), .run = answers_.RunOf(index)};
    try {
      TextRequest request = ReadBatchLine(questions_[index], fmt::format("{}: line {}", where_, line.number),
                                          setting_, line.id);
      line.prompt_tokens = request.prompt.ids.size();
      engine_.Submit(std::move(request),
                     {{}, [this, index](TextAnswer answer) { finished_.Push({index, std::move(answer)}); }});
      asked_[index] = std::move(line);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kCancelled) throw;
      ++failed_;
      Write(index, BatchError(line, {e.kind(), e.what()}));
    }
  }

  void Answer(Finished finished) {
    const BatchLine line = std::move(asked_.extract(finished.index).mapped());
    const RequestResult& result = finished.answer.result;
    const bool failed = result.finish == FinishReason::kError;
    failed_ += failed;
    Write(finished.index, failed ? BatchError(line, result.failure) : BatchAnswer(line, finished.answer));
  }

  void Write(size_t index, std::string line) { closed_ |= !answers_.Add(index, std::move(line)); }

  TextEngine& engine_;
  const BatchSetting& setting_;
  const std::span<const std::string_view> questions_;
  const std::string& where_;
  AnswerFile& answers_;
  std::map<size_t, BatchLine> asked_;  // submitted and not answered yet
  Queue<Finished> finished_;
  int failed_ = 0;
  bool closed_ = false;
};

int RunBatch(const BatchOptions& options) {
  CheckEngineFlags(options.engine);
  CheckTextFlags(options.text);
  const Interrupt interrupt;
  const ChatVariables chat = ReadChatFlags(options.chat, options.raw, options.input, interrupt);
  const std::string input = ReadTextInput(options.input, interrupt, kMostInputBytes);
  const auto questions = Lines(input);
  const fs::path model_path = ModelPath(options.model);
  AnswerFile answers(options.output, questions, std::array<fs::path, 2>{options.input, model_path});
  const size_t before = answers.done();
  ModelSource model = OpenModel(model_path);
  answers.Start(SettingsOf(options, chat, model));
  int failed = 0;
  if (before < questions.size()) {
    const auto codec = std::make_shared<const TextCodec>(model);
    if (codec->has_chat_template())
      codec->RequireChatTemplate();  // a broken one fails the run, not each line
    BatchSetting setting{codec.get(), options.text, options.raw, chat};
    setting.text.prefill_chunk = options.engine.prefill_chunk;
    // What one line may take is known when it is read; enough for a usual one must be there.
    constexpr int kUsual = 4096;
    const int tokens =
        std::min(model.spec.max_context, options.text.context > 0 ? options.text.context : kUsual);
    TextEngine engine(codec,
                      LoadEngine(options.engine, model, tokens, options.quiet, interrupt, options.parallel));
    ProgressBar bar("batch", !options.quiet);
    const std::string where = InputName(options.input);
    Batch batch(engine, setting, questions, where, answers);
    if (!batch.Run(size_t(options.parallel), bar, interrupt)) return kOutputClosed;
    failed = batch.failed();
  }
  if (!options.quiet)
    Report(fmt::format("{} lines answered, {} of them before, {} errors: {}\n", questions.size(), before,
                       failed, options.output));
  return failed > 0 ? ExitCode(ErrorKind::kBadRequest) : kOk;
}

}  // namespace

void AddBatch(const Command& program) {
  const Command command = program.Add("batch", "Answer many prompts at once, a JSON line each");
  auto options = std::make_shared<BatchOptions>();
  BatchOptions& o = *options;
  command
      .Text(
          "input", o.input,
          "a file of JSON lines, each {\"prompt\": ...} or {\"messages\": [...]}; -: standard input, read to "
          "its end")
      .Required();
  command.Text("-o,--output", o.output, "answers, a JSON line each, in the same order; -: standard output")
      .Required();
  AddModel(command, o.model);
  command.Switch("--raw", o.raw, "continue prompts as plain text, without the chat template");
  AddChatFlags(command, o.chat);
  command.Integer("--parallel", o.parallel, {1, 4096}, "requests that run at a time");
  AddPrefillFlags(command, o.engine);
  AddDeviceFlags(command, o.engine);
  AddPrefixCacheFlags(command, o.engine);
  AddTextFlags(command, o.text);
  AddQuiet(command, o.quiet, "no summary and no progress bar");
  command.Footer(
      "A line may also say id, raw, tools, chat_template_kwargs, max_tokens, temperature, top_k, top_p, "
      "min_p, "
      "seed,\n"
      "stop, repetition_penalty, presence_penalty, frequency_penalty and logit_bias; null is as if it did "
      "not. "
      "Its\n"
      "id comes back as it is written. A byte order mark is dropped, and lines may end with LF, CR LF or "
      "CR.\n"
      "A line that fails has \"error\" in its answer.\n"
      "After an interruption the same command continues: lines that the output answers are not asked again. "
      "An\n"
      "output that holds anything else, or answers of another model or other flags, is refused and stays as "
      "it "
      "is.");
  command.Runs([options] { return RunBatch(*options); });
}

}  // namespace pd::cli
