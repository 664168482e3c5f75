#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "cli/doctor_bundle.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
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

// A bar for each part of an examination.
class Bars {
 public:
  void Show(const AneProgress& progress) {
    if (!bar_ || part_ != progress.part) bar_.emplace(part_ = progress.part, true);
    bar_->Show(size_t(progress.done), size_t(progress.total));
  }

 private:
  std::string part_;
  std::optional<ProgressBar> bar_;
};

}  // namespace

int DoctorBundle(const DoctorBundleFlags& flags, bool json) {
  const Interrupt interrupt;
  const std::string decode_name = flags.decode.empty() ? DecodeDeviceBeside() : flags.decode;
  CheckDeviceName(decode_name);
  ModelSource model = OpenModel(ModelPath(flags.model));
  const Bundle bundle = ReadBundle(flags.bundle);
  AneUnit unit(model, bundle, RuntimeOfBundles(interrupt),
               [](const std::string& sentence) { fmt::print(stderr, "{}\n", sentence); });
  CalibrationDevices devices;
  devices.units.push_back(unit.TakeDevice());
  devices.decode = OpenDevice(model, decode_name, {});
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

  AneReport report;
  {
    Bars bars;
    report = Examine(subject, std::move(devices), [&](const AneProgress& progress) {
      interrupt.Check();
      bars.Show(progress);
    });
  }
  const std::string text = ToText(report);
  WriteFileAtomically(flags.output + ".json", ToJson(report).dump(1) + "\n");
  WriteFileAtomically(flags.output + ".txt", text);
  const std::string where = fmt::format(
      "\nwritten to {0}.json and {0}.txt, which hold nothing of yours: ready to be sent\n", flags.output);
  if (!WriteOutput(json ? ToLine(ToJson(report)) : text + where)) return kOutputClosed;
  const bool refuted =
      std::ranges::find(report.checks, pd::Outcome::kRefuted, &AneCheck::outcome) != report.checks.end();
  return refuted ? ExitCode(ErrorKind::kDevice) : kOk;
}

}  // namespace pd::cli
