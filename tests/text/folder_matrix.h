// Folders against transformers' AutoTokenizer: tests/data/text/folders, which tools/make_folder_goldens.py
// writes.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "base/error.h"
#include "tests/temp_folder.h"
#include "tests/text/goldens.h"

namespace pd {

class FolderMatrix {
 public:
  FolderMatrix()
      : parts_(ParseJson(ReadTextFile(TextData() / "folders" / "matrix.json"), "matrix.json")),
        digests_(ReadTextFile(TextData() / "folders" / "digests.bin")) {
    for (const auto& [name, value] : parts_["bases"].items())
      bases_[name] = ParseJson(ReadTextFile(TextData() / name / "tokenizer.json"), name);
  }

  // Every `stride`-th combination, from `first` on.
  void Run(size_t first, size_t stride) {
    size_t number = 0, wrong = 0, done = 0;
    for (const auto& [base, tokens] : parts_["bases"].items())
      for (const auto& [cls, class_files] : parts_["classes"].items())
        for (const auto& [flags, flag_values] : parts_["flags"].items())
          for (const auto& [post, around] : parts_["posts"].items())
            for (const auto& [place, where] : parts_["places"].items()) {
              if (number++ % stride != first) continue;
              Json flag_files = Json::object();
              flag_files["tokenizer_config"] = flag_values;
              const std::string why =
                  Compare(number - 1, base, tokens, {class_files, flag_files, where}, around);
              ++done;
              if (!why.empty() && ++wrong <= 10)
                ADD_FAILURE() << base << ' ' << cls << ' ' << flags << ' ' << post << ' ' << place << ": "
                              << why;
            }
    EXPECT_EQ(number * sizeof(Golden), digests_.size());
    EXPECT_EQ(wrong, 0u) << "of " << done;
  }

 private:
  struct Golden {
    uint32_t ids, size;
  };

  // $BOS and the like, and the first id after the vocabulary.
  static Json Filled(const Json& value, const Json& tokens, int next) {
    std::string text = value.dump();
    const auto replace = [&text](const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    };
    for (const auto& [name, token] : tokens.items()) replace("$" + name, token.get<std::string>());
    replace("\":\"$NEXT\"", "\":" + std::to_string(next));
    replace("$NEXT", std::to_string(next));
    return Json::parse(text);
  }

  static Json Template(const Json& around, const std::map<std::string, int>& ids) {
    if (around[0].empty() && around[1].empty()) return nullptr;
    Json single = Json::array(), special = Json::object();
    const auto put = [&](const Json& names) {
      for (const Json& name : names) {
        single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
        special[name.get<std::string>()] = {
            {"id", name}, {"ids", {ids.at(name.get<std::string>())}}, {"tokens", {name}}};
      }
    };
    put(around[0]);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    put(around[1]);
    Json pair = single;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  }

  void Write(const std::string& name, const Json& value) const {
    std::ofstream(folder_ / name, std::ios::binary) << value.dump();
  }

  // What differs, or nothing.
  std::string Compare(size_t number, const std::string& base, const Json& tokens,
                      const std::vector<Json>& fragments, const Json& around) {
    Golden golden;
    std::memcpy(&golden, digests_.data() + number * sizeof golden, sizeof golden);
    if (golden.size == 0) return "";  // transformers cannot load it either
    Json tokenizer = bases_.at(base);
    std::map<std::string, int> ids;
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) ids[token] = id.get<int>();
    for (const Json& token : tokenizer["added_tokens"])
      ids[token["content"].get<std::string>()] = token["id"];
    int next = 0;
    for (const auto& [token, id] : ids) next = std::max(next, id + 1);
    std::map<std::string, Json> files = {{"tokenizer_config", Json::object()}, {"config", Json::object()}};
    std::vector<std::string> dropped;
    for (const Json& fragment : fragments) {
      const Json filled = Filled(fragment, tokens, next);
      for (const auto& [file, values] : filled.items()) {
        if (file == "drop") {
          dropped = values.get<std::vector<std::string>>();
          continue;
        }
        Json& whole = files.try_emplace(file, Json::object()).first->second;
        for (const auto& [key, value] : values.items()) whole[key] = value;
      }
    }
    Json kept = Json::array();
    for (const Json& token : tokenizer["added_tokens"])
      if (std::find(dropped.begin(), dropped.end(), token["content"]) == dropped.end()) kept.push_back(token);
    tokenizer["added_tokens"] = kept;
    if (!around.is_null()) tokenizer["post_processor"] = Template(Filled(around, tokens, next), ids);
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      std::filesystem::remove(entry.path());
    Write("tokenizer.json", tokenizer);
    for (const auto& [name, value] : files) Write(name + ".json", value);
    try {
      const auto ours = Tokenizer::FromFolder(folder_.path());
      std::string full, bare;
      for (const Json& text : Filled(parts_["texts"], tokens, next)) {
        full += Bytes(ours->Encode(text.get<std::string>())) + "\xff\xff\xff\xff";
        bare += Bytes(ours->EncodeChat(text.get<std::string>())) + "\xff\xff\xff\xff";
      }
      const uint32_t each[] = {Fold(full), Fold(bare)};
      if (Fold({reinterpret_cast<const char*>(each), sizeof each}) != golden.ids) return "other ids";
      if (uint32_t(ours->vocab_size()) != golden.size) return "another size";
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  Json parts_;
  std::string digests_;
  std::map<std::string, Json> bases_;
  const test::TempFolder folder_;
};

}  // namespace pd
