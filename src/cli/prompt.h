// The text that a command works on.
#pragma once
#include <string>

#include "cli/command.h"
#include "cli/interrupt.h"

namespace pd::cli {

struct PromptOptions {
  std::string text, file;
  Flag text_flag, file_flag;
};

// Adds -p,--prompt and -f,--file, which exclude each other.
void AddPrompt(const Command& command, PromptOptions& options);

// The text of -p, of the file, or of standard input; of the latter two without one newline at the end, which
// editors and echo add. Throws kBadRequest when there is no text, or when standard input is a terminal and
// nothing says where the text is; kNotFound for the file.
std::string ReadPrompt(const PromptOptions& options, const Interrupt& interrupt);

}  // namespace pd::cli
