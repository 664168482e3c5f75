#include "text/ffi_handles.h"

namespace pd {
namespace {

ErrorKind KindOf(int32_t status) {
  switch (status) {
    case kPdTextBadRequest:
      return ErrorKind::kBadRequest;
    case kPdTextCorrupt:
      return ErrorKind::kCorruptFile;
    default:
      return ErrorKind::kUnsupported;
  }
}

}  // namespace

Error FfiError(int32_t status, const FfiBytes& error, std::string_view where, std::string_view remedy) {
  std::string message = where.empty() ? "" : fmt::format("{}: ", where);
  if (status == kPdTextInternal) message += "the text library stopped on an internal fault: ";
  message += error.view();
  if (!remedy.empty()) message += fmt::format("; {}", remedy);
  for (char& c : message)
    if (c == '\n' || c == '\r') c = ' ';  // one line
  return Error(KindOf(status), message);
}

}  // namespace pd
