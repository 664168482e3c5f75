#include "cli/prompt.h"

#include "base/error.h"
#include "base/files.h"
#include "cli/terminal.h"

namespace pd::cli {

void AddPrompt(CLI::App& command, PromptOptions& options) {
  options.text_given = command.add_option("-p,--prompt", options.text, "the prompt; default: standard input");
  options.file_given =
      command.add_option("-f,--file", options.file, "a file that holds the prompt; -: standard input");
  options.text_given->excludes(options.file_given);
}

std::string ReadPrompt(const PromptOptions& options, const Interrupt& interrupt) {
  std::string text;
  const bool from_file = options.file_given->count() > 0 && options.file != "-";
  if (options.text_given->count() > 0) {
    text = options.text;
  } else if (from_file) {
    text = ReadTextFile(options.file);
  } else if (InputIsTerminal() && options.file_given->count() == 0) {
    throw Fail(ErrorKind::kBadRequest, "no prompt: give -p TEXT or -f FILE, or pipe it in");
  } else {
    text = ReadInput(interrupt);
  }
  if (options.text_given->count() == 0 && text.ends_with('\n')) text.pop_back();
  if (text.empty()) throw Fail(ErrorKind::kBadRequest, "the prompt is empty: give it some text");
  return text;
}

}  // namespace pd::cli
