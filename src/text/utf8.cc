#include "text/utf8.h"

namespace pd {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Utf8(uint32_t code_point) {
  const auto tail = [&](int shift) { return char(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) return {char(code_point)};
  if (code_point < 0x800) return {char(0xC0 | (code_point >> 6)), tail(0)};
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000))
    return std::string(kReplacement);
  if (code_point < 0x10000) return {char(0xE0 | (code_point >> 12)), tail(6), tail(0)};
  return {char(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)};
}

void Utf8Assembler::Push(std::string_view bytes, std::string& text) {
  for (const char byte : bytes) PushByte(uint8_t(byte), text);
}

// The Unicode standard's table of well-formed sequences (3-7): only the second byte's range depends on the
// first.
void Utf8Assembler::PushByte(uint8_t byte, std::string& text) {
  if (missing_ > 0) {
    if (byte >= low_ && byte <= high_) {
      begun_.push_back(char(byte));
      low_ = 0x80, high_ = 0xBF;
      if (--missing_ == 0) {
        text += begun_;
        begun_.clear();
      }
      return;
    }
    Flush(text);  // and this byte begins anew
  }
  if (byte < 0x80) {
    text.push_back(char(byte));
  } else if (byte >= 0xC2 && byte <= 0xF4) {
    begun_ = {char(byte)};
    missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  } else {
    text += kReplacement;
  }
}

void Utf8Assembler::Flush(std::string& text) {
  if (missing_ > 0) text += kReplacement;
  begun_.clear();
  missing_ = 0;
}

bool IsUtf8(std::string_view bytes) {
  Utf8Assembler assembler;
  std::string text;
  assembler.Push(bytes, text);
  assembler.Flush(text);
  return text == bytes;
}

}  // namespace pd
