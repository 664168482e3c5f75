// Converts between the serialised model and programs in memory.
#pragma once
#include <string>

#include "coreml/package/package.h"
#include "coreml/package/proto/coreml.pb.h"

namespace pd {

// The description (features, functions) derives from the program.
proto::Model ToProto(const Package& package);

// Checks everything that a parsed message alone can show: unknown fields, the interface's rules, that
// description and program agree, that each value has as many elements as its type. Throws kCorruptFile and
// kUnsupported; messages start with `where`.
Package FromProto(const proto::Model& model, const std::string& where);

}  // namespace pd
