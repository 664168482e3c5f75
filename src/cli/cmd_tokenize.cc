#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "formats/model_source.h"
#include "session/text_codec.h"

namespace pd::cli {
namespace {

struct TokenizeOptions {
  std::string model, ids;
  Flag ids_flag;
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
  const bool back = options.ids_flag.given();
  return WriteOutput(back ? IdsToText(options, *tokenizer) : TextToIds(options, *tokenizer)) ? kOk
                                                                                             : kOutputClosed;
}

}  // namespace

void AddTokenize(const Command& program) {
  const Command command = program.Add("tokenize", "Turn text into token ids, or ids into text");
  auto options = std::make_shared<TokenizeOptions>();
  TokenizeOptions& o = *options;
  AddModel(command, o.model);
  AddPrompt(command, o.prompt);
  o.ids_flag = command.Text("-i,--ids", o.ids, "token ids to turn into text, as in 1,2,3")
                   .Excludes(o.prompt.text_flag)
                   .Excludes(o.prompt.file_flag);
  command.Switch("!--no-special", o.encode.add_special, "add no token for the beginning or end of the text");
  command.Switch("!--plain", o.encode.parse_special,
                 "take special tokens that the text spells as plain text");
  AddJson(command, o.json);
  command.Runs([options] { return Tokenize(*options); });
}

}  // namespace pd::cli
