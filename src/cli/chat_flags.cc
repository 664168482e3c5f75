#include "cli/chat_flags.h"

#include "base/error.h"
#include "cli/text_input.h"

namespace pd::cli {
namespace {

// A mistake in JSON that somebody typed is theirs; no file is damaged.
Json Parse(const std::string& text, const std::string& where) {
  try {
    return ParseJson(text, where);
  } catch (const Error& e) {
    throw Error(ErrorKind::kBadRequest, e.what());
  }
}

void RefuseRaw(const Flag& flag, bool raw, const char* name) {
  if (raw && flag.given())
    throw Fail(ErrorKind::kBadRequest, "{}: a plain completion (--raw) has no chat template", name);
}

}  // namespace

void AddChatFlags(const Command& command, ChatFlags& flags) {
  flags.variables_flag =
      command
          .Text("--chat-template-kwargs", flags.variables,
                "variables of the chat template, a JSON object, as in {\"enable_thinking\": false}")
          .ValueName("JSON");
  flags.tools_flag =
      command
          .Text("--tools", flags.tools_file,
                "tools for the chat template: a file that holds a JSON array of them, as OpenAI's API takes "
                "it; -: standard input")
          .ValueName("FILE");
}

ChatVariables ReadChatFlags(const ChatFlags& flags, bool raw, const std::string& other_input,
                            const Interrupt& interrupt) {
  RefuseRaw(flags.variables_flag, raw, "--chat-template-kwargs");
  RefuseRaw(flags.tools_flag, raw, "--tools");
  if (flags.tools_file == "-" && other_input == "-")
    throw Fail(ErrorKind::kBadRequest, "--tools: standard input holds the prompts already: name a file");
  ChatVariables read;
  if (flags.variables_flag.given()) {
    read.variables = Parse(flags.variables, "--chat-template-kwargs");
    CheckVariables(read.variables, "--chat-template-kwargs");
  }
  if (flags.tools_flag.given()) {
    const std::string where = "--tools: " + InputName(flags.tools_file);
    read.tools = Parse(ReadTextInput(flags.tools_file, interrupt), where);
    CheckTools(read.tools, where);
  }
  return read;
}

void CheckVariables(const Json& variables, const std::string& where) {
  if (!variables.is_object())
    throw Fail(ErrorKind::kBadRequest, "{}: it must be a JSON object of names and values, found {}", where,
               variables.type_name());
  if (variables.contains("messages"))
    throw Fail(ErrorKind::kBadRequest, "{}: \"messages\" is the chat itself, and no variable to set", where);
}

void CheckTools(const Json& tools, const std::string& where) {
  if (!tools.is_array())
    throw Fail(ErrorKind::kBadRequest, "{}: tools must be a JSON array of objects, found {}", where,
               tools.type_name());
  for (size_t i = 0; i < tools.size(); ++i)
    if (!tools[i].is_object())
      throw Fail(ErrorKind::kBadRequest, "{}: tool {} must be a JSON object, found {}", where, i + 1,
                 tools[i].type_name());
}

}  // namespace pd::cli
