// Core ML packages (.mlpackage) of ML Programs: read and written without Apple's tools.
#pragma once
#include <filesystem>
#include <map>
#include <string>

#include "coreml/mil/program.h"

namespace pd {

struct Package {
  int specification_version = 9;  // 6 (ios15) to 10 (ios26)
  // Of the functions of a multifunction package; empty for the single-function layout, whose function is
  // "main".
  std::string default_function;
  mil::Program program;
  std::map<std::string, std::string> metadata;  // the user-defined entries
};

// Reads a package as strictly as Apple's loader and compiler do, whoever wrote it: manifest, protobuf without
// unknown fields, the interface's rules, description against program, every reference into the weight files,
// and mil::CheckProgram. Weights stay mapped. Throws kNotFound, kCorruptFile, and kUnsupported for a
// well-formed package that is not an ML Program of tensors and states; the message names the place.
Package ReadPackage(const std::filesystem::path& directory);

// Writes model and manifest beside a weight file that a BlobWriter finished at
// directory/kWeightsPlace/weight.bin (none for a program without weight file constants). The bytes depend
// only on the arguments and the weight file. Throws kDevice; kUnsupported for inputs and outputs without
// elements or with flexible sizes, which ReadPackage accepts.
void WritePackage(const std::filesystem::path& directory, const Package& package);

// The model file's bytes alone, and the inverse; `where` names it in messages. Blobs of parsed programs have
// no bytes.
std::string SerialiseModel(const Package& package);
Package ParseModel(const std::string& bytes, const std::string& where);

}  // namespace pd
