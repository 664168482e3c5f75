// A model's chat template: messages to the text that the model reads.
#pragma once
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

struct PdTemplate;

namespace pd {

class GgufFile;

// The variables of a template, as transformers' apply_chat_template passes them.
struct ChatInput {
  Json messages = Json::array();  // [{"role": ..., "content": ...}, ...]; the keys' order is kept
  Json tools;                     // a list of JSON schemas, or null
  Json documents;                 // a list of {"title", "text"}, or null
  bool add_generation_prompt = true;
  // Further variables, such as {"enable_thinking": false}. They win over those above and over the special
  // tokens; "messages" is refused.
  Json extra = Json::object();
  std::string name;  // of several templates; empty: "tool_use" with tools where there is one, else "default"
  std::optional<std::tm> now;  // local time for strftime_now; none: the clock's
};

// Jinja2 with Python's values, as transformers renders it: equal text, or an error that names the construct.
// Bounded in time, memory and output, whatever the template holds. Immutable; any thread may use it.
class ChatTemplate {
 public:
  // chat_template.jinja and additional_chat_templates/*.jinja, else "chat_template" of
  // tokenizer_config.json. nullptr when the folder has none. Throws kCorruptFile; kUnsupported for a template
  // that does not parse.
  static std::shared_ptr<const ChatTemplate> FromFolder(const std::filesystem::path& folder);
  // tokenizer.chat_template and tokenizer.chat_template.NAME. nullptr when the file has none.
  static std::shared_ptr<const ChatTemplate> FromGguf(const GgufFile& file);
  // From templates by name, "default" among them, and the special tokens' variables ("bos_token": "<s>").
  ChatTemplate(std::string where, const std::map<std::string, std::string>& sources, Json special_tokens);

  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // Messages lose their keys that are null, as in transformers. Throws kBadRequest in the template's own
  // words when it raises an exception, and where Jinja2 fails too; kUnsupported for a construct that we lack,
  // for an empty template, and for one that exceeds its bounds.
  std::string Render(const ChatInput& input) const;
  std::vector<std::string> names() const;

 private:
  const PdTemplate* Choose(const ChatInput& input) const;

  std::string where_;
  std::map<std::string, PdTemplate*, std::less<>> templates_;  // owned
  std::set<std::string, std::less<>> empty_;                   // names of templates without a text
  Json special_tokens_;
};

}  // namespace pd
