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
  SortedJson json = ParseSortedPythonJson(ReadTextFile(path), path.string());
  if (!json.is_object())
    throw Fail(ErrorKind::kCorruptFile, "{}: not a JSON object; download it again", path.string());
  return json;
}

const SortedJson* Find(const SortedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> Flag(const SortedJson& object, std::string_view key) {
  const SortedJson* flag = Find(object, key);
  if (!flag || !flag->is_boolean()) return std::nullopt;
  return flag->get<bool>();
}

std::string Text(const SortedJson& object, std::string_view key) {
  const SortedJson* text = Find(object, key);
  return text && text->is_string() ? text->get<std::string>() : "";
}

bool IsObjectToken(const SortedJson& token) {
  const SortedJson* content = Find(token, "content");
  return content && content->is_string();
}

TokenFlags Flags(const SortedJson& token, bool special) {
  const auto flag = [&token](const char* name, bool otherwise) {
    return Flag(token, name).value_or(otherwise);
  };
  return {special, flag("single_word", false), flag("lstrip", false), flag("rstrip", false),
          flag("normalized", !special)};
}

// A string, or an object with its content. nullopt: neither. `all_special`: the file holds special tokens
// only.
std::optional<GivenToken> Given(const SortedJson& token, bool all_special) {
  if (token.is_string()) return GivenToken{token.get<std::string>(), std::nullopt};
  if (!IsObjectToken(token)) return std::nullopt;
  const bool special = all_special || Flag(token, "special").value_or(false);
  return GivenToken{token["content"].get<std::string>(), Flags(token, special)};
}

// An id that no vocabulary has stands for none: -1 in whatever width is how some write it.
std::vector<TokenId> Ids(const SortedJson& object, std::string_view key, const std::string& where) {
  const SortedJson* value = Find(object, key);
  if (!value) return {};
  std::vector<TokenId> ids;
  const auto add = [&](const SortedJson& id) {
    if (!id.is_number_integer())
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{}\" holds {:.40}, which is no token id", where, key,
                 id.dump());
    const double number = id.get<double>();  // of whatever width
    if (number >= 0 && number <= INT32_MAX) ids.push_back(id.get<TokenId>());
  };
  if (value->is_array()) {
    for (const SortedJson& id : *value) add(id);
  } else {
    add(*value);
  }
  return ids;
}

std::vector<AddedToken> DecoderEntries(const SortedJson& decoder, const std::string& where) {
  std::vector<AddedToken> added;
  for (const auto& [key, token] : decoder.items()) {
    TokenId id = -1;
    const auto [end, failed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failed != std::errc() || end != key.data() + key.size() || id < 0 || !IsObjectToken(token))
      throw Fail(ErrorKind::kCorruptFile,
                 "{}: \"added_tokens_decoder\" has an entry \"{:.40}\" that is no token; download it again",
                 where, key);
    const bool special = Flag(token, "special").value_or(false);
    added.push_back({id, token["content"].get<std::string>(), Flags(token, special)});
  }
  return added;
}

// added_tokens.json: {"<token>": id}. Those that some other place calls special are.
std::vector<AddedToken> LegacyEntries(const SortedJson& file, const FolderConfig& config,
                                      const std::string& where) {
  const auto is_special = [&config](const std::string& content) {
    const auto is_it = [&content](const GivenToken& token) { return token.content == content; };
    for (const NamedToken& named : config.named)
      if (named.token && is_it(*named.token)) return true;
    return std::any_of(config.extra.begin(), config.extra.end(), is_it);
  };
  std::vector<AddedToken> added;
  if (!file.is_object()) return added;
  for (const auto& [content, id] : file.items()) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
      throw Fail(ErrorKind::kCorruptFile, "{}: \"{:.40}\" has {:.40} in the place of a token id", where,
                 content, id.dump());
    const bool special = is_special(content);
    added.push_back({id.get<TokenId>(), content, {special, false, false, false, !special}});
  }
  return added;
}

