#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
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
#include "cli/text_input.h"
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

// What comes before the floats of a safetensors file with one tensor "logits" F32 [rows, vocab].
std::string LogitsHeader(size_t rows, size_t vocab) {
  static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
  const size_t bytes = rows * vocab * sizeof(float);
  std::string header =
      Json{{"logits", {{"dtype", "F32"}, {"shape", {rows, vocab}}, {"data_offsets", {0, bytes}}}}}.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the floats are aligned in a mapping
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

// The ids that --ids lists, or those in the file that it names.
std::vector<TokenId> ReadIds(const std::string& text, const Interrupt& interrupt) {
  const bool list = text.find_first_not_of("0123456789, ") == std::string::npos;
  if (list) return ParseIds("--ids", text);
  std::string listed;
  try {
    listed = ReadTextInput(text, interrupt);
  } catch (const Error& e) {
    const size_t bad = text.find_first_not_of("0123456789, ");
    // "1,2,x": as likely a list with a mistake in it as a file's name.
    if (e.kind() != ErrorKind::kNotFound || bad == 0) throw;
    const size_t comma = text.find_last_of(", ", bad);
    const size_t begin = comma == std::string::npos ? 0 : comma + 1;
    throw Fail(ErrorKind::kBadRequest,
               "--ids: '{}' in '{}' is no token id, and there is no file of that name",
               text.substr(begin, text.find_first_of(", ", bad) - begin), text);
  }
  return ParseIds("--ids: " + InputName(text), listed);
}

int WriteLogits(const LogitsOptions& options) {
  const Interrupt interrupt;
  CheckDeviceName(options.device);
  const fs::path model_path = ModelPath(options.model);
  CheckOutput(options.output, std::array<fs::path, 2>{options.ids, model_path});
  const auto ids = ReadIds(options.ids, interrupt);
  if (ids.empty()) throw Fail(ErrorKind::kBadRequest, "--ids: no token ids; give at least one, as in 1,2,3");
  ModelSource model = OpenModel(model_path);
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
  open.cancelled = [&interrupt] { return interrupt.flag().load(); };
  open.progress = [&](size_t done, size_t total) {
    interrupt.Check();
    bar.Show(done, total);
  };
  const auto device = OpenDevice(model, options.device, open);
  OutputFile file(options.output);
  const std::string header = LogitsHeader(ids.size(), size_t(spec.vocab));
  if (!file.Write(std::as_bytes(std::span(header)))) return kOutputClosed;
  const SlotId slot = device->Open(int(ids.size()), {FixRope(spec, int(ids.size()))});
  const size_t most = size_t(std::min(options.chunk, device->Info().max_rows));
  for (size_t first = 0; first < ids.size(); first += most) {
    interrupt.Check();
    const auto chunk = std::span(ids).subspan(first, std::min(most, ids.size() - first));
    std::vector<int32_t> pos(chunk.size()), rows(chunk.size());
    std::iota(pos.begin(), pos.end(), int32_t(first));
    std::iota(rows.begin(), rows.end(), 0);
    const std::vector<SlotId> slots(chunk.size(), slot);
    const Logits logits = device->RunLogits({chunk, pos, slots, rows});
    if (!file.Write(std::as_bytes(std::span(logits.values)))) return kOutputClosed;
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
  command.Text("-i,--ids", o.ids, "token ids, as in 1,2,3, or a file that holds them; -: standard input")
      .Required();
  command
      .Text("-o,--output", o.output,
            "safetensors file: tensor \"logits\", F32 [tokens, vocabulary]; replaces the file, and appears "
            "when "
            "all of it is there; -: standard output")
      .Required();
  command.Text("--device", o.device, "what computes them");
  command.Integer("--chunk", o.chunk, {1, INT32_MAX}, "tokens computed at a time");
  AddThreads(command, o.threads);
  command.Runs([options] { return WriteLogits(*options); });
}

}  // namespace pd::cli
