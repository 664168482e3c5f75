#include "cli/text_flags.h"

#include "base/error.h"
#include "cli/options.h"

namespace pd::cli {

void AddTextFlags(CLI::App& command, TextFlags& flags) {
  AddInteger(command, "-n,--max-tokens", flags.max_tokens, {0, INT32_MAX}, "tokens generated at most")
      ->default_str("256");
  AddInteger(command, "--ctx", flags.context, {1, INT32_MAX},
             "tokens of prompt and text together; default: the model's");
  command.add_option("--stop", flags.stops, "end the text before this string; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Penalties& p = flags.sample.penalties;
  AddNumber(command, "--temp", flags.sample.temperature, {0, 100},
            "temperature; 0, the default: the likeliest token");
  AddInteger(command, "--top-k", flags.sample.top_k, {0, INT32_MAX}, "keep the N likeliest tokens; 0: all");
  AddNumber(command, "--top-p", flags.sample.top_p, {0, 1, true},
            "keep the likeliest tokens that together reach X; 1: all");
  AddNumber(command, "--min-p", flags.sample.min_p, {0, 1},
            "keep tokens at least X times as likely as the likeliest");
  command
      .add_option_function<std::string>(
          "--seed",
          [&flags](const std::string& text) {
            flags.seed = uint64_t(ParseInteger("--seed", text, 0, INT64_MAX));
          },
          "of the draws; default: a new one each time, which the statistics name")
      ->type_name("N");
  AddNumber(command, "--repeat-penalty", p.repetition, {0.001, 1000},
            "divides logits of tokens that occurred; 1: off");
  AddNumber(command, "--presence-penalty", p.presence, {-1000, 1000},
            "subtracted from logits of generated tokens");
  AddNumber(command, "--frequency-penalty", p.frequency, {-1000, 1000},
            "likewise, for each time they occurred");
  command
      .add_option_function<std::vector<std::string>>(
          "--logit-bias",
          [&flags](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) flags.bias.push_back(ParseBias("--logit-bias", text));
          },
          "added to a token's logit; may be repeated")
      ->type_name("ID:X")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void CheckTextFlags(const TextFlags& flags) {
  for (const std::string& stop : flags.stops)
    if (stop.empty())
      throw Fail(ErrorKind::kBadRequest, "--stop: an empty string would stop every text at once");
}

}  // namespace pd::cli
