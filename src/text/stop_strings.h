// Cuts a text that arrives in portions before the first stop string.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace pd {

// Follows each string with Knuth, Morris and Pratt's automaton: constant time for a byte and a string. One
// thread's.
class StopStrings {
 public:
  // Throws kBadRequest for a string that is empty or not UTF-8.
  explicit StopStrings(std::vector<std::string> stops);

  // The text that is safe to show now. Of strings that are complete at the same byte, the longest counts.
  std::string Push(std::string_view text);
  std::string Flush();                  // what was held back
  int found() const { return found_; }  // index of the stop string that ended the text; -1: none

 private:
  struct Automaton {
    std::string stop;
    std::vector<size_t> back;  // back[n]: the longest proper border of stop's first n bytes
    size_t matched = 0;
    void Advance(char byte);
  };
  std::vector<Automaton> automata_;
  std::string held_;
  int found_ = -1;
};

}  // namespace pd
