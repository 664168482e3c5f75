#include "text/folder_config.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/files.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpecials[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

// An object, or null for a missing file.
SortedJson ReadObject(const fs::path& path) {
  if (!fs::exists(path)) return nullptr;
  SortedJson json = ParseSortedJson(ReadTextFile(path), path.string());
  if (!json.is_object())
    throw Fail(ErrorKind::kCorruptFile, "{}: not a JSON object; download it again", path.string());
  return json;
}

const SortedJson* Find(const SortedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A token is written as a string, or as an object with its content.
std::optional<std::string> Content(const SortedJson* token) {
  if (token && token->is_object()) token = Find(*token, "content");
  if (!token || !token->is_string()) return std::nullopt;
  return token->get<std::string>();
}

std::optional<bool> Flag(const SortedJson& object, std::string_view key) {
  const SortedJson* flag = Find(object, key);
  if (!flag || !flag->is_boolean()) return std::nullopt;
  return flag->get<bool>();
}

std::vector<TokenId> Ids(const SortedJson& object, std::string_view key, const std::string& where) {
  const SortedJson* value = Find(object, key);
  if (!value) return {};
  std::vector<TokenId> ids;
  const auto add = [&](const SortedJson& id) {
    if (!id.is_number_integer() || id.get<double>() < -1 || id.get<double>() > INT32_MAX)
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" holds {:.40}, which is no token id; download it again",
                 where, key, id.dump());
    if (id.get<int64_t>() >= 0) ids.push_back(id.get<TokenId>());  // -1: some write it for none
  };
  if (value->is_array()) {
    for (const SortedJson& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

std::vector<AddedToken> Added(const SortedJson& tokenizer, const std::string& where) {
  const SortedJson* decoder = Find(tokenizer, "added_tokens_decoder");
  if (!decoder) return {};
  std::vector<AddedToken> added;
  for (const auto& [key, token] : decoder->items()) {
    TokenId id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    const std::optional<std::string> content = Content(&token);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0 || !content || !token.is_object())
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: \"added_tokens_decoder\" has an entry \"{:.40}\" that is no token; download it again",
                 where, key);
    const auto flag = [&token](const char* name, bool otherwise) {
      return Flag(token, name).value_or(otherwise);
    };
    const bool special = flag("special", false);
    added.push_back({id, *content, special, flag("single_word", false), flag("lstrip", false),
                     flag("rstrip", false), flag("normalized", !special)});
  }
  std::sort(added.begin(), added.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return added;
}

}  // namespace

const std::string* FolderConfig::Special(std::string_view name) const {
  for (const auto& [key, token] : specials)
    if (key == name) return &token;
  return nullptr;
}

FolderConfig ReadFolderConfig(const fs::path& folder) {
  FolderConfig config;
  config.where = folder.string();
  const SortedJson tokenizer = ReadObject(folder / "tokenizer_config.json");
  const SortedJson map = ReadObject(folder / "special_tokens_map.json");
  for (const std::string_view name : kSpecials) {
    const std::optional<std::string> token = Content(Find(tokenizer, name));
    const std::optional<std::string> mapped = Content(Find(map, name));
    if (token || mapped) config.specials.emplace_back(name, token ? *token : *mapped);
  }
  config.added = Added(tokenizer, (folder / "tokenizer_config.json").string());
  config.add_bos = Flag(tokenizer, "add_bos_token");
  config.add_eos = Flag(tokenizer, "add_eos_token");
  if (const SortedJson* chat = Find(tokenizer, "chat_template")) config.chat_template = *chat;

  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string where = (folder / name).string();
    const SortedJson file = ReadObject(folder / name);
    const SortedJson* inner = Find(file, "text_config");  // a model with other senses than reading
    for (const SortedJson* object : {&file, inner ? inner : &file}) {
      for (const TokenId id : Ids(*object, "eos_token_id", where)) config.ends.push_back(id);
      const std::vector<TokenId> bos = Ids(*object, "bos_token_id", where);
      if (!config.bos && !bos.empty()) config.bos = bos.front();
    }
  }
  return config;
}

}  // namespace pd
