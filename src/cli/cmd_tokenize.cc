#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"

namespace pd::cli {
namespace {

struct TokenizeOptions {
  std::string model, ids;
  CLI::Option* ids_given = nullptr;
  PromptOptions prompt;
  EncodeOptions encode;
  bool json = false;
};

std::string IdsToText(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const auto ids = ParseIds("--ids", options.ids);
  const std::string text = tokenizer.Decode(ids, /*skip_special=*/false);
  return options.json ? ToLine({{"ids", ids}, {"text", text}}) : text + "\n";
}

std::string TextToIds(const TokenizeOptions& options, const Tokenizer& tokenizer) {
  const Interrupt interrupt;
  const std::string text = ReadPrompt(options.prompt, interrupt);
  const auto ids = tokenizer.Encode(text, options.encode);
  Json pieces = Json::array();
  for (TokenId id : ids) pieces.push_back(tokenizer.Piece(id, false, false).bytes);
  if (options.json) return ToLine({{"text", text}, {"ids", ids}, {"pieces", pieces}});
  std::string lines;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = ToLine(pieces[i]);  // quoted, so that spaces and newlines show
    lines += fmt::format("{:>8}  {}", ids[i], piece);
  }
  return lines;
}

int Tokenize(const TokenizeOptions& options) {
  const auto tokenizer = OpenTokenizer(OpenModel(ModelPath(options.model)));
  const bool back = options.ids_given->count() > 0;
  return WriteOutput(back ? IdsToText(options, *tokenizer) : TextToIds(options, *tokenizer)) ? kOk
                                                                                             : kOutputClosed;
}

}  // namespace

void AddTokenize(CLI::App& program, Action& action) {
  CLI::App* command = program.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  auto options = std::make_shared<TokenizeOptions>();
  AddModel(*command, options->model);
  AddPrompt(*command, options->prompt);
  options->ids_given =
      command->add_option("-i,--ids", options->ids, "token ids to turn into text, as in 1,2,3")
          ->excludes(options->prompt.text_given)
          ->excludes(options->prompt.file_given);
  command->add_flag("!--no-special", options->encode.add_special,
                    "add no token for the beginning or end of the text");
  command->add_flag("!--plain", options->encode.parse_special,
                    "take special tokens that the text spells as plain text");
  command->add_flag("--json", options->json, "print one JSON object");
  command->callback([&action, options] { action = [options] { return Tokenize(*options); }; });
}

}  // namespace pd::cli
