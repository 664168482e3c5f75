#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "base/error.h"
#include "tests/text/goldens.h"
#include "text/stop_strings.h"
#include "text/utf8.h"

namespace pd {
namespace {

std::vector<std::string> Deltas(const std::string& name, const std::string& text,
                                TextStreamOptions options = {}) {
  const auto tokenizer = FolderTokenizer(name);
  TextStream stream(tokenizer, std::move(options));
  std::vector<std::string> deltas;
  for (const TokenId id : tokenizer->Encode(text, {.add_special = false})) deltas.push_back(stream.Push(id));
  deltas.push_back(stream.Flush());
  return deltas;
}

std::string Joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

TEST(Utf8Assembler, WholeCharactersWhateverThePortions) {
  const std::string text = "a\u00e9\ud55c\U0001F600z";
  for (size_t portion = 1; portion <= text.size(); ++portion) {
    Utf8Assembler assembler;
    std::string out;
    for (size_t at = 0; at < text.size(); at += portion) {
      assembler.Push(std::string_view(text).substr(at, portion), out);
      EXPECT_TRUE(IsUtf8(out));
    }
    EXPECT_EQ(out, text);
  }
}

// Expected: bytes.decode(errors="replace") of Python 3.11.
TEST(Utf8Assembler, OneReplacementForEachPieceThatCouldHaveBegunACharacter) {
  const std::pair<std::string, std::string> cases[] = {{"\xff", "\ufffd"},
                                                       {"\xe2\x82", "\ufffd"},
                                                       {"\xe2\x82"
                                                        "a",
                                                        "\ufffda"},
                                                       {"\xf0\x9f\x98", "\ufffd"},
                                                       {"\xf0\x9f\xf0\x9f\x98\x80", "\ufffd\U0001F600"},
                                                       {"\xc0\x80", "\ufffd\ufffd"},
                                                       {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},
                                                       {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},
                                                       {"\xe0\x80\x80", "\ufffd\ufffd\ufffd"},
                                                       {"\x80\xc3\xa9", "\ufffd\u00e9"}};
  for (const auto& [bytes, expected] : cases) {
    Utf8Assembler assembler;
    std::string out;
    for (const char byte : bytes) assembler.Push({&byte, 1}, out);
    assembler.Flush(out);
    EXPECT_EQ(out, expected);
  }
}

TEST(StopStrings, CutBeforeTheFirstToBeComplete) {
  StopStrings stops({"</s>", "STOP", "OP!"});
  EXPECT_EQ(stops.Push("a<"), "a");
  EXPECT_EQ(stops.Push("/"), "");
  EXPECT_EQ(stops.Push("b"), "</b");
  EXPECT_EQ(stops.Push("ST"), "");
  EXPECT_EQ(stops.Push("STO"), "ST");
  EXPECT_EQ(stops.found(), -1);
  EXPECT_EQ(stops.Push("P! more"), "");
  EXPECT_EQ(stops.found(), 1);
  EXPECT_EQ(stops.Push("more"), "");
  EXPECT_EQ(stops.Flush(), "");
}

TEST(StopStrings, OfTwoThatEndTogetherTheLongerCuts) {
  StopStrings stops({"b", "ab"});
  EXPECT_EQ(stops.Push("xab"), "x");
  EXPECT_EQ(stops.found(), 1);
}

TEST(StopStrings, RefusesWhatCannotBeMatched) {
  EXPECT_THROW(StopStrings({""}), Error);
  EXPECT_THROW(StopStrings({"\xff"}), Error);
}

// Against a search in the whole text: over random texts of two letters, in random portions.
TEST(StopStrings, EqualsASearchInTheWholeText) {
  std::mt19937 random(1);
  const auto word = [&](int longest) {
    std::string text(1 + random() % longest, 'a');
    for (char& c : text) c = char('a' + random() % 2);
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::vector<std::string> wanted = {word(6), word(6)};
    const std::string text = word(24);
    std::string expected = text;
    size_t best_end = text.size() + 1;
    for (const std::string& stop : wanted) {
      const size_t at = text.find(stop);
      if (at == std::string::npos) continue;
      const size_t end = at + stop.size();
      if (end < best_end || (end == best_end && at < expected.size())) expected = text.substr(0, at);
      best_end = std::min(best_end, end);
    }
    StopStrings stops(wanted);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t portion = 1 + random() % 4;
      out += stops.Push(std::string_view(text).substr(at, portion));
      at += portion;
    }
    out += stops.Flush();
    EXPECT_EQ(out, expected) << text << " / " << wanted[0] << ", " << wanted[1];
    stopped += stops.found() >= 0;
  }
  EXPECT_GT(stopped, 1000);
}

// Characters that the small vocabularies have no token for, so that each comes in several.
constexpr const char* kRare = "x \U0001F9A3\uA9DF \U0001D54F\u1E0F \uC88B";

TEST(TextStream, NeverHalfACharacter) {
  for (const char* name : {"gpt-2", "sentence_piece"}) {
    const std::vector<std::string> deltas = Deltas(name, kRare);
    EXPECT_EQ(Joined(deltas), kRare);
    EXPECT_GT(std::count(deltas.begin(), deltas.end(), ""), 8) << "no character was split over tokens";
    for (const std::string& delta : deltas) EXPECT_TRUE(IsUtf8(delta)) << delta;
  }
}

TEST(TextStream, AnUnfinishedCharacterIsOneReplacementAtTheEnd) {
  for (const char* name : {"gpt-2", "sentence_piece"}) {
    const auto tokenizer = FolderTokenizer(name);
    std::vector<TokenId> ids = tokenizer->Encode("x\U0001F9A3", {.add_special = false});
    ids.pop_back();
    TextStream stream(tokenizer);
    std::string text;
    for (const TokenId id : ids) text += stream.Push(id);
    EXPECT_EQ(text, "x") << name;
    EXPECT_EQ(stream.Flush(), "\ufffd");
    EXPECT_EQ(stream.Flush(), "");
    EXPECT_EQ(stream.Push(ids[0]), "");
  }
}

TEST(TextStream, TheLeadingSpaceIsTextWhereAPromptGoesOn) {
  EXPECT_EQ(Joined(Deltas("sentence_piece", "Paris")), "Paris");
  EXPECT_EQ(Joined(Deltas("sentence_piece", "Paris", {.continues = true, .stops = {}})), " Paris");
  EXPECT_EQ(Joined(Deltas("sentence_piece", "  two")), "  two");
  EXPECT_EQ(Joined(Deltas("metaspace", "Paris", {.continues = true, .stops = {}})), " Paris");
  EXPECT_EQ(Joined(Deltas("gpt-2", " Paris")), " Paris");
}

TEST(TextStream, SpecialTokensAreLeftOutOnRequest) {
  EXPECT_EQ(Joined(Deltas("gpt-2", "a<|im_end|><think>b")), "a<think>b");
  EXPECT_EQ(Joined(Deltas("gpt-2", "a<|im_end|>b", {.skip_special = false, .stops = {}})), "a<|im_end|>b");
  // A skipped token at the start does not use up the space that is dropped there.
  EXPECT_EQ(Joined(Deltas("sentence_piece", "<s>Paris")), "Paris");
}

TEST(TextStream, StopStringsAcrossTokenBorders) {
  const std::string text = "One. Two! 한국어 끝 Three";
  for (const char* name : {"gpt-2", "sentence_piece"}) {
    const auto tokenizer = FolderTokenizer(name);
    for (size_t from = 0; from < text.size(); ++from) {
      for (size_t size = 1; from + size <= text.size(); size += 3) {
        const std::string stop = text.substr(from, size);
        if (!IsUtf8(stop)) continue;
        TextStream stream(tokenizer, {.stops = {"absent", stop}});
        std::string out;
        for (const TokenId id : tokenizer->Encode(text, {.add_special = false})) out += stream.Push(id);
        EXPECT_TRUE(stream.stopped());
        EXPECT_EQ(stream.stop_index(), 1);
        EXPECT_EQ(out + stream.Flush(), text.substr(0, text.find(stop))) << stop;
      }
    }
  }
}

TEST(TextStream, WhatLookedLikeAStopStringComesAtTheEnd) {
  const auto tokenizer = FolderTokenizer("gpt-2");
  TextStream stream(tokenizer, {.stops = {"abcdef"}});
  std::string out;
  for (const TokenId id : tokenizer->Encode("xabcde", {.add_special = false})) out += stream.Push(id);
  EXPECT_EQ(out, "x");
  EXPECT_EQ(stream.Flush(), "abcde");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, IdsWithoutATokenAddNothing) {
  TextStream stream(FolderTokenizer("gpt-2"));
  EXPECT_EQ(stream.Push(1 << 20), "");
  EXPECT_EQ(stream.Push(-1), "");
  EXPECT_EQ(stream.Flush(), "");
}

// A stream of bytes that never become text, and one that is always one byte short of a stop string.
TEST(TextStream, TimeIsLinear) {
  const auto tokenizer = FolderTokenizer("gpt-2");
  const TokenId byte = *tokenizer->Find("Ģ");  // 0x80
  const TokenId letter = *tokenizer->Find("a");
  const auto seconds = [&](TokenId id, int count) {
    TextStream stream(tokenizer, {.stops = {std::string(5000, 'a') + "b"}});
    const auto start = std::chrono::steady_clock::now();
    size_t size = 0;
    for (int i = 0; i < count; ++i) size += stream.Push(id).size();
    size += stream.Flush().size();
    EXPECT_GE(size, size_t(count));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const TokenId id : {byte, letter}) {
    seconds(id, 2000);
    // Quadratic time would be 400 times as much; a busy machine may disturb either run.
    EXPECT_LT(seconds(id, 200'000), 100 * seconds(id, 10'000) + 0.5);
  }
}

}  // namespace
}  // namespace pd
