#include <algorithm>
#include <bit>
#include <fstream>
#include <memory>
#include <numeric>

#include "base/files.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "model/rope.h"
#include "open/memory.h"
#include "open/open.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

struct LogitsOptions {
  std::string model, ids, output, device = kDefaultDevice;
  int chunk = 512, threads = 0;
};

// A safetensors file with one tensor "logits" F32 [rows, vocab], written row by row under a temporary name:
// either all of it appears, or none.
class LogitsFile {
 public:
  LogitsFile(fs::path path, size_t rows, size_t vocab) : path_(std::move(path)), partial_(path_) {
    partial_ += ".partial";
    out_.open(partial_, std::ios::binary | std::ios::trunc);
    const size_t bytes = rows * vocab * sizeof(float);
    std::string header =
        Json{{"logits", {{"dtype", "F32"}, {"shape", {rows, vocab}}, {"data_offsets", {0, bytes}}}}}.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the floats are aligned in a mapping
    const uint64_t size = header.size();
    out_.write(reinterpret_cast<const char*>(&size), sizeof size);
    out_.write(header.data(), std::streamsize(header.size()));
    Check();
  }
  ~LogitsFile() {
    std::error_code ignored;
    if (!published_) fs::remove(partial_, ignored);
  }
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;

  void Append(std::span<const float> values) {
    out_.write(reinterpret_cast<const char*>(values.data()), std::streamsize(values.size_bytes()));
    Check();
  }

  void Publish() {
    out_.close();
    Check();
    std::error_code error;
    fs::rename(partial_, path_, error);
    if (error) throw Fail(ErrorKind::kDevice, "{}: cannot be written: {}", path_.string(), error.message());
    published_ = true;
  }

 private:
  static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
  void Check() const {
    if (!out_)
      throw Fail(ErrorKind::kDevice, "{}: cannot be written; does its folder exist, is the disk full?",
                 path_.string());
  }
  fs::path path_, partial_;
  std::ofstream out_;
  bool published_ = false;
};

bool LooksLikeIds(const std::string& text) {
  return text.find_first_not_of("0123456789, ") == std::string::npos;
}

int WriteLogits(const LogitsOptions& options) {
  const Interrupt interrupt;
  CheckDeviceName(options.device);
  const auto ids = ParseIds("--ids", LooksLikeIds(options.ids) ? options.ids : ReadTextFile(options.ids));
  if (ids.empty()) throw Fail(ErrorKind::kBadRequest, "--ids: no token ids; give at least one, as in 1,2,3");
  ModelSource model = OpenModel(ModelPath(options.model));
  const ModelSpec& spec = model.spec;
  if (ids.size() > size_t(spec.max_context))
    throw Fail(ErrorKind::kBadRequest, "--ids: {} tokens, the model's context holds {}", ids.size(),
               spec.max_context);
  for (TokenId id : ids)
    if (id >= spec.vocab)
      throw Fail(ErrorKind::kBadRequest, "--ids: invalid token id {}: this model has 0 to {}", id,
                 spec.vocab - 1);
  CheckMemory(model, {&options.device, 1}, int(ids.size()), AvailableMemory());

  ProgressBar bar("loading", true);
  OpenOptions open;
  open.threads = options.threads;
  open.progress = [&](size_t done, size_t total) {
    interrupt.Check();
    bar.Show(done, total);
  };
  const auto device = OpenDevice(model, options.device, open);
  LogitsFile file(options.output, ids.size(), size_t(spec.vocab));
  const SlotId slot = device->Open(int(ids.size()), {FixRope(spec, int(ids.size()))});
  const size_t most = size_t(std::min(options.chunk, device->Info().max_rows));
  for (size_t first = 0; first < ids.size(); first += most) {
    interrupt.Check();
    const auto chunk = std::span(ids).subspan(first, std::min(most, ids.size() - first));
    std::vector<int32_t> pos(chunk.size()), rows(chunk.size());
    std::iota(pos.begin(), pos.end(), int32_t(first));
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<SlotId> slots(chunk.size(), slot);
    file.Append(device->RunLogits({chunk, pos, slots, rows}).values);
  }
  file.Publish();
  return kOk;
}

}  // namespace

void AddLogits(const Command& program) {
  const Command command = program.Add("logits", "Write the logits of every position of a token sequence");
  auto options = std::make_shared<LogitsOptions>();
  LogitsOptions& o = *options;
  AddModel(command, o.model);
  command.Text("-i,--ids", o.ids, "token ids, as in 1,2,3, or a file that holds them").Required();
  command.Text("-o,--output", o.output, "safetensors file: tensor \"logits\", F32 [tokens, vocabulary]")
      .Required();
  command.Text("--device", o.device, "what computes them");
  command.Integer("--chunk", o.chunk, {1, INT32_MAX}, "tokens computed at a time");
  AddThreads(command, o.threads);
  command.Runs([options] { return WriteLogits(*options); });
}

}  // namespace pd::cli
