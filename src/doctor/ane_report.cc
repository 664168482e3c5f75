#include "doctor/ane_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace pd {
namespace {

constexpr int kFormat = 1;

// A number, a word, or a list of them, as one reads it in a line.
std::string Short(const Json& value) {
  if (value.is_number_float()) return fmt::format("{:.5g}", value.get<double>());
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

// "key value, key value"
std::string Line(const Json& object) {
  std::string line;
  for (const auto& [key, value] : object.items())
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", key, Short(value));
  return line;
}

// Numbers below a check: one line for plain ones together, one for each entry of a list.
std::string Numbers(const Json& numbers) {
  Json plain = Json::object();
  std::string lists;
  for (const auto& [key, value] : numbers.items()) {
    if (!value.is_array()) {
      plain[key] = value;
      continue;
    }
    for (const Json& entry : value)
      lists += fmt::format("        {}: {}\n", key, entry.is_object() ? Line(entry) : Short(entry));
  }
  return (plain.empty() ? "" : fmt::format("        {}\n", Line(plain))) + lists;
}

std::string Section(const AneReport& report, Outcome outcome) {
  std::string text;
  for (const AneCheck& check : report.checks)
    if (check.outcome == outcome)
      text +=
          fmt::format("  {:>2} {:<18}{}\n{}", check.claim, check.name, check.reason, Numbers(check.numbers));
  return text.empty() ? "" : fmt::format("\n{}\n{}", Name(outcome), text);
}

}  // namespace

const char* Name(Outcome outcome) {
  return outcome == Outcome::kProved ? "proved" : outcome == Outcome::kRefuted ? "refuted" : "not run";
}

Json ToJson(const AneReport& report) {
  Json checks = Json::array();
  for (const AneCheck& check : report.checks)
    checks.push_back({{"claim", check.claim},
                      {"name", check.name},
                      {"verdict", Name(check.outcome)},
                      {"numbers", check.numbers},
                      {"reason", check.reason}});
  return {{"format", kFormat},
          {"version", report.version},
          {"machine", report.machine},
          {"os_build", report.os_build},
          {"neural_engine", report.stand_in.empty()},
          {"stand_in", report.stand_in.empty() ? Json() : Json(report.stand_in)},
          {"bundle", report.bundle},
          {"checks", checks},
          {"profile", report.costs ? ToJson(*report.costs) : Json()}};
}

std::string ToText(const AneReport& report) {
  std::string text = fmt::format("pd-engine {} on {}, system {}\nbundle: {}\n", report.version,
                                 report.machine, report.os_build, Line(report.bundle));
  if (!report.stand_in.empty())
    text += fmt::format(
        "THIS IS NO NEURAL ENGINE: {} ran the programs. Nothing below is about Apple's silicon, and nothing "
        "is "
        "proved.\n",
        report.stand_in);
  for (const Outcome outcome : {Outcome::kRefuted, Outcome::kProved, Outcome::kNotRun})
    text += Section(report, outcome);
  const auto count = [&](Outcome outcome) {
    return std::ranges::count(report.checks, outcome, &AneCheck::outcome);
  };
  text += fmt::format("\n{} proved, {} refuted, {} not run\n", count(Outcome::kProved),
                      count(Outcome::kRefuted), count(Outcome::kNotRun));
  return text;
}

}  // namespace pd
