#include "base/error.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace pd {
namespace {

// Bytes of the well-formed UTF-8 sequence at the start of `text`, or 0. Unicode 15, table 3-7.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  uint8_t low = 0x80, high = 0xbf;  // of the second byte
  if (first == 0xe0) low = 0xa0;    // else overlong
  if (first == 0xed) high = 0x9f;   // else a surrogate
  if (first == 0xf0) low = 0x90;    // else overlong
  if (first == 0xf4) high = 0x8f;   // else above U+10FFFF
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return length;
}

}  // namespace

std::string OneLine(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const bool printable = length > 1 || (length == 1 && uint8_t(text[0]) >= 0x20 && text[0] != 0x7f);
    if (printable) line += text.substr(0, length);
    if (!printable) line += '?';
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return line;
}

const char* Name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kBadRequest:
      return "bad_request";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kCorruptFile:
      return "corrupt_file";
    case ErrorKind::kOutOfMemory:
      return "out_of_memory";
    case ErrorKind::kDevice:
      return "device";
    case ErrorKind::kCancelled:
      return "cancelled";
    case ErrorKind::kBusy:
      return "busy";
  }
  return "unknown";
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace pd
