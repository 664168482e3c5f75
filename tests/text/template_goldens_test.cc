// Rendered chats and expressions against transformers.
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/differential.h"
#include "tests/text/goldens.h"
#include "text/chat_template.h"

namespace pd {
namespace {

const Json& Goldens() {
  static const Json goldens = [] {
    const auto path = TextData() / "templates.json";
    return Json::parse(ReadTextFile(path));
  }();
  return goldens;
}

constexpr std::string_view kRaised = "TemplateError: ";

// The golden's text, or an error where transformers has one: with the same words if the template wrote them.
void ExpectGolden(const ChatTemplate& chat, const ChatInput& input, const Json& golden,
                  const std::string& what) {
  std::string text;
  try {
    text = chat.Render(input);
  } catch (const Error& error) {
    if (!golden.contains("error")) {
      ADD_FAILURE() << what << "\nfails: " << error.what() << "\nwant: " << golden["text"];
      return;
    }
    const std::string theirs = golden["error"];
    if (theirs.starts_with(kRaised)) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadRequest);
      EXPECT_EQ(error.what(), theirs.substr(kRaised.size())) << what;
    }
    return;
  }
  if (golden.contains("error")) {
    ADD_FAILURE() << what << "\ngives: " << text << "\nbut transformers: " << golden["error"];
  } else {
    EXPECT_EQ(text, golden["text"].get<std::string>()) << what;
  }
}

TEST(TemplateGoldens, ChatsEqualTransformers) {
  int chats = 0;
  for (const auto& [name, source] : Goldens()["templates"].items()) {
    const ChatTemplate chat(name, {{"default", source.get<std::string>()}}, Goldens()["special_tokens"]);
    for (const Json& golden : Goldens()["cases"]) {
      if (golden["template"] != name) continue;
      ChatInput input;
      input.messages = Goldens()["chats"][golden["chat"].get<std::string>()];
      if (golden["tools"]) input.tools = Goldens()["tools"];
      input.add_generation_prompt = golden["prompt"];
      input.extra = golden["extra"];
      input.now = GoldenNow();
      ExpectGolden(chat, input, golden, name + ", " + golden["chat"].get<std::string>());
      ++chats;
    }
  }
  EXPECT_EQ(chats, int(Goldens()["cases"].size()));
  EXPECT_GE(chats, 300);
}

TEST(TemplateGoldens, ExpressionsEqualTransformers) {
  for (const Json& golden : Goldens()["snippets"]) {
    const std::string source = golden["source"];
    const ChatTemplate chat("snippet", {{"default", source}}, Json::object());
    ChatInput input;
    input.extra = Goldens()["context"];
    input.now = GoldenNow();
    ExpectGolden(chat, input, golden, source);
  }
}

// All of both: differential_long_test.cc.
TEST(TemplateGoldens, ASampleOfTheDifferential) {
  EXPECT_GE(CompareExpressions(3, 10).equal, 200);
  EXPECT_GE(ComparePublished(2, 10).equal, 60);
}

}  // namespace
}  // namespace pd
