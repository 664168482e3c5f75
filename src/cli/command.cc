#include "cli/command.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "cli/exit_codes.h"
#include "cli/terminal.h"

namespace pd::cli {
namespace {

// What messages call a flag: "-n,--max-tokens" is --max-tokens.
std::string LongName(const std::string& names) {
  const size_t begin = names.find("--");
  return begin == std::string::npos ? names : names.substr(begin, names.find(',', begin) - begin);
}

bool Within(double value, const Range& range) {
  return value <= range.max && (range.above ? value > range.min : value >= range.min);
}

bool TakesValue(const CLI::Option* option) { return option && option->get_items_expected_max() > 0; }

// Whether the value of the flag that `word` names, or of the last of its short flags, is the next word.
bool ValueFollows(const CLI::App& app, const std::string& word) {
  if (word.starts_with("--"))
    return word.find('=') == std::string::npos && TakesValue(app.get_option_no_throw(word));
  for (size_t i = 1; i < word.size(); ++i)
    if (TakesValue(app.get_option_no_throw(std::string{'-', word[i]}))) return i + 1 == word.size();
  return false;
}

// The command line's words, "--flag=" as two of them: CLI11 takes it for a flag whose value is the next word.
std::vector<std::string> Words(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> words;
  const CLI::App* app = &program;
  bool is_value = false, flags_may_come = true;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (std::exchange(is_value, false) || !flags_may_come) {
      words.push_back(std::move(word));
    } else if (word.starts_with("--") && word.ends_with('=') &&
               TakesValue(app->get_option_no_throw(word.substr(0, word.size() - 1)))) {
      word.pop_back();
      words.insert(words.end(), {std::move(word), ""});
    } else if (word.size() > 1 && word.starts_with('-')) {
      flags_may_come = word != "--";
      is_value = ValueFollows(*app, word);
      words.push_back(std::move(word));
    } else {
      const auto below =
          app->get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
      if (!below.empty()) app = below.front();
      words.push_back(std::move(word));
    }
  }
  return words;
}

}  // namespace

Flag& Flag::Required() {
  option_->required();
  return *this;
}

