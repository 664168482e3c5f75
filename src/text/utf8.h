// UTF-8 as it arrives in pieces.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pd {

// One code point's bytes; U+FFFD for an invalid code point.
std::string Utf8(uint32_t code_point);

// Puts characters together from bytes in any portions. What cannot become a character is U+FFFD, once for
// each longest piece that could have begun one (Unicode's practice, which Rust and Python follow). One
// thread's.
class Utf8Assembler {
 public:
  // Appends to `text` every character that is complete now.
  void Push(std::string_view bytes, std::string& text);
  // Appends U+FFFD for a character that was begun and not finished.
  void Flush(std::string& text);

 private:
  void PushByte(uint8_t byte, std::string& text);
  std::string begun_;           // the first bytes of a character
  int missing_ = 0;             // bytes that complete it
  uint8_t low_ = 0, high_ = 0;  // what the next byte may be
};

bool IsUtf8(std::string_view bytes);

}  // namespace pd
