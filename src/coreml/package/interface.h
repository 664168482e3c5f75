// The rules for a model's description: what Apple's loader checks before it looks at the program.
#pragma once
#include <string>

#include "base/error.h"
#include "coreml/package/package.h"
#include "coreml/package/proto/coreml.pb.h"

namespace pd {

// How a description numbers the types of features.
enum class ArrayDataType : int {
  kFloat16 = 0x10010,
  kFloat32 = 0x10020,
  kDouble = 0x10040,
  kInt8 = 0x20008,
  kInt32 = 0x20020,
};
// PD_CHECKs that it is a type of features.
ArrayDataType ArrayTypeOf(mil::DataType dtype);

// Parsers skip fields they do not know, so a wrong field number would go unseen.
template <class Message>
void RequireKnownFields(const Message& message, const std::string& where) {
  if (!message.unknown_fields().empty())
    throw Fail(ErrorKind::kUnsupported, "{}: {} bytes in fields of {} that this version does not know", where,
               message.unknown_fields().size(), message.GetTypeName());
}

// The interface's own rules, and that it describes the functions of package.program: same names, same types.
// Throws kCorruptFile, kUnsupported.
void CheckInterface(const proto::ModelDescription& description, const Package& package,
                    const std::string& where);

}  // namespace pd
