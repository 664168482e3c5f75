// Where templates come from, and what is wrong with them. What they print: template_goldens_test.cc.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/temp_folder.h"
#include "tests/text/gguf_writer.h"
#include "tests/text/goldens.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

ChatInput Hello() {
  ChatInput input;
  input.messages = Json::parse(R"([{"role": "user", "content": "Hello"}])");
  return input;
}

void ExpectError(const std::function<void()>& act, ErrorKind kind, const std::string& says) {
  try {
    act();
    FAIL() << "no error: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

class TemplateFolder : public testing::Test {
 protected:
  void Write(const fs::path& name, const std::string& text) { WriteFileAtomically(folder_ / name, text); }
  const test::TempFolder folder_;
};

TEST_F(TemplateFolder, OneTemplateInTheConfiguration) {
  EXPECT_EQ(ChatTemplate::FromFolder(folder_.path()), nullptr);
  Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"},
    "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"})");
  EXPECT_EQ(ChatTemplate::FromFolder(folder_.path())->Render(Hello()), "<s>Hello</s>");
}

TEST_F(TemplateFolder, SeveralTemplatesByName) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "D"},
    {"name": "tool_use", "template": "T{{ tools|length }}"}, {"name": "rag", "template": "R"}]})");
  const auto chat = ChatTemplate::FromFolder(folder_.path());
  EXPECT_EQ(chat->names(), (std::vector<std::string>{"default", "rag", "tool_use"}));
  ChatInput input = Hello();
  EXPECT_EQ(chat->Render(input), "D");
  input.tools = Json::array({Json::object()});
  EXPECT_EQ(chat->Render(input), "T1");
  input.name = "rag";
  EXPECT_EQ(chat->Render(input), "R");
  input.name = "none";
  ExpectError([&] { chat->Render(input); }, ErrorKind::kBadRequest, "it has: default, rag, tool_use");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  ExpectError([&] { ChatTemplate::FromFolder(folder_.path()); }, ErrorKind::kCorruptFile,
              "tokenizer_config.json");
}

TEST_F(TemplateFolder, TemplatesInFilesOfTheirOwn) {
  Write("tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>"})");
  Write("chat_template.jinja", "{{ bos_token }}new");
  fs::create_directories(folder_ / "additional_chat_templates");
  Write("additional_chat_templates/rag.jinja", "R");
  const auto chat = ChatTemplate::FromFolder(folder_.path());
  EXPECT_EQ(chat->Render(Hello()), "<s>new");
  ChatInput input = Hello();
  input.name = "rag";
  EXPECT_EQ(chat->Render(input), "R");
}

TEST(ChatTemplate, InAGgufFile) {
  EXPECT_EQ(ChatTemplate::FromGguf(*MetadataWriter().Parse()), nullptr);
  const auto file =
      MetadataWriter()
          .Add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "</s>"})
          .Add("tokenizer.ggml.bos_token_id", 0)
          .Add("tokenizer.ggml.eos_token_id", 1)
          .Add("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].role }}{{ eos_token }}")
          .Add("tokenizer.chat_template.tool_use", "tools")
          .Parse();
  const auto chat = ChatTemplate::FromGguf(*file);
  EXPECT_EQ(chat->Render(Hello()), "<s>user</s>");
  EXPECT_EQ(chat->names(), (std::vector<std::string>{"default", "tool_use"}));
}

