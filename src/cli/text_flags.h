// How text is generated: the flags that commands share.
#pragma once
#include "cli/command.h"
#include "session/text_engine.h"

namespace pd::cli {

// Adds -n,--max-tokens, --ctx, --stop, --temp, --top-k and their like.
void AddTextFlags(const Command& command, TextSettings& settings);

// Throws kBadRequest.
void CheckTextFlags(const TextSettings& settings);

}  // namespace pd::cli
