// Text from outside: files, devices, fifos and standard input, all read the same way.
#pragma once
#include <cstddef>
#include <string>

#include "cli/interrupt.h"

namespace pd::cli {

inline constexpr size_t kMostPromptBytes = size_t(64) << 20;  // no context is that long

// What messages call the input: "standard input" for "-", else the path.
std::string InputName(const std::string& path);

// All that can be read from `path`, be it a file, a fifo or a device; "-" is standard input. The text is
// normalised (NormaliseText). Throws kNotFound when it cannot be opened; kBadRequest for a folder, for UTF-16
// and for more than `limit` bytes; kCancelled on Ctrl-C.
std::string ReadTextInput(const std::string& path, const Interrupt& interrupt,
                          size_t limit = kMostPromptBytes);
// The same for commands that have no Interrupt: Ctrl-C ends the process.
std::string ReadTextInput(const std::string& path);

// As text files are read elsewhere: no byte order mark at the beginning, and every CR LF or lone CR is LF.
void NormaliseText(std::string& text);

}  // namespace pd::cli
