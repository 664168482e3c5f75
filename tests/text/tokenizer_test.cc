// Special tokens, and everything that is wrong with a tokenizer's files.
#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/temp_folder.h"
#include "tests/text/gguf_writer.h"
#include "tests/text/goldens.h"
#include "text/utf8.h"

namespace pd {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

// A folder of its own for each test, with one golden tokenizer.json in it.
class TokenizerFolder : public testing::Test {
 protected:
  void SetUp() override { Use("gpt-2"); }
  void Use(const std::string& name) {
    fs::copy_file(TextData() / name / "tokenizer.json", folder_ / "tokenizer.json",
                  fs::copy_options::overwrite_existing);
  }
  void Write(const char* name, const std::string& text) { WriteFileAtomically(folder_ / name, text); }
  std::shared_ptr<const Tokenizer> Load() const { return Tokenizer::FromFolder(folder_.path()); }
  // The error of loading: its kind, and that its line says where and what.
  void ExpectError(ErrorKind kind, const std::vector<std::string>& says) const {
    try {
      Load();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      for (const std::string& words : says)
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  const test::TempFolder folder_;
};

TEST_F(TokenizerFolder, RawTextFollowsTheFileAndAChatHasItsOwnTokensOnly) {
  Use("llama-bpe");  // its post-processor puts <|begin_of_text|> before a text
  const auto tokenizer = Load();
  const TokenId bos = *tokenizer->Find("<|begin_of_text|>");
  const Ids plain = tokenizer->EncodeChat("Hi");
  Ids with = plain;
  with.insert(with.begin(), bos);
  EXPECT_EQ(tokenizer->Encode("Hi"), with);
  EXPECT_EQ(tokenizer->EncodeChat("<|begin_of_text|>Hi"), with);
  EXPECT_EQ(tokenizer->Encode("Hi", {.add_special = false}), plain);
  EXPECT_EQ(tokenizer->Encode(""), Ids{bos});
  EXPECT_EQ(tokenizer->EncodeChat(""), Ids{});
  Ids twice = with;  // as the file says, and as Hugging Face has it
  twice.insert(twice.begin(), bos);
  EXPECT_EQ(tokenizer->Encode("<|begin_of_text|>Hi"), twice);
  // Spelled, but not to be read: then it is text, and BOS comes before it.
  const Ids literal = tokenizer->Encode("<|begin_of_text|>", {.parse_special = false});
  EXPECT_EQ(literal[0], bos);
  EXPECT_GT(literal.size(), 5u);
  EXPECT_EQ(tokenizer->Decode(literal, true), "<|begin_of_text|>");
}

TEST_F(TokenizerFolder, ATokenizerThatAddsNothingTakesNothingAway) {
  const auto tokenizer = Load();
  EXPECT_EQ(tokenizer->Encode("Hi"), tokenizer->Encode("Hi", {.add_special = false}));
  const TokenId bos = *tokenizer->Find("<|begin_of_text|>");
  EXPECT_EQ(tokenizer->Encode("<|begin_of_text|><think>")[0], bos);
}

TEST_F(TokenizerFolder, APrefixOfSeveralTokensAndASuffix) {
  // The form of GLM's [gMask]<sop>.
  SortedJson json = SortedJson::parse(ReadTextFile(folder_ / "tokenizer.json"));
  const auto special = [&](const char* token) {
    for (const SortedJson& added : json["added_tokens"])
      if (added["content"] == token)
        return SortedJson{{"id", token}, {"ids", {added["id"]}}, {"tokens", {token}}};
    return SortedJson();
  };
  const char *a = "<|endoftext|>", *b = "<|im_start|>";
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", SortedJson::parse(R"([{"SpecialToken":{"id":"<|endoftext|>","type_id":0}},
                              {"SpecialToken":{"id":"<|im_start|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},
                              {"SpecialToken":{"id":"<|im_end|>","type_id":0}}])")},
      {"pair", SortedJson::array()},
      {"special_tokens", {{a, special(a)}, {b, special(b)}, {"<|im_end|>", special("<|im_end|>")}}}};
  json["post_processor"]["pair"] = json["post_processor"]["single"];
  Write("tokenizer.json", json.dump());
  const auto tokenizer = Load();
  const Ids full = tokenizer->Encode("<|endoftext|><|im_start|>Hi<|im_end|>", {.add_special = false});
  EXPECT_EQ(tokenizer->Encode("Hi"), full);
}

TEST_F(TokenizerFolder, ThePostProcessorDecidesAndFlagsDoNot) {
  Use("llama-bpe");
  const Ids with = Load()->Encode("Hi");
  Write("tokenizer_config.json", R"({"add_bos_token": false, "bos_token": "<|begin_of_text|>"})");
  EXPECT_EQ(Load()->Encode("Hi"), with);
  Use("gpt-2");
  Write("tokenizer_config.json", R"({"add_bos_token": true, "add_eos_token": true,
    "bos_token": {"content": "<|im_start|>", "lstrip": false}, "eos_token": "<|im_end|>"})");
  const auto tokenizer = Load();
  EXPECT_EQ(tokenizer->Encode("Hi"), tokenizer->EncodeChat("Hi"));
  EXPECT_EQ(tokenizer->bos(), tokenizer->Find("<|im_start|>"));
  Write("tokenizer_config.json", R"({"add_bos_token": null, "bos_token": null})");
  EXPECT_EQ(Load()->bos(), std::nullopt);
}

// Tokens that one place alone names are no text.
TEST_F(TokenizerFolder, EveryPlaceThatNamesASpecialToken) {
  const TokenId next = Load()->vocab_size();
  const std::string id = std::to_string(next);
  const std::vector<std::pair<const char*, std::string>> places = {
      {"tokenizer_config.json", R"({"bos_token": "<new>"})"},
      {"tokenizer_config.json", R"({"pad_token": {"__type": "AddedToken", "content": "<new>"}})"},
      {"tokenizer_config.json", R"({"additional_special_tokens": ["<new>"]})"},
      {"tokenizer_config.json", R"({"extra_special_tokens": ["<new>"]})"},
      {"tokenizer_config.json", R"({"extra_special_tokens": {"image_token": "<new>"}})"},
      {"tokenizer_config.json", R"({"image_token": "<new>"})"},
      {"tokenizer_config.json",
       R"({"added_tokens_decoder": {")" + id + R"(": {"content": "<new>", "special": true}}})"},
      {"special_tokens_map.json", R"({"bos_token": {"content": "<new>"}})"},
      {"special_tokens_map.json", R"({"additional_special_tokens": ["<new>"]})"},
      {"added_tokens.json", R"({"<new>": )" + id + "}"}};
  for (const auto& [file, text] : places) {
    Write(file, text);
    EXPECT_EQ(Load()->EncodeChat("<new><new>"), (Ids{next, next})) << file << ": " << text;
    fs::remove(folder_ / file);
  }
}

TEST_F(TokenizerFolder, TheMapWinsWhereTheConfigurationHasNoAddedTokens) {
  Write("special_tokens_map.json", R"({"bos_token": "<|im_start|>"})");
  Write("tokenizer_config.json", R"({"bos_token": "<|im_end|>"})");
  EXPECT_EQ(Load()->bos(), Load()->Find("<|im_start|>"));
  Write("tokenizer_config.json", R"({"bos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  EXPECT_EQ(Load()->bos(), Load()->Find("<|im_end|>"));
}

TEST_F(TokenizerFolder, IdsThatNameNoToken) {
  Write("generation_config.json", R"({"eos_token_id": [-1, 4294967295, 18446744073709551615, 70000000]})");
  Write("config.json", R"({"eos_token_id": 4294967295, "bos_token_id": -1})");
  const Ids ends = Load()->end_ids();
  fs::remove(folder_ / "generation_config.json");
  fs::remove(folder_ / "config.json");
  EXPECT_EQ(Load()->end_ids(), ends);
  EXPECT_EQ(Load()->bos(), std::nullopt);
}

TEST_F(TokenizerFolder, EveryPlaceThatNamesAnEnd) {
  const auto id = [](const Tokenizer& tokenizer, const char* token) { return *tokenizer.Find(token); };
  Write("tokenizer_config.json", R"({"eos_token": "</think>"})");
  Write("generation_config.json", R"({"eos_token_id": [3, 5], "bos_token_id": 7})");
  Write("config.json", R"({"eos_token_id": 4, "text_config": {"eos_token_id": 6}})");
  const auto tokenizer = Load();
  Ids ends = {3,
              4,
              5,
              6,
              id(*tokenizer, "</think>"),
              id(*tokenizer, "<|im_end|>"),
              id(*tokenizer, "<|eot_id|>"),
              id(*tokenizer, "<|endoftext|>")};
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(tokenizer->end_ids(), ends);
  EXPECT_TRUE(tokenizer->IsEnd(5));
  EXPECT_FALSE(tokenizer->IsEnd(7));
  EXPECT_EQ(tokenizer->bos(), 7);

  Write("tokenizer_config.json", "{}");
  Write("special_tokens_map.json", R"({"eos_token": {"content": "<think>"}, "bos_token": "<|im_start|>"})");
  EXPECT_TRUE(Load()->IsEnd(*tokenizer->Find("<think>")));
  EXPECT_EQ(Load()->bos(), tokenizer->Find("<|im_start|>"));
}

TEST_F(TokenizerFolder, TokensThatOnlyTheConfigurationAdds) {
  const int size = Load()->vocab_size();
  Write("tokenizer_config.json",
        R"({"added_tokens_decoder": {")" + std::to_string(size) + R"(": {"content": "<new>", "special": true},
          ")" +
            std::to_string(size + 1) +
            R"(": {"content": "[wide]", "special": false, "rstrip": true, "normalized": false}}})");
  const auto tokenizer = Load();
  EXPECT_EQ(tokenizer->vocab_size(), size + 2);
  EXPECT_EQ(tokenizer->Encode("<new>[wide]  <new>"), (Ids{size, size + 1, size}));
  EXPECT_EQ(tokenizer->Decode(Ids{size, size + 1}, true), "[wide]");
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"5": {"content": "<new>", "special": true}}})");
  ExpectError(ErrorKind::kCorruptFile, {"tokenizer.json", "<new>", "two models", "download it again"});
}

