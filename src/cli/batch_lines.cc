#include "cli/batch_lines.h"

#include <cmath>
#include <random>

#include "base/error.h"
#include "cli/options.h"
#include "cli/report.h"

namespace pd::cli {
namespace {

float NumberOr(JsonReader& json, std::string_view key, float fallback) {
  return float(json.NumberOr(key, double(fallback)));
}

void ReadSampling(JsonReader& json, BatchTask& task) {
  SampleSpec& sample = task.request.sample;
  sample.temperature = NumberOr(json, "temperature", sample.temperature);
  sample.top_k = int(json.IntOr("top_k", sample.top_k));
  sample.top_p = NumberOr(json, "top_p", sample.top_p);
  sample.min_p = NumberOr(json, "min_p", sample.min_p);
  Penalties& penalties = sample.penalties;
  penalties.repetition = NumberOr(json, "repetition_penalty", penalties.repetition);
  penalties.presence = NumberOr(json, "presence_penalty", penalties.presence);
  penalties.frequency = NumberOr(json, "frequency_penalty", penalties.frequency);
  if (json.Has("seed")) task.seed = uint64_t(json.Int("seed", 0, INT64_MAX));
  if (sample.temperature == 0) {
    task.seed.reset();
  } else if (!task.seed) {
    task.seed = std::random_device{}();
  }
  sample.seed = task.seed.value_or(0);
  if (json.Has("logit_bias")) {
    task.request.bias.clear();
    const Json& bias = json.Value("logit_bias");
    if (!bias.is_object()) throw Fail(ErrorKind::kBadRequest, "{}: logit_bias is no object", json.where());
    for (const auto& [token, value] : bias.items()) {
      if (!value.is_number())
        throw Fail(ErrorKind::kBadRequest, "{}: logit_bias of {} is no number", json.where(), token);
      task.request.bias.emplace_back(TokenId(ParseInteger("logit_bias", token, 0, INT32_MAX)),
                                     value.get<float>());
    }
  }
}

std::vector<std::string> ReadStops(JsonReader& json, std::vector<std::string> fallback) {
  if (!json.Has("stop")) return fallback;
  const Json& stop = json.Value("stop");
  std::vector<std::string> stops;
  for (const Json& one : stop.is_array() ? stop : Json::array({stop})) {
    if (!one.is_string() || one.get<std::string>().empty())
      throw Fail(ErrorKind::kBadRequest, "{}: stop is a string or several, none of them empty", json.where());
    stops.push_back(one.get<std::string>());
  }
  return stops;
}

void ReadPrompt(JsonReader& json, const BatchSetting& setting, BatchTask& task) {
  if (json.Has("prompt") == json.Has("messages"))
    throw Fail(ErrorKind::kBadRequest, "{}: it needs either \"prompt\" or \"messages\"", json.where());
  const bool plain = json.Has("prompt") && json.BoolOr("raw", setting.raw);
  ChatInput input;
  if (json.Has("messages")) {
    input.messages = json.Value("messages");
    if (!input.messages.is_array() || input.messages.empty())
      throw Fail(ErrorKind::kBadRequest, "{}: messages is no list of them", json.where());
  } else {
    const std::string text = json.String("prompt");
    if (text.empty()) throw Fail(ErrorKind::kBadRequest, "{}: the prompt is empty", json.where());
    if (plain) {
      task.request.prompt = setting.tokenizer->Encode(text);
      task.continues = true;
      return;
    }
    input.messages.push_back({{"role", "user"}, {"content", text}});
  }
  if (!setting.chat)
    throw Fail(ErrorKind::kUnsupported,
               "{}: the model has no chat template: give \"prompt\" and \"raw\": true", json.where());
  task.request.prompt = setting.tokenizer->Encode(setting.chat->Render(input));
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

Json Beginning(int number, uint64_t digest, const Json& id) {
  Json json = {{"line", number}, {"input", fmt::format("{:016x}", digest)}};
  if (!id.is_null()) json["id"] = id;
  return json;
}

}  // namespace

BatchTask ReadBatchLine(std::string_view line, const std::string& where, const BatchSetting& setting,
                        Json& id) {
  BatchTask task;
  try {
    const Json object = ParseJson(line, where);
    JsonReader json(object, where);
    if (json.Has("id")) id = json.Value("id");
    task.request.sample = setting.flags.sample;
    task.request.bias = setting.flags.bias;
    task.request.context = setting.flags.context;
    task.request.prefill_chunk = setting.prefill_chunk;
    task.request.end_tokens = setting.tokenizer->end_ids();
    task.request.max_tokens = int(json.IntOr("max_tokens", setting.flags.max_tokens));
    task.seed = setting.flags.seed;
    task.stops = ReadStops(json, setting.flags.stops);
    ReadSampling(json, task);
    ReadPrompt(json, setting, task);
    json.Done();
  } catch (const Error& e) {
    // A line is no file: what is wrong with it is the caller's words.
    if (e.kind() == ErrorKind::kCorruptFile) throw Error(ErrorKind::kBadRequest, e.what());
    throw;
  }
  return task;
}

std::string BatchAnswer(int number, uint64_t digest, const Json& id, const BatchTask& task,
                        const std::string& text, const RequestResult& result) {
  Json json = Beginning(number, digest, id);
  json["text"] = text;
  json["finish_reason"] = Name(result.finish);
  json["tokens"] = result.tokens.size();
  json["prompt_tokens"] = task.request.prompt.size();
  json["seed"] = task.seed ? Json(*task.seed) : Json(nullptr);
  json["stats"] = StatsJson(result.stats);
  return ToLine(json);
}

std::string BatchError(int number, uint64_t digest, const Json& id, const Failure& failure) {
  Json json = Beginning(number, digest, id);
  json["error"] = {{"kind", Name(failure.kind)}, {"message", failure.message}};
  return ToLine(json);
}

bool IsBatchAnswer(std::string_view line, int number, uint64_t digest) {
  const std::string start = Beginning(number, digest, nullptr).dump();
  return line.starts_with(std::string_view(start).substr(0, start.size() - 1));  // without its brace
}

}  // namespace pd::cli
