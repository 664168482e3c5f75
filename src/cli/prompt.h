// The text that a command works on.
#pragma once
#include <string>

#include "cli/command.h"
#include "cli/interrupt.h"

namespace pd::cli {

struct PromptOptions {
  std::string text, file;
  Flag text_flag, file_flag;

  // What it is read from: a path, "-" for standard input; empty when the text is on the command line.
  std::string Input() const;
};

// Adds -p,--prompt and -f,--file, which exclude each other.
void AddPrompt(const Command& command, PromptOptions& options);

// The text of -p as typed, or that of the file or of standard input (ReadTextInput) without one newline at
// the end, which editors and echo add. Throws kBadRequest when there is no text, or when standard input is a
// terminal and nothing says where the text is; what ReadTextInput throws.
std::string ReadPrompt(const PromptOptions& options, const Interrupt& interrupt);

}  // namespace pd::cli
