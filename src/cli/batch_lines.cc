#include "cli/batch_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "cli/options.h"
#include "cli/raw_json.h"
#include "cli/report.h"
#include "text/chat_template.h"

namespace pd::cli {
namespace {

constexpr std::array<std::string_view, 17> kKeys = {"prompt",
                                                    "messages",
                                                    "raw",
                                                    "tools",
                                                    "chat_template_kwargs",
                                                    "id",
                                                    "max_tokens",
                                                    "temperature",
                                                    "top_k",
                                                    "top_p",
                                                    "min_p",
                                                    "seed",
                                                    "stop",
                                                    "repetition_penalty",
                                                    "presence_penalty",
                                                    "frequency_penalty",
                                                    "logit_bias"};

void CheckKeys(const Json& line, const std::string& where) {
  std::vector<std::string> unknown;
  for (const auto& [key, value] : line.items())
    if (std::ranges::find(kKeys, key) == kKeys.end()) unknown.push_back(fmt::format("\"{}\"", key));
  if (!unknown.empty())
    throw Fail(ErrorKind::kBadRequest, "{}: no line has {}; what one may have is {}", where,
               fmt::join(unknown, " or "), fmt::join(kKeys, ", "));
}

float NumberOr(JsonReader& json, std::string_view key, float fallback) {
  return float(json.NumberOr(key, double(fallback)));
}

void ReadSampling(JsonReader& json, TextSettings& text) {
  SampleSpec& sample = text.sample;
  sample.temperature = NumberOr(json, "temperature", sample.temperature);
  sample.top_k = int(json.IntOr("top_k", sample.top_k));
  sample.top_p = NumberOr(json, "top_p", sample.top_p);
  sample.min_p = NumberOr(json, "min_p", sample.min_p);
  Penalties& penalties = sample.penalties;
  penalties.repetition = NumberOr(json, "repetition_penalty", penalties.repetition);
  penalties.presence = NumberOr(json, "presence_penalty", penalties.presence);
  penalties.frequency = NumberOr(json, "frequency_penalty", penalties.frequency);
  if (json.Has("seed")) text.seed = uint64_t(json.Int("seed", 0, INT64_MAX));
  if (json.Has("logit_bias")) {
    text.bias.clear();
    const Json& bias = json.Value("logit_bias");
    if (!bias.is_object())
      throw Fail(ErrorKind::kBadRequest, "{}: \"logit_bias\" must be an object", json.where());
    for (const auto& [token, value] : bias.items()) {
      if (!value.is_number())
        throw Fail(ErrorKind::kBadRequest, "{}: \"logit_bias\" of {} must be a number", json.where(), token);
      text.bias.emplace_back(TokenId(ParseInteger("logit_bias", token, 0, INT32_MAX)), value.get<float>());
    }
  }
}

std::vector<std::string> ReadStops(JsonReader& json, std::vector<std::string> fallback) {
  if (!json.Has("stop")) return fallback;
  const Json& stop = json.Value("stop");
  std::vector<std::string> stops;
  for (const Json& one : stop.is_array() ? stop : Json::array({stop})) {
    if (!one.is_string() || one.get<std::string>().empty())
      throw Fail(ErrorKind::kBadRequest,
                 "{}: \"stop\" must be a string or an array of strings, none of them empty", json.where());
    stops.push_back(one.get<std::string>());
  }
  return stops;
}

// The template's variables and tools: the line's own before what all lines have.
void ReadChatVariables(JsonReader& json, const ChatVariables& common, ChatInput& input) {
  input.tools = common.tools;
  input.extra = common.variables;
  if (json.Has("tools")) {
    input.tools = json.Value("tools");
    CheckTools(input.tools, json.where() + ": \"tools\"");
  }
  if (json.Has("chat_template_kwargs")) {
    const Json& own = json.Value("chat_template_kwargs");
    CheckVariables(own, json.where() + ": \"chat_template_kwargs\"");
    for (const auto& [name, value] : own.items()) input.extra[name] = value;
  }
}

void RefuseChatKeys(const JsonReader& json) {
  for (const char* key : {"tools", "chat_template_kwargs"})
    if (json.Has(key))
      throw Fail(ErrorKind::kBadRequest, "{}: \"{}\" is for chats, and a raw prompt is none", json.where(),
                 key);
}

Prompt ReadPrompt(JsonReader& json, const BatchSetting& setting) {
  if (json.Has("prompt") == json.Has("messages"))
    throw Fail(ErrorKind::kBadRequest, "{}: it needs either \"prompt\" or \"messages\"", json.where());
  ChatInput input;
  if (json.Has("messages")) {
    if (json.BoolOr("raw", false))
      throw Fail(ErrorKind::kBadRequest, "{}: \"raw\" goes with \"prompt\", not with \"messages\"",
                 json.where());
    input.messages = json.Value("messages");
    if (!input.messages.is_array() || input.messages.empty())
      throw Fail(ErrorKind::kBadRequest, "{}: \"messages\" must be an array, and not empty", json.where());
  } else {
    const std::string text = json.String("prompt");
    if (text.empty()) throw Fail(ErrorKind::kBadRequest, "{}: the prompt is empty", json.where());
    if (json.BoolOr("raw", setting.raw)) {
      RefuseChatKeys(json);
      return setting.codec->Plain(text);
    }
    input.messages.push_back({{"role", "user"}, {"content", text}});
  }
  if (!setting.codec->has_chat_template())
    throw Fail(ErrorKind::kUnsupported,
               "{}: the model has no chat template: give \"prompt\" and \"raw\": true", json.where());
  ReadChatVariables(json, setting.chat, input);
  return setting.codec->Chat(input);
}

Json Number(double value) { return std::round(value * 1000) / 1000; }

Json Joules(std::optional<double> joules) { return joules ? Number(*joules) : Json(nullptr); }

Json StatsJson(const RequestStats& s) {
  Json prefill = {{"device", s.prefill_device.empty() ? Json(nullptr) : Json(s.prefill_device)},
                  {"tokens", s.prefill_tokens},
                  {"ms", Number(s.prefill_ms)},
                  {"joules", Joules(s.prefill_joules)},
                  {"cached_tokens", s.cached_tokens}};
  if (!s.prefill_why.empty()) prefill["why"] = s.prefill_why;
  if (s.tail_tokens > 0) prefill["tail"] = {{"tokens", s.tail_tokens}, {"ms", Number(s.tail_ms)}};
  if (!s.fallback.empty()) prefill["fallback"] = s.fallback;
  return {{"queued_ms", Number(s.queued_ms)},
          {"prefill", prefill},
          {"handoff",
           {{"bytes", s.handoff_bytes}, {"ms", Number(s.handoff_ms)}, {"joules", Joules(s.handoff_joules)}}},
          {"decode",
           {{"tokens", s.decode_tokens}, {"ms", Number(s.decode_ms)}, {"joules", Joules(s.decode_joules)}}},
          {"ttft_ms", s.decode_tokens > 0 ? Number(s.first_token_ms) : Json(nullptr)},
          {"total_ms", Number(s.total_ms)}};
}

Json Beginning(int number, uint64_t digest) {
  return {{"line", number}, {"input", fmt::format("{:016x}", digest)}};
}

// The line of `answer`, which is an object and not empty, behind what says whose it is.
std::string ToLine(const BatchLine& line, const Json& answer) {
  std::string text = Beginning(line.number, line.digest).dump();
  text.back() = ',';
  const std::string run = line.run.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (!line.run.empty()) text += run.substr(1, run.size() - 2) + ",";
  if (!line.id.empty()) text += "\"id\":" + line.id + ",";
  return text + pd::cli::ToLine(answer).substr(1);
}

}  // namespace

Json ParseBatchLine(std::string_view line, const std::string& where) {
  std::string text(line);
  if (const auto id = FindRawValue(line, "id"))
    text.replace(size_t(id->data() - line.data()), id->size(), WithoutNumbers(*id));
  return ParseJson(text, where);
}

TextRequest ReadBatchLine(std::string_view line, const std::string& where, const BatchSetting& setting,
                          std::string& id) {
  TextRequest request{{}, setting.text};
  TextSettings& text = request.settings;
  try {
    const Json object = ParseBatchLine(line, where);
    JsonReader json(object, where);
    if (json.Has("id")) id = FindRawValue(line, "id").value();
    CheckKeys(object, where);
    text.max_tokens = int(json.IntOr("max_tokens", text.max_tokens));
    text.stops = ReadStops(json, text.stops);
    ReadSampling(json, text);
    request.prompt = ReadPrompt(json, setting);
  } catch (const Error& e) {
    // A line is no file: what is wrong with it is the caller's words.
    if (e.kind() == ErrorKind::kCorruptFile) throw Error(ErrorKind::kBadRequest, e.what());
    throw;
  }
  return request;
}

std::string BatchAnswer(const BatchLine& line, const TextAnswer& answer) {
  Json json = {{"text", answer.text}};
  json["finish_reason"] = Name(answer.result.finish);
  json["tokens"] = answer.result.tokens.size();
  json["prompt_tokens"] = line.prompt_tokens;
  json["seed"] = answer.seed ? Json(*answer.seed) : Json(nullptr);
  json["stats"] = StatsJson(answer.result.stats);
  return ToLine(line, json);
}

std::string BatchError(const BatchLine& line, const Failure& failure) {
  return ToLine(line, {{"error", {{"kind", Name(failure.kind)}, {"message", failure.message}}}});
}

std::string BatchAnswerStart(int number, uint64_t digest) {
  std::string start = Beginning(number, digest).dump();
  start.back() = ',';  // in place of its brace: more follows
  return start;
}

}  // namespace pd::cli
