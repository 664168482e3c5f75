#include "formats/model_source.h"

#include <array>
#include <fstream>

#include "base/error.h"
#include "formats/gguf_model.h"
#include "formats/hf_folder.h"

namespace pd {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected = "give a .gguf file, or a folder with config.json and safetensors";

std::string FirstBytes(const fs::path& path) {
  std::array<char, 8> bytes;
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), bytes.size());
  return {bytes.data(), size_t(in.gcount())};
}

// Why a file that is no GGUF is no model either.
Error NotAModel(const fs::path& path, const std::string& begin) {
  const std::string name = path.string();
  if (begin.empty()) return Fail(ErrorKind::kCorruptFile, "{}: empty or not readable; {}", name, kExpected);
  const bool zip = begin.starts_with("PK\x03\x04"), pickle = begin.starts_with("\x80");
  if (zip || pickle)
    return Fail(ErrorKind::kUnsupported,
                "{}: a zip archive or PyTorch pickle, which can run code and is not read; {}", name,
                kExpected);
  if (path.extension() == ".safetensors")
    return Fail(ErrorKind::kUnsupported,
                "{}: weights alone say not what model they are of; give the folder with their "
                "config.json",
                name);
  return Fail(ErrorKind::kCorruptFile, "{}: not a model; {}", name, kExpected);
}

}  // namespace

ModelSource OpenModel(const fs::path& path) {
  try {
    const fs::file_status status = fs::status(path);
    if (!fs::exists(status))
      throw Fail(ErrorKind::kNotFound, "{}: no such file or folder; {}", path.string(), kExpected);
    ModelSource source;
    if (fs::is_directory(status)) {
      source = OpenFolder(path);
    } else if (path.filename() == "config.json") {
      source = OpenFolder(path.has_parent_path() ? path.parent_path() : fs::path("."));
    } else {
      const std::string begin = FirstBytes(path);
      if (!begin.starts_with("GGUF") && path.extension() != ".gguf") throw NotAModel(path, begin);
      source = OpenGgufModel(GgufFile::Open(path));
    }
    source.path = path;
    return source;
  } catch (const fs::filesystem_error& e) {  // a folder that may not be read, a loop of links, ...
    throw Fail(ErrorKind::kNotFound, "{}: {}; {}", path.string(), e.code().message(), kExpected);
  }
}

uint64_t ModelSource::Digest() const {
  std::call_once(digest_->flag, [this] { digest_->value = WeightsDigest(spec, tensors); });
  return digest_->value;
}

}  // namespace pd