TEST(ChatTemplate, TheModelsOwn) {
  const char* path = std::getenv("PD_TEST_MODEL");
  if (!path || !fs::exists(path)) GTEST_SKIP() << "the default model is not here; ./dev fetches it";
  const auto chat = ChatTemplate::FromGguf(*GgufFile::Open(path));
  EXPECT_EQ(
      chat->Render(Hello()),
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
}

std::string Rendered(const std::string& source, ChatInput input = Hello()) {
  return ChatTemplate("model/chat_template.jinja", {{"default", source}}, Json::object()).Render(input);
}

TEST(ChatTemplate, ErrorsSayWhereAndWhat) {
  ExpectError([] { Rendered("\n{{ raise_exception('Only\ntwo roles') }}"); }, ErrorKind::kBadRequest,
              "Only two roles");
  ExpectError(
      [] { Rendered("\n\n{{ messages|shuffle }}"); }, ErrorKind::kUnsupported,
      "model/chat_template.jinja:3: the filter shuffle, which Jinja2 does not know either, is not supported");
  ExpectError([] { Rendered("{{ messages[0].text.upper() }}"); }, ErrorKind::kBadRequest,
              "model/chat_template.jinja:1: the chat template fails: 'text' is undefined");
  ExpectError([] { Rendered("{% for %}"); }, ErrorKind::kUnsupported, "does not parse");
  ExpectError([] { Rendered("a\xff"); }, ErrorKind::kCorruptFile, "UTF-8");
  ExpectError(
      [] {
        Rendered("{% for i in range(99999) %}{% for j in range(999) %}{{ '' }}{% endfor %}{% endfor %}");
      },
      ErrorKind::kUnsupported, "runs for more than 20000000 steps");
  ExpectError(
      [] {
        Rendered("{% for i in range(99999) %}{% for j in range(9999) %}0123456789{% endfor %}{% endfor %}");
      },
      ErrorKind::kUnsupported, "writes more than 32 MiB");
}

TEST_F(TemplateFolder, AnEmptyTemplateIsNamed) {
  Write("tokenizer_config.json", R"({"chat_template": "old"})");
  Write("chat_template.jinja", "\n");
  ExpectError([&] { ChatTemplate::FromFolder(folder_.path())->Render(Hello()); }, ErrorKind::kUnsupported,
              "chat_template.jinja: the chat template is empty");
}

TEST_F(TemplateFolder, LineEndsOfAnySystem) {
  Write("chat_template.jinja", "User: {{ messages[0].content }}\r\nAssistant:\r\n");
  EXPECT_EQ(ChatTemplate::FromFolder(folder_.path())->Render(Hello()), "User: Hello\nAssistant:");
}

TEST(ChatTemplate, ANameOfAnyBytes) {
  const ChatTemplate chat("dir\xff/chat_template.jinja", {{"default", "{{ 1 }}"}}, Json::object());
  EXPECT_EQ(chat.Render(Hello()), "1");
}

// As transformers: keys that are null are dropped, and reasoning is there under each name.
TEST(ChatTemplate, MessagesAsTransformersHandsThemOver) {
  ChatInput input;
  input.messages = Json::parse(R"([{"role": "assistant", "content": null, "reasoning": "hm"}])");
  EXPECT_EQ(Rendered("{{ messages[0] }}", input),
            "{'thinking': 'hm', 'role': 'assistant', 'reasoning': 'hm', 'reasoning_content': 'hm'}");
  input.messages = Json::parse(R"(["text"])");
  ExpectError([&] { Rendered("", input); }, ErrorKind::kUnsupported, "empty");
  ExpectError([&] { Rendered("x", input); }, ErrorKind::kBadRequest, "not a JSON object");
  input = Hello();
  input.extra = {{"messages", Json::array()}};
  ExpectError([&] { Rendered("x", input); }, ErrorKind::kBadRequest, "no variable to set");
  input.extra = {{"tools", Json::array({1})}, {"documents", Json::array({2})}};
  EXPECT_EQ(Rendered("{{ tools }}{{ documents }}", input), "[1][2]");
}

TEST(ChatTemplate, MessagesOfAnyBytes) {
  ChatInput input = Hello();
  input.messages[0]["content"] = "a\xff\xf0\x9f";
  EXPECT_EQ(Rendered("{{ messages[0].content }}", input), "a\ufffd\ufffd");
  input.messages[0]["content"] = std::string("\0\x1b", 2);
  EXPECT_EQ(Rendered("{{ messages[0].content }}", input), std::string("\0\x1b", 2));
}

TEST(ChatTemplate, VariablesOfTheCaller) {
  ChatInput input = Hello();
  input.extra = {{"enable_thinking", false}, {"bos_token", "<mine>"}};
  EXPECT_EQ(Rendered("{{ enable_thinking }}{{ bos_token }}{{ tools is none }}{{ documents is none }}{{ "
                     "add_generation_prompt }}",
                     input),
            "False<mine>TrueTrueTrue");
  input.add_generation_prompt = false;
  EXPECT_EQ(Rendered("{{ add_generation_prompt }}", input), "False");
  EXPECT_EQ(Rendered("{{ strftime_now('%Y') | length }}"), "4");
}

}  // namespace
}  // namespace pd
