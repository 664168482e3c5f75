#include "text/chat_template.h"
#include "base/json.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "formats/gguf.h"
#include "text/ffi_handles.h"
#include "text/folder_config.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefault = "default", kToolUse = "tool_use";

// Several templates come as a list of {"name": ..., "template": ...}.
std::map<std::string, std::string> ConfiguredTemplates(const SortedJson& chat, const std::string& where) {
  std::map<std::string, std::string> sources;
  if (chat.is_string()) sources[std::string(kDefault)] = chat.get<std::string>();
  if (!chat.is_array()) return sources;
  for (const SortedJson& entry : chat) {
    const bool complete = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                          entry.contains("template") && entry["template"].is_string();
    if (!complete)
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: \"chat_template\" lists an entry without name and template; download it again", where);
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return sources;
}

PdTextClock Clock(const std::optional<std::tm>& given) {
  std::tm local{};
  if (given) {
    local = *given;
  } else {
    const std::time_t now = std::time(nullptr);
    localtime_r(&now, &local);
  }
  return {local.tm_year + 1900,    uint32_t(local.tm_mon + 1), uint32_t(local.tm_mday),
          uint32_t(local.tm_hour), uint32_t(local.tm_min),     uint32_t(local.tm_sec)};
}

// As transformers hands a message to a template: without keys that are null, and with the reasoning under
// each of the names that templates read.
Json Message(const Json& given) {
  const char* const kReasoning[] = {"reasoning_content", "thinking", "reasoning"};
  const auto present = [&given](const char* key) { return given.contains(key) && !given[key].is_null(); };
  const auto* name = std::find_if(std::begin(kReasoning), std::end(kReasoning), present);
  Json message = Json::object();
  if (name != std::end(kReasoning)) message["thinking"] = given[*name];
  for (const auto& [key, value] : given.items())
    if (!value.is_null()) message[key] = value;
  if (name != std::end(kReasoning)) message["reasoning_content"] = given[*name];
  return message;
}

Json Messages(const Json& given, const std::string& where) {
  Json messages = Json::array();
  for (const Json& message : given) {
    if (!message.is_object())
      throw Fail(ErrorKind::kBadRequest, "{}: a chat's message is not a JSON object", where);
    messages.push_back(Message(message));
  }
  return messages;
}

bool Blank(const std::string& source) { return source.find_first_not_of(" \t\r\n") == std::string::npos; }

}  // namespace

ChatTemplate::ChatTemplate(std::string where, const std::map<std::string, std::string>& sources,
                           Json special_tokens)
    : where_(std::move(where)), special_tokens_(std::move(special_tokens)) {
  std::map<std::string, TemplateHandle, std::less<>> loaded;  // all or nothing
  for (const auto& [name, source] : sources) {
    const std::string place = name == kDefault ? where_ : fmt::format("{} ({})", where_, name);
    PdTemplate* handle = nullptr;
    FfiBytes error;
    const int32_t status = pd_text_template_new(FfiView(place), FfiView(source), &handle, &error);
    if (status != 0) throw FfiError(status, error, "", "use a model with another template, or raw prompts");
    if (Blank(source)) empty_.insert(name);
    loaded[name] = TemplateHandle(handle);
  }
  for (auto& [name, handle] : loaded) templates_[name] = handle.release();
}

ChatTemplate::~ChatTemplate() {
  for (const auto& [name, handle] : templates_) pd_text_template_free(handle);
}

std::vector<std::string> ChatTemplate::names() const {
  std::vector<std::string> names;
  for (const auto& [name, handle] : templates_) names.push_back(name);
  return names;
}

const PdTemplate* ChatTemplate::Choose(const ChatInput& input) const {
  std::string_view name = input.name;
  const bool tools =
      !input.tools.is_null() || (input.extra.contains("tools") && !input.extra["tools"].is_null());
  if (name.empty()) name = tools && templates_.contains(kToolUse) ? kToolUse : kDefault;
  const auto found = templates_.find(name);
  if (found == templates_.end())
    throw Fail(ErrorKind::kBadRequest, "{}: no chat template \"{}\"; it has: {}", where_, name,
               fmt::join(names(), ", "));
  if (empty_.contains(found->first))
    throw Fail(ErrorKind::kUnsupported,
               "{}: the chat template is empty, so a chat has no text; use raw prompts", where_);
  return found->second;
}

std::string ChatTemplate::Render(const ChatInput& input) const {
  const PdTemplate* chosen = Choose(input);
  if (!input.extra.is_object())
    throw Fail(ErrorKind::kBadRequest, "{}: the template's variables are not a JSON object", where_);
  if (input.extra.contains("messages"))
    throw Fail(ErrorKind::kBadRequest, "{}: \"messages\" is the chat itself and no variable to set", where_);
  Json variables = Json::object();
  variables["messages"] = Messages(input.messages, where_);
  variables["tools"] = input.tools;
  variables["documents"] = input.documents;
  variables["add_generation_prompt"] = input.add_generation_prompt;
  variables.update(special_tokens_);
  variables.update(input.extra);
  const std::string json = variables.dump(-1, ' ', false, Json::error_handler_t::replace);
  FfiBytes text, error;
  const int32_t status = pd_text_template_render(chosen, FfiView(json), Clock(input.now), &text, &error);
  if (status != 0) throw FfiError(status, error, "", "");
  return std::string(text.view());
}

std::shared_ptr<const ChatTemplate> ChatTemplate::FromFolder(const fs::path& folder) {
  const FolderConfig config = ReadFolderConfig(folder);
  fs::path where = folder / "chat_template.jinja";
  std::map<std::string, std::string> sources;
  if (fs::exists(where)) {
    sources[std::string(kDefault)] = ReadTextFile(where);
    const fs::path more = folder / "additional_chat_templates";
    if (fs::is_directory(more))
      for (const fs::directory_entry& entry : fs::directory_iterator(more))
        if (entry.path().extension() == ".jinja")
          sources[entry.path().stem().string()] = ReadTextFile(entry.path());
  } else {
    where = folder / "tokenizer_config.json";
    sources = ConfiguredTemplates(config.chat_template, where.string());
  }
  if (sources.empty()) return nullptr;
  Json specials = Json::object();
  for (const auto& [name, token] : config.specials) specials[name] = token;
  return std::make_shared<const ChatTemplate>(where.string(), sources, std::move(specials));
}

std::shared_ptr<const ChatTemplate> ChatTemplate::FromGguf(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.chat_template", kNamed = "tokenizer.chat_template.";
  std::map<std::string, std::string> sources;
  if (const auto* source = file.Find<std::string>(kKey)) sources[std::string(kDefault)] = *source;
  for (auto at = file.metadata().lower_bound(kNamed);
       at != file.metadata().end() && at->first.starts_with(kNamed); ++at)
    sources[at->first.substr(kNamed.size())] = file.Get<std::string>(at->first);
  if (sources.empty()) return nullptr;

  Json specials = Json::object();
  const auto* tokens = file.Find<std::vector<std::string>>("tokenizer.ggml.tokens");
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "tokenizer.ggml.bos_token_id"},
      {"eos_token", "tokenizer.ggml.eos_token_id"},
      {"unk_token", "tokenizer.ggml.unknown_token_id"},
      {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [name, key] : kTokens) {
    const int64_t* id = file.Find<int64_t>(key);
    if (tokens && id && *id >= 0 && size_t(*id) < tokens->size()) specials[name] = (*tokens)[size_t(*id)];
  }
  return std::make_shared<const ChatTemplate>(file.where(), sources, std::move(specials));
}

}  // namespace pd
