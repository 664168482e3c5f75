// Whatever a chat template says, it renders or throws Error, within its bounds.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const pd::Json messages = pd::ParseJson(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is 3 < 4 & \"5\"?"},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]},
          {"role": "tool", "content": "☃"}, {"role": "user", "content": ""}])",
      "messages");
  static const pd::Json tools = pd::ParseJson(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])", "tools");
  const std::map<std::string, std::string> sources = {
      {"default", std::string(reinterpret_cast<const char*>(data), size)}};
  try {
    const pd::ChatTemplate chat("input", sources, pd::Json{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (const bool with_tools : {false, true}) {
      pd::ChatInput input;
      input.messages = messages;
      if (with_tools) input.tools = tools;
      input.now.emplace();
      try {
        chat.Render(input);
      } catch (const pd::Error&) {
        continue;  // the other input may still render
      }
    }
  } catch (const pd::Error&) {
    return 0;
  }
  return 0;
}
