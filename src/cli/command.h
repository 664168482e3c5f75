// Commands and their flags. The argument library stays behind this: a file that uses its header takes four
// seconds longer to compile.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pd::cli {

using Action = std::function<int()>;  // returns the exit code

// A flag or an argument of a command. Its functions refine it and return it.
class Flag {
 public:
  Flag() = default;
  explicit Flag(CLI::Option* option) : option_(option) {}
  Flag& Required();
  Flag& ValueName(const std::string& name);  // in --help: "DIR"
  Flag& Needs(const Flag& other);            // refused without it
  Flag& Excludes(const Flag& other);
  bool given() const;  // on the command line; once that is parsed

 private:
  CLI::Option* option_ = nullptr;
};

// A command of the program. Copies are the same command; targets must live until the program ends. Names are
// those of CLI11: "-n,--max-tokens", or "input" for an argument. What a target holds before is shown as the
// default, unless it is empty or out of range.
class Command {
 public:
  Command(CLI::App* app, Action* action) : app_(app), action_(action) {}

  Command Add(const std::string& name, const std::string& help) const;
  Command AddHidden(const std::string& name) const;  // in no list

  Flag Switch(const std::string& names, bool& on, const std::string& help) const;  // "!--no-x" sets false
  // Values arrive byte for byte as typed: brackets, commas, quotes and a leading '-' mean nothing here. An
  // empty one is refused, but for AnyText's and Repeated's.
  Flag Text(const std::string& names, std::string& target, const std::string& help) const;
  Flag AnyText(const std::string& names, std::string& target, const std::string& help) const;
  Flag Repeated(const std::string& names, std::vector<std::string>& target, const std::string& help) const;
  Flag List(const std::string& names, std::vector<std::string>& target,
            const std::string& help) const;  // "a,b", may be repeated
  Flag Integer(const std::string& names, int& target, Range range, const std::string& help) const;
  Flag Integers(const std::string& names, std::vector<int>& target, Range range,
                const std::string& help) const;  // "1,4,16"
  Flag Number(const std::string& names, float& target, Range range, const std::string& help) const;
  // `read` is called with the value while the command line is parsed and may throw kBadRequest; the second
  // form with that of each time the flag is given.
  Flag Parsed(const std::string& names, std::function<void(const std::string&)> read,
              const std::string& help) const;
  Flag ParsedEach(const std::string& names, std::function<void(const std::string&)> read,
                  const std::string& help) const;
  // One of a few names. The first of them stands for what `target` holds.
  template <class T>
  Flag Choice(const std::string& names, T& target, std::vector<std::pair<std::string, T>> choices,
              const std::string& help) const {
    std::vector<std::string> texts;
    for (const auto& [text, value] : choices) texts.push_back(text);
    return OneOf(
        names, texts,
        [&target, choices = std::move(choices)](size_t index) { target = choices[index].second; }, help);
  }

  void Footer(const std::string& text) const;
  // What the program does when the command line names this command. A command that has commands of its own
  // does it when none of them is named, and refuses its own flags before their names.
  void Runs(Action run) const;

 private:
  Flag Each(const std::string& names, std::function<void(const std::string&)> read,
            const std::string& help) const;
  Flag OneOf(const std::string& names, const std::vector<std::string>& choices,
             std::function<void(size_t index)> take, const std::string& help) const;

  CLI::App* app_;
  Action* action_;
};

// Parses the command line. `add` adds the commands. Returns what to do: printing help, if that is asked for.
// Throws kBadRequest, with the way to the help, for a command line that cannot be.
Action ParseCommandLine(int argc, char** argv, const std::string& description, const std::string& footer,
                        const std::function<void(const Command&)>& add);

}  // namespace pd::cli