TEST_F(TokenizerFolder, TruncationAndPaddingDoNotApply) {
  SortedJson json = SortedJson::parse(ReadTextFile(folder_ / "tokenizer.json"));
  const size_t whole = Load()->Encode("a much longer text than four tokens").size();
  json["truncation"] = {
      {"direction", "Right"}, {"max_length", 4}, {"strategy", "LongestFirst"}, {"stride", 0}};
  json["padding"] = {{"strategy", {{"Fixed", 99}}},
                     {"direction", "Right"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "!"}};
  json["model"]["dropout"] = 0.5;
  Write("tokenizer.json", json.dump());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Load()->Encode("a much longer text than four tokens").size(), whole);
}

TEST_F(TokenizerFolder, FilesThatAreNotWhatTheyShouldBe) {
  const std::string good = ReadTextFile(folder_ / "tokenizer.json");
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[1, 2]"), std::string("\xff\xfe\0", 3),
        good.substr(0, good.size() / 2),
        std::string(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"),
        std::string(
            R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}})"),
        std::string(R"({"version": "1.0", "model": {"type": "Oracle"}})"), std::string(100'000, '['),
        std::string(
            R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer":
          {"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false}})")}) {
    Write("tokenizer.json", bad);
    ExpectError(ErrorKind::kCorruptFile, {"tokenizer.json", "download it again"});
  }
  SortedJson json = SortedJson::parse(good);
  json["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  Write("tokenizer.json", json.dump());
  ExpectError(ErrorKind::kUnsupported, {"tokenizer.json", "WordPiece", "GGUF"});
  fs::remove(folder_ / "tokenizer.json");
  ExpectError(ErrorKind::kNotFound, {"no tokenizer.json and no tokenizer.model"});
}

TEST_F(TokenizerFolder, ConfigurationsThatAreNotWhatTheyShouldBe) {
  for (const char* bad :
       {"[", "[]", R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
        R"({"added_tokens_decoder": {"1": {}}})", R"({"added_tokens_decoder": {"-1": {"content": "y"}}})"}) {
    Write("tokenizer_config.json", bad);
    ExpectError(ErrorKind::kCorruptFile, {"tokenizer_config.json"});
  }
  Write("tokenizer_config.json", "{}");
  for (const char* bad :
       {R"({"eos_token_id": "x"})", R"({"eos_token_id": [1, "2"]})", R"({"eos_token_id": 1.5})"}) {
    Write("generation_config.json", bad);
    ExpectError(ErrorKind::kCorruptFile, {"generation_config.json", "eos_token_id"});
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsReadWithReplacements) {
  const auto tokenizer = FolderTokenizer("gpt-2");
  EXPECT_EQ(tokenizer->Encode("a\xff\xe2\x82z"), tokenizer->Encode("a\ufffd\ufffdz"));
  EXPECT_EQ(tokenizer->Encode(std::string_view("a\0b", 3)).size(), 3u);
}

TEST(Tokenizer, LongTextsOfTheWorstKinds) {
  for (const char* name : {"gpt-2", "sentence_piece"}) {
    const auto tokenizer = FolderTokenizer(name);
    for (const char* unit : {"a", " ", "\n", "ab ", "한", "<|im_end|>", "\xff", "1", "<"}) {
      std::string text;
      while (text.size() < (200u << 10)) text += unit;
      const Ids ids = tokenizer->Encode(text, {.add_special = false});
      EXPECT_GT(ids.size(), 1000u);
      if (IsUtf8(text)) {
        EXPECT_TRUE(tokenizer->Decode(ids, false) == text) << name << ": " << unit;
      }
    }
  }
  const auto tokenizer = FolderTokenizer("gpt-2");
  EXPECT_THROW(tokenizer->Encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')), Error);
}

TEST(Tokenizer, IdsOutsideTheVocabulary) {
  const auto tokenizer = FolderTokenizer("gpt-2");
  for (const TokenId id : {TokenId(-1), TokenId(tokenizer->vocab_size()), INT32_MAX, INT32_MIN}) {
    try {
      tokenizer->Decode(Ids{0, id});
      FAIL() << id;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      EXPECT_NE(std::string(error.what()).find(std::to_string(id)), std::string::npos);
    }
  }
  EXPECT_EQ(tokenizer->Decode(Ids{}), "");
  EXPECT_EQ(tokenizer->Spelling(tokenizer->vocab_size()), std::nullopt);
}

// A vocabulary of four letters, a merge, and a control token.
MetadataWriter Small() {
  MetadataWriter writer;
  writer.Add("general.architecture", "llama")
      .Add("tokenizer.ggml.model", "gpt2")
      .Add("tokenizer.ggml.pre", "gpt-2");
  return writer;
}
const std::vector<std::string> kTokens = {"a", "b", "ab", "<end>", "Ġ"};
const std::vector<std::string> kMerges = {"a b"};

TEST(GgufTokenizer, TokenTypesAndDefaults) {
  const auto tokenizer =
      Tokenizer::FromGguf(*Small()
                               .Add("tokenizer.ggml.tokens", kTokens)
                               .Add("tokenizer.ggml.merges", kMerges)
                               .Add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3, 1})
                               .Add("tokenizer.ggml.eot_token_id", 3)
                               .Add("tokenizer.ggml.eom_token_id", 2)
                               .Add("tokenizer.ggml.eos_token_id", 1)
                               .Parse());
  EXPECT_EQ(tokenizer->Encode("ab<end> a"), (Ids{2, 3, 4, 0}));
  EXPECT_EQ(tokenizer->end_ids(), (Ids{1, 2, 3}));
  EXPECT_EQ(tokenizer->Decode(Ids{2, 3, 4}, true), "ab ");
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
}

TEST(GgufTokenizer, BosByDefaultAndByFlag) {
  const auto encode = [](const char* model, const char* pre, std::optional<bool> add) {
    MetadataWriter writer;
    writer.Add("general.architecture", "llama")
        .Add("tokenizer.ggml.model", model)
        .Add("tokenizer.ggml.pre", pre);
    writer.Add("tokenizer.ggml.tokens", kTokens)
        .Add("tokenizer.ggml.merges", kMerges)
        .Add("tokenizer.ggml.bos_token_id", 3);
    writer.Add("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1, 1, 3, 1});
    writer.Add("tokenizer.ggml.scores", std::vector<float>{0, 0, -1, 0, 0})
        .Add("tokenizer.ggml.add_space_prefix", false);
    if (add) writer.Add("tokenizer.ggml.add_bos_token", *add);
    return Tokenizer::FromGguf(*writer.Parse())->Encode("ab");
  };
  EXPECT_EQ(encode("gpt2", "gpt-2", {}), (Ids{2}));
  EXPECT_EQ(encode("gpt2", "gpt-2", true), (Ids{3, 2}));
  EXPECT_EQ(encode("gpt2", "llama-bpe", {}), (Ids{3, 2}));
  EXPECT_EQ(encode("gpt2", "llama-bpe", false), (Ids{2}));
  EXPECT_EQ(encode("llama", "default", {}), (Ids{3, 2}));
  EXPECT_EQ(encode("llama", "default", false), (Ids{2}));
}

TEST(GgufTokenizer, AnIdOutsideTheVocabularyNamesNoToken) {
  MetadataWriter writer = Small();
  writer.Add("tokenizer.ggml.tokens", kTokens).Add("tokenizer.ggml.merges", kMerges);
  for (const char* key : {"bos", "eos", "eot", "eom", "unknown"})
    writer.Add(std::string("tokenizer.ggml.") + key + "_token_id", -1);  // 4294967295 as it is stored
  const auto tokenizer = Tokenizer::FromGguf(*writer.Parse());
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_TRUE(tokenizer->end_ids().empty());
}

TEST(GgufTokenizer, WhatOneKindOfVocabularyNeedsIsNotJudgedInTheOther) {
  MetadataWriter bytes = Small();
  bytes.Add("tokenizer.ggml.tokens", kTokens).Add("tokenizer.ggml.merges", kMerges);
  bytes.Add("tokenizer.ggml.scores", std::vector<int32_t>{1}).Add("tokenizer.ggml.add_space_prefix", 3);
  EXPECT_EQ(Tokenizer::FromGguf(*bytes.Parse())->Encode("ab"), Ids{2});
  // Scores of a scored vocabulary may be integers; merges and the pre-tokenizer's name do not matter.
  MetadataWriter scored;
  scored.Add("tokenizer.ggml.model", "llama").Add("tokenizer.ggml.tokens", kTokens);
  scored.Add("tokenizer.ggml.scores", std::vector<int32_t>{0, 0, -1, 0, 0});
  scored.Add("tokenizer.ggml.merges", 1).Add("tokenizer.ggml.pre", 2);
  scored.Add("tokenizer.ggml.add_space_prefix", false);
  EXPECT_EQ(Tokenizer::FromGguf(*scored.Parse())->Encode("ab"), Ids{2});
}

void ExpectGgufError(MetadataWriter& writer, ErrorKind kind, const std::string& says) {
  try {
    Tokenizer::FromGguf(*writer.Parse());
    FAIL() << "no error: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("made.gguf"), std::string::npos) << error.what();
  }
}

TEST(GgufTokenizer, MetadataThatIsNotWhatItShouldBe) {
  MetadataWriter writer = Small();
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "tokenizer.ggml.tokens");
  ExpectGgufError(writer.Add("tokenizer.ggml.tokens", kTokens), ErrorKind::kCorruptFile,
                  "tokenizer.ggml.merges");

  const auto with = [](const std::vector<std::string>& tokens, const std::vector<std::string>& merges) {
    return Small().Add("tokenizer.ggml.tokens", tokens).Add("tokenizer.ggml.merges", merges);
  };
  writer = with(kTokens, {"ab"});
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "'ab' is not two tokens");
  writer = with(kTokens, {"b b"});
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "tokenizer.ggml.merges");
  writer = with({"a", "a"}, {});
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "twice");
  writer = with({"a", "\xff"}, {});
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "not UTF-8");
  writer = with(kTokens, kMerges).Add("tokenizer.ggml.token_type", std::vector<int32_t>{1});
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "token_type has 1 entries for 5 tokens");
  writer = with(kTokens, kMerges).Add("tokenizer.ggml.eos_token_id", "five");
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "eos_token_id");

  writer = MetadataWriter()
               .Add("tokenizer.ggml.model", "gpt2")
               .Add("tokenizer.ggml.tokens", kTokens)
               .Add("tokenizer.ggml.merges", kMerges);
  ExpectGgufError(writer, ErrorKind::kUnsupported, "tokenizer.ggml.pre is missing");
  writer.Add("tokenizer.ggml.pre", "made-up");
  ExpectGgufError(writer, ErrorKind::kUnsupported, "'made-up'");
  writer = MetadataWriter().Add("tokenizer.ggml.model", "t5");
  ExpectGgufError(writer, ErrorKind::kUnsupported, "\"t5\"");
  writer = MetadataWriter().Add("tokenizer.ggml.model", "llama").Add("tokenizer.ggml.tokens", kTokens);
  ExpectGgufError(writer, ErrorKind::kCorruptFile, "tokenizer.ggml.scores");
  writer.Add("tokenizer.ggml.remove_extra_whitespaces", true);
  ExpectGgufError(writer, ErrorKind::kUnsupported, "remove_extra_whitespaces");
}

}  // namespace
}  // namespace pd
