#include "cli/prompt.h"

#include "base/error.h"
#include "cli/terminal.h"
#include "cli/text_input.h"

namespace pd::cli {

void AddPrompt(const Command& command, PromptOptions& options) {
  options.text_flag = command.AnyText("-p,--prompt", options.text, "the prompt; default: standard input");
  options.file_flag = command.Text("-f,--file", options.file,
                                   "a file, fifo or device that holds the prompt; -: standard input");
  options.text_flag.Excludes(options.file_flag);
}

std::string PromptOptions::Input() const {
  if (text_flag.given()) return "";
  return file_flag.given() ? file : "-";
}

std::string ReadPrompt(const PromptOptions& options, const Interrupt& interrupt) {
  std::string text;
  if (options.text_flag.given()) {
    text = options.text;
  } else if (!options.file_flag.given() && InputIsTerminal()) {
    throw Fail(ErrorKind::kBadRequest, "no prompt: give -p TEXT or -f FILE, or pipe it in");
  } else {
    text = ReadTextInput(options.Input(), interrupt);
  }
  if (!options.text_flag.given() && text.ends_with('\n')) text.pop_back();
  if (text.empty()) throw Fail(ErrorKind::kBadRequest, "the prompt is empty: give it some text");
  return text;
}

}  // namespace pd::cli
