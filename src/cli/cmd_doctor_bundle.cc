#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "cli/doctor_bundle.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/part_log.h"
#include "cli/report.h"
#include "cli/sample_text.h"
#include "cli/terminal.h"
#include "coreml/export/bundle.h"
#include "doctor/ane_checks.h"
#include "doctor/ane_unit.h"
#include "doctor/kv_golden.h"
#include "open/open.h"
#include "planning/bandwidth.h"
#include "planning/profile.h"
#include "session/text_codec.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTextTokens = 2048;  // what the longest prompt of the examination needs

// The sample text over and over.
std::vector<TokenId> Text(const ModelSource& model) {
  const std::vector<TokenId> once = OpenTokenizer(model)->Encode(std::string(kSampleText));
  if (once.empty()) throw Fail(ErrorKind::kUnsupported, "the model's tokenizer makes no tokens of text");
  std::vector<TokenId> ids;
  while (ids.size() < kTextTokens) ids.insert(ids.end(), once.begin(), once.end());
  ids.resize(std::min(kTextTokens, size_t(model.spec.max_context)));
  return ids;
}

// "Apple M4 Max"; what it is as published, when it is.
double PublishedBandwidth(const std::string& chip) {
  try {
    return FindChip(chip).memory_bandwidth.value;
  } catch (const Error&) {
    return 0;
  }
}

// The device beside the one that is examined, unless it is named.
std::string DecodeDeviceBeside() {
  const auto it =
      std::ranges::find_if(Backends(), [](const BackendInfo& b) { return b.decodes && b.useful && b.gpu; });
  return it == Backends().end() ? kDefaultDevice : it->name;
}

// What was never a report or a file of goldens of ours is not replaced: of the reports only the beginning of
// their names was given.
void CheckOutputs(const DoctorBundleFlags& flags, const fs::path& model) {
  const std::array<fs::path, 3> inputs = {model, flags.bundle, flags.goldens};
  const auto check = [](const fs::path& path, const char* what, const auto& is_ours) {
    std::error_code error;
    if (!fs::is_regular_file(path, error) || fs::is_empty(path, error)) return;
    if (!is_ours(ReadTextFile(path, SIZE_MAX)))
      throw Fail(ErrorKind::kBadRequest, "{}: exists and is no {}; give another name", path.string(), what);
  };
  for (const char* suffix : {".json", ".txt"}) CheckOutput(flags.output + suffix, inputs);
  check(flags.output + ".txt", "report of pd-engine",
        [](const std::string& text) { return text.starts_with("pd-engine "); });
  check(flags.output + ".json", "report of pd-engine", [&](const std::string& text) {
    try {
      const Json json = ParseJson(text, flags.output);
      return json.is_object() && json.contains("neural_engine") && json.contains("checks");
    } catch (const Error&) {
      return false;
    }
  });
  if (!flags.goldens.empty())
    check(flags.goldens, "file of goldens",
          [](const std::string& text) { return text.starts_with("{\"goldens\""); });
}

}  // namespace

int DoctorBundle(const DoctorBundleFlags& flags, bool json) {
  const Interrupt interrupt;
  const std::string decode_name = flags.decode.empty() ? DecodeDeviceBeside() : flags.decode;
  CheckDeviceName(decode_name);
  PartLog log;
  log.Show("opening the bundle");
  const fs::path model_path = ModelPath(flags.model);
  CheckOutputs(flags, model_path);
  ModelSource model = OpenModel(model_path);
  Bundle bundle;
  std::optional<AneUnit> opened;  // refers to the bundle
  UseBundle(flags.bundle, [&](const Bundle& read) {
    opened.reset();
    bundle = read;
    opened.emplace(model, bundle, RuntimeOfBundles(interrupt),
                   [](const std::string& sentence) { Report(sentence + "\n"); });
  });
  AneUnit& unit = *opened;
  CalibrationDevices devices;
  devices.units.push_back(unit.TakeDevice());
  log.Show("opening device " + decode_name);
  OpenOptions open;
  open.cancelled = [&interrupt] { return interrupt.flag().load(); };
  open.progress = [&interrupt](size_t, size_t) { interrupt.Check(); };
  devices.decode = OpenDevice(model, decode_name, open);
  devices.leave = LeaveDeviceThread;

  AneSubject subject;
  subject.spec = &model.spec;
  subject.bundle = &bundle;
  subject.stand_in = unit.stand_in();
  const std::string chip = ProcessorName();
  subject.metal =
      subject.stand_in.empty() && devices.decode->Info().physical.kind == PhysicalDevice::Kind::kGpu;
  subject.bandwidth = PublishedBandwidth(chip);
  subject.text = Text(model);
  subject.reference = [&] { return unit.Reference(); };
  subject.goldens = flags.goldens.empty() ? RequireCacheFolder("goldens") / "goldens" /
                                                fmt::format("{:016x}.kv", BundleDigest(bundle))
                                          : fs::path(flags.goldens);
  subject.runtime = [&] { return unit.Report(); };
  subject.version = PD_VERSION;
  subject.machine = fmt::format("{} ({})", chip, AneUnit::MachineModel());
  subject.os_build = AneUnit::SystemBuild();
  if (flags.goldens.empty()) fs::create_directories(subject.goldens.parent_path());

  const AneReport report = Examine(subject, std::move(devices), [&](const AneProgress& progress) {
    interrupt.Check();
    log.Show(progress.part, progress.done, progress.total);
  });
  log.End();
  const std::string text = ToText(report);
  const bool written = WriteOutputFile(flags.output + ".json", ToJson(report).dump(1) + "\n") &&
                       WriteOutputFile(flags.output + ".txt", text);
  if (!written) return kOutputClosed;
  const std::string where = fmt::format(
      "\nwritten to {0}.json and {0}.txt, which hold nothing of yours: ready to be sent\n", flags.output);
  if (!WriteOutput(json ? ToLine(ToJson(report)) : text + where)) return kOutputClosed;
  const bool refuted =
      std::ranges::find(report.checks, pd::Outcome::kRefuted, &AneCheck::outcome) != report.checks.end();
  return refuted ? ExitCode(ErrorKind::kDevice) : kOk;
}

}  // namespace pd::cli