Flag& Flag::ValueName(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Flag& Flag::Needs(const Flag& other) {
  option_->needs(other.option_);
  return *this;
}

Flag& Flag::Excludes(const Flag& other) {
  option_->excludes(other.option_);
  return *this;
}

bool Flag::given() const { return option_->count() > 0; }

Command Command::Add(const std::string& name, const std::string& help) const {
  return {app_->add_subcommand(name, help), action_};
}

Command Command::AddHidden(const std::string& name) const {
  return {app_->add_subcommand(name)->group(""), action_};
}

Flag Command::Switch(const std::string& names, bool& on, const std::string& help) const {
  return Flag(app_->add_flag(names, on, help));
}

Flag Command::Text(const std::string& names, std::string& target, const std::string& help) const {
  CLI::Option* option = app_->add_option_function<std::string>(
      names,
      [&target, name = LongName(names)](const std::string& text) {
        if (text.empty()) throw Fail(ErrorKind::kBadRequest, "{}: it is empty: give it a value", name);
        target = text;
      },
      help);
  if (!target.empty()) option->default_str(target);
  return Flag(option);
}

Flag Command::AnyText(const std::string& names, std::string& target, const std::string& help) const {
  return Flag(app_->add_option(names, target, help));
}

// A list of CLI11's own splits values in brackets, and takes the words after the first, too.
Flag Command::Each(const std::string& names, std::function<void(const std::string&)> read,
                   const std::string& help) const {
  return Flag(app_->add_option(names, CLI::callback_t([read = std::move(read)](const CLI::results_t& texts) {
                                 for (const std::string& text : texts) read(text);
                                 return true;
                               }),
                               help)
                  ->type_name("TEXT")
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Flag Command::Repeated(const std::string& names, std::vector<std::string>& target,
                       const std::string& help) const {
  return Each(names, [&target](const std::string& text) { target.push_back(text); }, help);
}

Flag Command::List(const std::string& names, std::vector<std::string>& target,
                   const std::string& help) const {
  const auto read = [&target, name = LongName(names)](const std::string& text) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (end == begin) throw Fail(ErrorKind::kBadRequest, "{}: '{}' has an empty name", name, text);
      target.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  return Each(names, read, help);
}

Flag Command::Parsed(const std::string& names, std::function<void(const std::string&)> read,
                     const std::string& help) const {
  return Flag(app_->add_option_function<std::string>(names, std::move(read), help));
}

Flag Command::ParsedEach(const std::string& names, std::function<void(const std::string&)> read,
                         const std::string& help) const {
  return Each(names, std::move(read), help);
}

// Numbers are read by us: CLI11 takes octal and hexadecimal ones, and "nan" passes its ranges.
Flag Command::Integer(const std::string& names, int& target, Range range, const std::string& help) const {
  CLI::Option* option = app_->add_option_function<std::string>(
      names,
      [&target, range, name = LongName(names)](const std::string& text) {
        target = int(ParseInteger(name, text, int64_t(range.min), int64_t(range.max)));
      },
      help);
  if (Within(target, range)) option->default_str(std::to_string(target));
  return Flag(option->type_name("N"));
}

Flag Command::Integers(const std::string& names, std::vector<int>& target, Range range,
                       const std::string& help) const {
  return Flag(app_->add_option_function<std::string>(
                      names,
                      [&target, range, name = LongName(names)](const std::string& text) {
                        target.clear();
                        for (size_t begin = 0; begin <= text.size();) {
                          const size_t end = std::min(text.find(',', begin), text.size());
                          target.push_back(int(ParseInteger(name, text.substr(begin, end - begin),
                                                            int64_t(range.min), int64_t(range.max))));
                          begin = end + 1;
                        }
                      },
                      help)
                  ->default_str(fmt::format("{}", fmt::join(target, ",")))
                  ->type_name("N,N,..."));
}

Flag Command::Number(const std::string& names, float& target, Range range, const std::string& help) const {
  CLI::Option* option = app_->add_option_function<std::string>(
      names,
      [&target, range, name = LongName(names)](const std::string& text) {
        target = ParseNumber(name, text, range);
      },
      help);
  if (Within(double(target), range)) option->default_str(fmt::format("{}", target));
  return Flag(option->type_name("X"));
}

Flag Command::OneOf(const std::string& names, const std::vector<std::string>& choices,
                    std::function<void(size_t index)> take, const std::string& help) const {
  CLI::Option* option = app_->add_option_function<std::string>(
      names,
      [choices, take = std::move(take)](const std::string& text) {
        take(size_t(std::ranges::find(choices, text) - choices.begin()));
      },
      help);
  option->type_name("")->check(CLI::IsMember(choices))->default_str(choices.front());
  return Flag(option);
}

void Command::Footer(const std::string& text) const { app_->footer(text); }

void Command::Runs(Action run) const {
  app_->callback([app = app_, action = action_, run = std::move(run)] {
    const auto below = app->get_subcommands();
    if (below.empty()) {
      *action = run;
      return;
    }
    // CLI11 calls back for a command after one of its own, too.
    const std::string own = app->get_name() + " " + below.front()->get_name();
    for (const CLI::Option* option : app->get_options())
      if (option->count() > 0)
        throw Fail(ErrorKind::kBadRequest,
                   "{}: '{}' has flags of its own, after its name; see 'pd-engine {} --help'",
                   option->get_name(), own, own);
  });
}

Action ParseCommandLine(int argc, char** argv, const std::string& description, const std::string& footer,
                        const std::function<void(const Command&)>& add) {
  Action action;
  const auto program = std::make_shared<CLI::App>(description, "pd-engine");
  program->require_subcommand(1);
  program->footer(footer);
  add(Command(program.get(), &action));
  try {
    std::vector<std::string> words = Words(*program, argc, argv);
    std::ranges::reverse(words);  // as CLI11 wants them
    program->parse(words);
  } catch (const CLI::CallForHelp&) {
    // Of the command that was named, if one was.
    return [help = program->help()] { return WriteOutput(help) ? kOk : kOutputClosed; };
  } catch (const CLI::ParseError& e) {
    std::string named;  // the command and its own
    for (const CLI::App* app = program.get(); !app->get_subcommands().empty();) {
      app = app->get_subcommands().front();
      named += " " + app->get_name();
    }
    if (named.empty() && argc > 1 && argv[1][0] != '-')
      throw Fail(ErrorKind::kBadRequest, "there is no command '{}': 'pd-engine --help' lists them", argv[1]);
    throw Fail(ErrorKind::kBadRequest, "{}; see 'pd-engine{} --help'", e.what(), named);
  }
  return [program, action] { return action(); };  // flags look into it
}

}  // namespace pd::cli
