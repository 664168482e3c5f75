#include "cli/text_flags.h"

#include <cstdint>

#include "base/error.h"

namespace pd::cli {

void AddTextFlags(const Command& command, TextSettings& settings) {
  SampleSpec& sample = settings.sample;
  Penalties& penalties = sample.penalties;
  command.Integer("-n,--max-tokens", settings.max_tokens, {0, INT32_MAX}, "tokens generated at most");
  command.Integer("--ctx", settings.context, {1, INT32_MAX},
                  "tokens of prompt and text together; default: the model's");
  command.Repeated("--stop", settings.stops, "end the text before this string; may be repeated");
  command.Number("--temp", sample.temperature, {0, 100}, "temperature; 0: the likeliest token");
  command.Integer("--top-k", sample.top_k, {0, INT32_MAX}, "keep the N likeliest tokens; 0: all");
  command.Number("--top-p", sample.top_p, {0, 1, true},
                 "keep the likeliest tokens that together reach X; 1: all");
  command.Number("--min-p", sample.min_p, {0, 1}, "keep tokens at least X times as likely as the likeliest");
  command
      .Parsed(
          "--seed",
          [&settings](const std::string& text) {
            settings.seed = uint64_t(ParseInteger("--seed", text, 0, INT64_MAX));
          },
          "random seed; default: a new one each time, which the statistics name")
      .ValueName("N");
  command.Number("--repeat-penalty", penalties.repetition, {0.001, 1000},
                 "divides logits of tokens that occurred; 1: off");
  command.Number("--presence-penalty", penalties.presence, {-1000, 1000},
                 "subtracted from logits of generated tokens");
  command.Number("--frequency-penalty", penalties.frequency, {-1000, 1000},
                 "likewise, for each time they occurred");
  command
      .ParsedEach(
          "--logit-bias",
          [&settings](const std::string& text) { settings.bias.push_back(ParseBias("--logit-bias", text)); },
          "added to a token's logit; may be repeated")
      .ValueName("ID:X");
}

void CheckTextFlags(const TextSettings& settings) {
  for (const std::string& stop : settings.stops)
    if (stop.empty())
      throw Fail(ErrorKind::kBadRequest, "--stop: an empty string would stop every text at once");
}

}  // namespace pd::cli
