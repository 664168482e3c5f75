#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <system_error>

#include "base/digest.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "cli/batch_lines.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/terminal.h"
#include "cli/text_flags.h"
#include "formats/model_source.h"
#include "serving/queue.h"
#include "session/text_engine.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

struct BatchOptions {
  std::string model, input, output;
  bool raw = false, quiet = false;
  int parallel = 16;
  EngineFlags engine;
  TextSettings text;
};

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Lines without their ends; a last one needs none. Blank lines do not count.
std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Answers in the order of their questions. What an earlier run wrote is kept: a line that it was killed in
// the middle of is cut off, so that none is lost and none comes twice.
class AnswerFile {
 public:
  AnswerFile(fs::path path, std::span<const std::string_view> questions) : path_(std::move(path)) {
    file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    Check(file_ >= 0);
    try {
      Resume(questions);
    } catch (...) {
      close(file_);
      throw;
    }
  }
  ~AnswerFile() { close(file_); }
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;

  size_t done() const { return done_; }  // answers in the file

  // In any order; written as soon as all before it are.
  void Add(size_t index, std::string line) {
    waiting_[index] = std::move(line);
    for (auto next = waiting_.begin(); next != waiting_.end() && next->first == done_; ++done_) {
      Write(next->second);
      next = waiting_.erase(next);
    }
  }

 private:
  void Resume(std::span<const std::string_view> questions) {
    const auto text = fs::file_size(path_) > 0 ? MappedFile::Open(path_) : nullptr;
    std::string_view rest = text ? AsText(text->bytes()) : std::string_view();
    size_t whole = 0;
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n'), ++done_) {
      const bool ours = done_ < questions.size() &&
                        IsBatchAnswer(rest.substr(0, end), int(done_) + 1, Digest(questions[done_]));
      if (!ours)
        throw Fail(
            ErrorKind::kBadRequest,
            "{}: line {} does not answer line {} of the input: give another output file, or remove this one",
            path_.string(), done_ + 1, done_ + 1);
      whole += end + 1;
      rest.remove_prefix(end + 1);
    }
    Check(ftruncate(file_, off_t(whole)) == 0);
  }

  void Write(std::string_view line) {
    while (!line.empty()) {
      const ssize_t written = write(file_, line.data(), line.size());
      Check(written >= 0 || errno == EINTR);
      if (written > 0) line.remove_prefix(size_t(written));
    }
  }

  void Check(bool ok) const {
    if (!ok)
      throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path_.string(),
                 std::generic_category().message(errno));
  }

  const fs::path path_;
  int file_ = -1;
  size_t done_ = 0;
  std::map<size_t, std::string> waiting_;
};

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

  // The number of lines that failed.
  int Run(size_t parallel, ProgressBar& bar, const Interrupt& interrupt) {
    size_t next = answers_.done();
    while (answers_.done() < questions_.size()) {
      interrupt.Check();
      // Some wait beside those that run; not so many that their answers pile up behind a slow one.
      while (next < questions_.size() && asked_.size() < 2 * parallel &&
             next < answers_.done() + 8 * parallel)
        Ask(next++);
      const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      if (auto finished = finished_.PopUntil(patience)) Answer(std::move(*finished));
      bar.Show(answers_.done(), questions_.size());
    }
    return failed_;
  }

 private:
  void Ask(size_t index) {
    BatchLine line{.number = int(index) + 1, .digest = Digest(questions_[index])};
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
      answers_.Add(index, BatchError(line, {e.kind(), e.what()}));
    }
  }

  void Answer(Finished finished) {
    const BatchLine line = std::move(asked_.extract(finished.index).mapped());
    const RequestResult& result = finished.answer.result;
    const bool failed = result.finish == FinishReason::kError;
    failed_ += failed;
    answers_.Add(finished.index,
                 failed ? BatchError(line, result.failure) : BatchAnswer(line, finished.answer));
  }

  TextEngine& engine_;
  const BatchSetting& setting_;
  const std::span<const std::string_view> questions_;
  const std::string& where_;
  AnswerFile& answers_;
  std::map<size_t, BatchLine> asked_;  // submitted and not answered yet
  Queue<Finished> finished_;
  int failed_ = 0;
};

int RunBatch(const BatchOptions& options) {
  CheckEngineFlags(options.engine);
  CheckTextFlags(options.text);
  const Interrupt interrupt;
  const auto input = MappedFile::Open(options.input);
  const auto questions = Lines(AsText(input->bytes()));
  AnswerFile answers(options.output, questions);
  const size_t before = answers.done();
  int failed = 0;
  if (before < questions.size()) {
    ModelSource model = OpenModel(ModelPath(options.model));
    const auto codec = std::make_shared<const TextCodec>(model);
    if (codec->has_chat_template())
      codec->RequireChatTemplate();  // a broken one fails the run, not each line
    BatchSetting setting{codec.get(), options.text, options.raw};
    setting.text.prefill_chunk = options.engine.prefill_chunk;
    // What one line may take is known when it is read; enough for a usual one must be there.
    constexpr int kUsual = 4096;
    const int tokens =
        std::min(model.spec.max_context, options.text.context > 0 ? options.text.context : kUsual);
    TextEngine engine(codec,
                      LoadEngine(options.engine, model, tokens, options.quiet, interrupt, options.parallel));
    ProgressBar bar("batch", !options.quiet);
    Batch batch(engine, setting, questions, options.input, answers);
    failed = batch.Run(size_t(options.parallel), bar, interrupt);
  }
  if (!options.quiet)
    fmt::print(stderr, "{} lines answered, {} of them before, {} errors: {}\n", questions.size(), before,
               failed, options.output);
  return failed > 0 ? ExitCode(ErrorKind::kBadRequest) : kOk;
}

}  // namespace

void AddBatch(const Command& program) {
  const Command command = program.Add("batch", "Answer many prompts at once, a JSON line each");
  auto options = std::make_shared<BatchOptions>();
  BatchOptions& o = *options;
  command.Text("input", o.input, "a file of JSON lines: {\"prompt\": ...} or {\"messages\": [...]}")
      .Required();
  command.Text("-o,--output", o.output, "answers, a JSON line each, in the same order").Required();
  AddModel(command, o.model);
  command.Switch("--raw", o.raw, "continue prompts as plain text, without the chat template");
  command.Integer("--parallel", o.parallel, {1, 4096}, "requests that run at a time");
  AddPrefillFlags(command, o.engine);
  AddDeviceFlags(command, o.engine);
  AddPrefixCacheFlags(command, o.engine);
  AddTextFlags(command, o.text);
  AddQuiet(command, o.quiet, "no summary and no progress bar");
  command.Footer(
      "A line may also say id, raw, max_tokens, temperature, top_k, top_p, min_p, seed, stop, "
      "repetition_penalty,\n"
      "presence_penalty, frequency_penalty and logit_bias. When the output exists, lines that it answers are "
      "not\n"
      "asked again: after an interruption the same command continues. A line that fails has \"error\" in its "
      "answer.");
  command.Runs([options] { return RunBatch(*options); });
}

}  // namespace pd::cli
