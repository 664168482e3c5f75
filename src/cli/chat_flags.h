// What a chat template gets beside the messages: its variables, and tools.
#pragma once
#include <string>

#include "base/json.h"
#include "cli/command.h"
#include "cli/interrupt.h"

namespace pd::cli {

struct ChatFlags {
  std::string variables, tools_file;
  Flag variables_flag, tools_flag;
};

struct ChatVariables {
  Json variables = Json::object();
  Json tools = nullptr;  // a list of objects, or null
};

// Adds --chat-template-kwargs and --tools.
void AddChatFlags(const Command& command, ChatFlags& flags);

// Reads the flags and the tools' file. Throws kBadRequest for JSON that is none or of another form, when a
// flag is given though `raw` leaves no chat, and when `other_input`, which the command reads too, is standard
// input as well; what ReadTextInput throws.
ChatVariables ReadChatFlags(const ChatFlags& flags, bool raw, const std::string& other_input,
                            const Interrupt& interrupt);

// Throw kBadRequest, naming `where`, for values of another form.
void CheckVariables(const Json& variables, const std::string& where);
void CheckTools(const Json& tools, const std::string& where);

}  // namespace pd::cli
