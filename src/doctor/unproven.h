// The list of docs/unproven.md as far as a program needs it: what is claimed, and how it is settled.
#pragma once
#include <span>
#include <string_view>

namespace pd {

struct Claim {
  int number = 0;         // in docs/unproven.md
  std::string_view name;  // "placement": of its check, in reports
  // How to settle it when this program cannot: a command. Empty: `doctor --bundle` does.
  std::string_view command;
};

// In ascending order of numbers, each once.
std::span<const Claim> Claims();
const Claim& FindClaim(std::string_view name);  // that exists

}  // namespace pd
