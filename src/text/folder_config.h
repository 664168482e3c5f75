// What the JSON files of a Hugging Face folder say about special tokens and chat templates.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/rows.h"

namespace pd {

// An entry of "added_tokens_decoder".
struct AddedToken {
  TokenId id;
  std::string content;
  bool special, single_word, lstrip, rstrip, normalized;
};

struct FolderConfig {
  std::string where;                                          // the folder, for messages
  std::vector<std::pair<std::string, std::string>> specials;  // "bos_token" -> "<s>"; in a fixed order
  std::vector<AddedToken> added;
  std::optional<bool> add_bos, add_eos;  // explicit in tokenizer_config.json
  std::optional<TokenId> bos;            // of generation_config.json or config.json
  std::vector<TokenId> ends;             // "eos_token_id" of both, one or a list
  SortedJson chat_template;              // a string, a list of {name, template}, or null

  const std::string* Special(std::string_view name) const;  // nullptr when there is none
};

// Every file may be missing; one that is there must be well-formed: throws kCorruptFile.
FolderConfig ReadFolderConfig(const std::filesystem::path& folder);

}  // namespace pd