// Sets a named token, over what was there.
void Name(FolderConfig& config, const std::string& name, std::optional<GivenToken> token) {
  for (NamedToken& named : config.named) {
    if (named.name != name) continue;
    named.token = std::move(token);
    return;
  }
  config.named.push_back({name, std::move(token)});
}

bool IsUsual(std::string_view name) {
  return std::find(std::begin(kSpecials), std::end(kSpecials), name) != std::end(kSpecials);
}

// A named token is special in the end, and so not normalised unless the file says so.
std::optional<GivenToken> GivenByName(const SortedJson& token, bool all_special) {
  std::optional<GivenToken> given = Given(token, all_special);
  if (given && given->flags && !Find(token, "normalized")) given->flags->normalized = false;
  return given;
}

// The keys of a file that name tokens: the usual ones, and what a model calls "image_token" or the like.
void ReadNamed(FolderConfig& config, const SortedJson& file, bool all_special) {
  if (!file.is_object()) return;
  for (const std::string_view name : kSpecials)
    if (const auto found = file.find(name); found != file.end()) {
      std::optional<GivenToken> token = GivenByName(*found, all_special);
      if (token || found->is_null()) Name(config, std::string(name), std::move(token));
    }
  for (const auto& [name, token] : file.items())
    if (!IsUsual(name) && name.ends_with("_token"))
      if (auto given = GivenByName(token, all_special)) Name(config, name, std::move(given));
}

// A list of tokens, or an object of named ones.
void ReadExtra(FolderConfig& config, const SortedJson* extra, bool all_special) {
  if (!extra) return;
  if (extra->is_object()) {
    for (const auto& [name, token] : extra->items())
      if (auto given = Given(token, all_special)) Name(config, name, std::move(given));
  }
  if (!extra->is_array()) return;
  for (const SortedJson& token : *extra)
    if (auto given = Given(token, all_special)) config.extra.push_back(std::move(*given));
}

// Every place that names special tokens. tokenizer_config.json with "added_tokens_decoder" is the only one;
// without it special_tokens_map.json goes before it.
void ReadTokens(FolderConfig& config, const SortedJson& tokenizer, const fs::path& folder) {
  ReadNamed(config, tokenizer, false);
  const SortedJson* extra = Find(tokenizer, "extra_special_tokens");
  ReadExtra(config, extra && !extra->empty() ? extra : Find(tokenizer, "additional_special_tokens"), false);
  const SortedJson* decoder = Find(tokenizer, "added_tokens_decoder");
  config.has_decoder = decoder && decoder->is_object();
  if (config.has_decoder) {
    config.added = DecoderEntries(*decoder, (folder / "tokenizer_config.json").string());
  } else {
    const SortedJson map = ReadObject(folder / "special_tokens_map.json");
    ReadNamed(config, map, true);
    ReadExtra(config, Find(map, "extra_special_tokens"), true);
    const fs::path added = folder / "added_tokens.json";
    config.added = LegacyEntries(ReadObject(added), config, added.string());
    if (config.extra.empty() && (!extra || extra->is_object()))
      ReadExtra(config, Find(map, "additional_special_tokens"), false);
  }
  std::sort(config.added.begin(), config.added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  for (const NamedToken& named : config.named)
    if (named.token) config.specials.emplace_back(named.name, named.token->content);
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
  ReadTokens(config, tokenizer, folder);
  config.tokenizer_class = Text(tokenizer, "tokenizer_class");
  config.prefix_space = Flag(tokenizer, "add_prefix_space");
  config.legacy = Flag(tokenizer, "legacy");
  config.add_bos = Flag(tokenizer, "add_bos_token");
  config.add_eos = Flag(tokenizer, "add_eos_token");
  if (const SortedJson* chat = Find(tokenizer, "chat_template")) config.chat_template = *chat;

  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::string where = (folder / name).string();
    const SortedJson file = ReadObject(folder / name);
    if (std::string_view(name) == "config.json") {
      config.model_type = Text(file, "model_type");
      if (config.tokenizer_class.empty()) config.tokenizer_class = Text(file, "tokenizer_class");
    }
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
