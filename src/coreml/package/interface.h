// Checks a model's description by the rules that Apple's loader applies before it looks at the program.
#pragma once
#include <string>

#include "base/error.h"
#include "coreml/package/package.h"
#include "coreml/package/proto/coreml.pb.h"

namespace pd {

// The numbers for feature types in a description.
enum class ArrayDataType : int {
  kFloat16 = 0x10010,
  kFloat32 = 0x10020,
  kDouble = 0x10040,
  kInt8 = 0x20008,
  kInt32 = 0x20020,
};
// PD_CHECKs that it is a feature type.
ArrayDataType ArrayTypeOf(mil::DataType dtype);

// Parsers skip unknown fields, so a wrong field number would not be noticed.
template <class Message>
void RequireKnownFields(const Message& message, const std::string& where) {
  if (!message.unknown_fields().empty())
    throw Fail(ErrorKind::kUnsupported, "{}: {} bytes in fields of {} that this version does not know", where,
               message.unknown_fields().size(), message.GetTypeName());
}

// Checks the interface's own rules, and that it describes the functions of package.program: same names, same
// types. Throws kCorruptFile, kUnsupported.
void CheckInterface(const proto::ModelDescription& description, const Package& package,
                    const std::string& where);

}  // namespace pd
