#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>

#include "base/digest.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "cli/batch_lines.h"
#include "cli/commands.h"
#include "cli/engine.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "text/text_stream.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

struct BatchOptions {
  std::string model, input, output;
  bool raw = false, quiet = false;
  int parallel = 16;
  EngineFlags engine;
  TextFlags generate;
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
  std::string text;
  RequestResult result;
};

class Batch {
 public:
  Batch(Engine& engine, const BatchSetting& setting, std::span<const std::string_view> questions,
        const std::string& where, AnswerFile& answers)
      : engine_(engine), setting_(setting), questions_(questions), where_(where), answers_(answers) {}

  ~Batch() { engine_.Stop(false); }  // its sinks tell this object
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // The number of lines that failed.
  int Run(size_t parallel, ProgressBar& bar, const Interrupt& interrupt) {
    size_t next = answers_.done();
    while (answers_.done() < questions_.size()) {
      interrupt.Check();
      // Some wait beside those that run; not so many that their answers pile up behind a slow one.
      while (next < questions_.size() && tasks_.size() < 2 * parallel &&
             next < answers_.done() + 8 * parallel)
        Ask(next++);
      const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      if (auto finished = finished_.PopUntil(patience)) Answer(std::move(*finished));
      bar.Show(answers_.done(), questions_.size());
    }
    return failed_;
  }

 private:
  uint64_t DigestOf(size_t index) const { return Digest(questions_[index]); }

  void Ask(size_t index) {
    Json id;
    try {
      BatchTask task =
          ReadBatchLine(questions_[index], fmt::format("{}: line {}", where_, index + 1), setting_, id);
      const auto stream = std::make_shared<TextStream>(
          setting_.tokenizer, TextStreamOptions{.continues = task.continues, .stops = task.stops});
      const auto text = std::make_shared<std::string>();
      engine_.Submit(task.request, {[stream, text](const Sampled& sampled) {
                                      *text += stream->Push(sampled.token);
                                      return !stream->stopped();
                                    },
                                    [this, stream, text, index](RequestResult result) {
                                      *text += stream->Flush();
                                      finished_.Push({index, std::move(*text), std::move(result)});
                                    }});
      tasks_[index] = {id, std::move(task)};
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::kCancelled) throw;
      ++failed_;
      answers_.Add(index, BatchError(int(index) + 1, DigestOf(index), id, {e.kind(), e.what()}));
    }
  }

  void Answer(Finished finished) {
    const auto [id, task] = std::move(tasks_.at(finished.index));
    tasks_.erase(finished.index);
    const int number = int(finished.index) + 1;
    const uint64_t digest = DigestOf(finished.index);
    RequestStats& stats = finished.result.stats;
    stats = WithDirectPrefill(std::move(stats), engine_.decode_info().name);
    const bool failed = finished.result.finish == FinishReason::kError;
    failed_ += failed;
    answers_.Add(finished.index, failed
                                     ? BatchError(number, digest, id, finished.result.failure)
                                     : BatchAnswer(number, digest, id, task, finished.text, finished.result));
  }

  Engine& engine_;
  const BatchSetting& setting_;
  const std::span<const std::string_view> questions_;
  const std::string& where_;
  AnswerFile& answers_;
  std::map<size_t, std::pair<Json, BatchTask>> tasks_;  // submitted, with their ids, by line
  Queue<Finished> finished_;
  int failed_ = 0;
};

int RunBatch(const BatchOptions& options) {
  CheckEngineFlags(options.engine);
  CheckTextFlags(options.generate);
  const Interrupt interrupt;
  const auto input = MappedFile::Open(options.input);
  const auto questions = Lines(AsText(input->bytes()));
  AnswerFile answers(options.output, questions);
  const size_t before = answers.done();
  int failed = 0;
  if (before < questions.size()) {
    ModelSource model = OpenModel(ModelPath(options.model));
    const BatchSetting setting{OpenTokenizer(model), OpenChatTemplate(model), options.generate, options.raw,
                               options.engine.prefill_chunk};
    // What one line may take is known when it is read; enough for a usual one must be there.
    constexpr int kUsual = 4096;
    const int tokens =
        std::min(model.spec.max_context, options.generate.context > 0 ? options.generate.context : kUsual);
    const auto engine = OpenEngine(options.engine, model, tokens, options.quiet, interrupt, options.parallel);
    ProgressBar bar("batch", !options.quiet);
    Batch batch(*engine, setting, questions, options.input, answers);
    failed = batch.Run(size_t(options.parallel), bar, interrupt);
  }
  if (!options.quiet)
    fmt::print(stderr, "{} lines answered, {} of them before, {} errors: {}\n", questions.size(), before,
               failed, options.output);
  return failed > 0 ? ExitCode(ErrorKind::kBadRequest) : kOk;
}

}  // namespace

void AddBatch(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("batch", "Answer many prompts at once, a JSON line each");
  auto options = std::make_shared<BatchOptions>();
  BatchOptions& o = *options;
  command->add_option("input", o.input, "a file of JSON lines: {\"prompt\": ...} or {\"messages\": [...]}")
      ->required();
  command->add_option("-o,--output", o.output, "answers, a JSON line each, in the same order")->required();
  AddModel(*command, o.model);
  command->add_flag("--raw", o.raw, "continue prompts as plain text, without the chat template");
  AddInteger(*command, "--parallel", o.parallel, {1, 4096}, "requests that run at a time")->default_str("16");
  AddPrefillFlags(*command, o.engine);
  AddDeviceFlags(*command, o.engine);
  AddPrefixCacheFlags(*command, o.engine);
  AddTextFlags(*command, o.generate);
  command->add_flag("-q,--quiet", o.quiet, "no summary and no progress bar");
  command->footer(
      "A line may also say id, raw, max_tokens, temperature, top_k, top_p, min_p, seed, stop, "
      "repetition_penalty,\n"
      "presence_penalty, frequency_penalty and logit_bias. When the output exists, lines that it answers are "
      "not\n"
      "asked again: after an interruption the same command continues. A line that fails has \"error\" in its "
      "answer.");
  command->callback([&action, options] { action = [options] { return RunBatch(*options); }; });
}

}  // namespace pd::cli
