// What the JSON files of a Hugging Face folder say about special tokens and chat templates, with the
// precedence of transformers 5.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "model/rows.h"

namespace pd {

struct TokenFlags {
  bool special, single_word, lstrip, rstrip, normalized;
};

// A special token, written as a string or as an object with flags.
struct GivenToken {
  std::string content;
  std::optional<TokenFlags> flags;
};

// An entry of "added_tokens_decoder" or of added_tokens.json.
struct AddedToken {
  TokenId id;
  std::string content;
  TokenFlags flags;
};

struct NamedToken {
  std::string name;                 // "bos_token"
  std::optional<GivenToken> token;  // nullopt: null, which is not the same as not named
};

struct FolderConfig {
  std::string where;                                          // the folder, for messages
  std::vector<std::pair<std::string, std::string>> specials;  // "bos_token" -> "<s>", those that are not null
  std::vector<NamedToken> named;                              // the usual seven first, each in a fixed order
  std::vector<GivenToken> extra;                              // special tokens without a name
  // tokenizer_config.json has "added_tokens_decoder": `added` are its entries, and special_tokens_map.json
  // and added_tokens.json do not count. Else `added` are those of added_tokens.json.
  bool has_decoder = false;
  std::vector<AddedToken> added;         // ascending
  std::string tokenizer_class;           // of tokenizer_config.json, else of config.json; may be empty
  std::string model_type;                // of config.json; may be empty
  std::optional<bool> prefix_space;      // "add_prefix_space"
  std::optional<bool> legacy;            // "legacy"
  std::optional<bool> add_bos, add_eos;  // explicit in tokenizer_config.json
  std::optional<TokenId> bos;            // of generation_config.json or config.json
  std::vector<TokenId> ends;             // "eos_token_id" of both, one or a list
  SortedJson chat_template;              // a string, a list of {name, template}, or null

  const std::string* Special(std::string_view name) const;  // nullptr when there is none
};

// Every file may be missing; one that is there must be well-formed: throws kCorruptFile.
FolderConfig ReadFolderConfig(const std::filesystem::path& folder);

}  // namespace pd
