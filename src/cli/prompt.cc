#include "cli/prompt.h"

#include "base/error.h"
#include "base/files.h"
#include "cli/terminal.h"

namespace pd::cli {

void AddPrompt(const Command& command, PromptOptions& options) {
  options.text_flag = command.Text("-p,--prompt", options.text, "the prompt; default: standard input");
  options.file_flag =
      command.Text("-f,--file", options.file, "a file that holds the prompt; -: standard input");
  options.text_flag.Excludes(options.file_flag);
}

std::string ReadPrompt(const PromptOptions& options, const Interrupt& interrupt) {
  std::string text;
  if (options.text_flag.given()) {
    text = options.text;
  } else if (options.file_flag.given() && options.file != "-") {
    text = ReadTextFile(options.file);
  } else if (!options.file_flag.given() && InputIsTerminal()) {
    throw Fail(ErrorKind::kBadRequest, "no prompt: give -p TEXT or -f FILE, or pipe it in");
  } else {
    text = ReadInput(interrupt);
  }
  if (!options.text_flag.given() && text.ends_with('\n')) text.pop_back();
  if (text.empty()) throw Fail(ErrorKind::kBadRequest, "the prompt is empty: give it some text");
  return text;
}

}  // namespace pd::cli
