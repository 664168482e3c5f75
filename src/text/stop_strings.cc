#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/utf8.h"

namespace pd {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) throw Fail(ErrorKind::kBadRequest, "a stop string is empty; leave it out");
    if (!IsUtf8(stop)) throw Fail(ErrorKind::kBadRequest, "a stop string is not UTF-8; write it as text");
    Automaton automaton{std::move(stop), {0, 0}};
    for (size_t n = 1, border = 0; n < automaton.stop.size(); ++n) {
      while (border > 0 && automaton.stop[n] != automaton.stop[border]) border = automaton.back[border];
      if (automaton.stop[n] == automaton.stop[border]) ++border;
      automaton.back.push_back(border);
    }
    automata_.push_back(std::move(automaton));
  }
}

void StopStrings::Automaton::Advance(char byte) {
  while (matched > 0 && stop[matched] != byte) matched = back[matched];
  if (stop[matched] == byte) ++matched;
}

std::string StopStrings::Push(std::string_view text) {
  if (found_ >= 0) return "";
  for (const char byte : text) {
    held_.push_back(byte);
    size_t longest = 0;
    for (size_t i = 0; i < automata_.size(); ++i) {
      automata_[i].Advance(byte);
      const size_t size = automata_[i].stop.size();
      if (automata_[i].matched == size && size > longest) {
        longest = size;
        found_ = int(i);
      }
    }
    if (found_ >= 0) {
      held_.resize(held_.size() - longest);
      return std::exchange(held_, "");
    }
  }
  size_t keep = 0;
  for (const Automaton& automaton : automata_) keep = std::max(keep, automaton.matched);
  std::string safe = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return safe;
}

std::string StopStrings::Flush() { return std::exchange(held_, ""); }

}  // namespace pd
