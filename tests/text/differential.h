// What Jinja2 makes of random expressions and of templates in the manner of published ones, against
// ChatTemplate. The goldens are those of tools/goldens/text_templates.py.
#pragma once
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "base/error.h"
#include "tests/text/goldens.h"
#include "text/chat_template.h"

namespace pd {

struct DifferentialCounts {
  int equal = 0;    // texts
  int failed = 0;   // Jinja2 fails, and so does the engine
  int refused = 0;  // the engine refuses what it does not support, by name
  int all() const { return equal + failed + refused; }
};

// 9 November 2026, 8:05:07, as in the goldens.
inline std::tm GoldenNow() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 10;
  time.tm_mday = 9;
  time.tm_hour = 8;
  time.tm_min = 5;
  time.tm_sec = 7;
  return time;
}

inline bool NamesWhatIsUnsupported(const Error& error) {
  return error.kind() == ErrorKind::kUnsupported &&
         std::string(error.what()).find(" is not supported") != std::string::npos;
}

// Every `stride`th line of expressions.jsonl, from `first` on.
inline DifferentialCounts CompareExpressions(int first, int stride) {
  DifferentialCounts counts;
  std::ifstream file(TextData() / "expressions.jsonl");
  std::string line;
  std::getline(file, line);
  ChatInput input;
  input.extra = Json::parse(line);
  input.now = GoldenNow();
  for (int index = 0; std::getline(file, line); ++index) {
    if (index % stride != first) continue;
    const Json golden = Json::parse(line);
    const std::string source = golden[0];
    try {
      const std::string text =
          ChatTemplate("expression", {{"default", source}}, Json::object()).Render(input);
      if (golden[1].is_null()) {
        ADD_FAILURE() << source << "\ngives: " << text << "\nbut Jinja2 fails";
      } else {
        EXPECT_EQ(text, golden[1].get<std::string>()) << source;
        ++counts.equal;
      }
    } catch (const Error& error) {
      if (golden[1].is_null()) {
        ++counts.failed;
      } else if (NamesWhatIsUnsupported(error)) {
        ++counts.refused;
      } else {
        ADD_FAILURE() << source << "\nfails: " << error.what() << "\nwant: " << golden[1];
      }
    }
  }
  return counts;
}

// Nine chats for every `stride`th template of templates/.
inline DifferentialCounts ComparePublished(int first, int stride) {
  DifferentialCounts counts;
  const Json published = Json::parse(ReadTextFile(TextData() / "published.json"));
  const Json goldens = Json::parse(ReadTextFile(TextData() / "templates.json"));
  int index = 0;
  for (const auto& [name, digests] : published["templates"].items()) {
    if (index++ % stride != first) continue;
    const std::string source = ReadTextFile(TextData() / "templates" / (name + ".jinja"));
    const ChatTemplate chat(name, {{"default", source}}, goldens["special_tokens"]);
    for (size_t at = 0; at < published["chats"].size(); ++at) {
      const std::string which = published["chats"][at];
      const Json& golden = digests.at(at);
      ChatInput input;
      input.messages = goldens["chats"][which];
      if (at % 2 == 0) input.tools = goldens["tools"];
      input.add_generation_prompt = at % 3 != 0;
      if (at > 4) input.extra = published["extra"];
      input.now = GoldenNow();
      const std::string what = name + ", " + which;
      try {
        const std::string text = chat.Render(input);
        if (golden.is_string()) {
          ADD_FAILURE() << what << "\ngives: " << text << "\nbut Jinja2: " << golden;
        } else {
          EXPECT_EQ(Fold(text), golden.get<uint32_t>()) << what << "\n" << text;
          ++counts.equal;
        }
      } catch (const Error& error) {
        constexpr std::string_view kRaised = "TemplateError: ";
        if (!golden.is_string()) {
          if (!NamesWhatIsUnsupported(error)) ADD_FAILURE() << what << "\nfails: " << error.what();
          ++counts.refused;
          continue;
        }
        const std::string theirs = golden;
        if (theirs.starts_with(kRaised)) {
          EXPECT_EQ(error.what(), theirs.substr(kRaised.size())) << what;
        }
        ++counts.failed;
      }
    }
  }
  return counts;
}

}  // namespace pd
