#include <unistd.h>

#include <filesystem>
#include <memory>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/doctor_bundle.h"
#include "cli/engine_flags.h"
#include "cli/exit_codes.h"
#include "cli/model.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "cli/units.h"
#include "open/doctor.h"
#include "open/memory.h"
#include "power/power_meter.h"

namespace pd::cli {
namespace {

namespace fs = std::filesystem;
using State = Finding::State;

// Whether this user, and nobody else, may write to a folder: what backends keep in it is loaded as code.
Finding Folder(const std::string& subject, const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  Finding f{State::kFine, subject, folder.string(), ""};
  if (!fs::exists(status)) {
    f.value += " (made when it is needed)";
  } else if (!fs::is_directory(status) || access(folder.c_str(), W_OK) != 0) {
    f.state = State::kProblem;
    f.remedy = "not a folder that can be written; set PD_ENGINE_CACHE to one";
  } else if ((status.permissions() & (fs::perms::group_write | fs::perms::others_write)) != fs::perms::none) {
    f.state = State::kProblem;
    f.remedy = fmt::format("others may write to it; run: chmod go-w {}", folder.string());
  }
  return f;
}

std::string EnergyOf(const PhysicalDevice& device) {
  using Kind = PhysicalDevice::Kind;
  const char* kind = device.kind == Kind::kCpu ? "CPU" : device.kind == Kind::kGpu ? "GPU" : "ANE";
  return device.index == 0 ? fmt::format("{} energy", kind) : fmt::format("{} {} energy", kind, device.index);
}

// Whose joules the statistics can have, and from where.
std::vector<Finding> FindMeters() {
  std::vector<Finding> findings;
  for (const auto& meter : OpenPowerMeters())
    findings.push_back({State::kFine, EnergyOf(meter->Device()), meter->Source(), ""});
  if (findings.empty())
    findings.push_back({State::kNote, "energy", "no counter that this user may read",
                        "joules stay unknown; Linux shows the processor's to root only"});
  return findings;
}

std::vector<Finding> FindAll() {
  std::vector<Finding> findings = {{State::kFine, "pd-engine", PD_VERSION, ""}};
  for (Finding& f : FindDevices()) findings.push_back(std::move(f));
  findings.push_back({State::kFine, "memory", WithUnit(double(AvailableMemory()), "B") + " available", ""});
  for (Finding& f : FindMeters()) findings.push_back(std::move(f));
  if (const auto folder = CacheFolder()) {
    findings.push_back(Folder("models and caches", *folder));
    findings.push_back(Folder("compiled kernels", KernelFolder(*folder)));
  } else {
    findings.push_back({State::kProblem, "models and caches", "no folder", "set PD_ENGINE_CACHE or HOME"});
  }
  try {
    findings.push_back({State::kFine, "default model", ModelPath("").string(), ""});
  } catch (const Error& e) {
    findings.push_back({State::kNote, "default model", "not there", e.what()});
  }
  return findings;
}

const char* Name(State state) {
  return state == State::kFine ? "ok" : state == State::kNote ? "note" : "problem";
}

std::string ToText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings)
    text += fmt::format("{:<8}{:<18}{}{}{}\n", Name(f.state), f.subject, f.value,
                        f.remedy.empty() ? "" : ": ", f.remedy);
  return text;
}

Json ToJson(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Finding& f : findings)
    list.push_back({{"state", Name(f.state)},
                    {"subject", f.subject},
                    {"value", f.value},
                    {"remedy", f.remedy.empty() ? Json() : Json(f.remedy)}});
  return {{"findings", list}};
}

int Doctor(bool json) {
  const std::vector<Finding> findings = FindAll();
  if (!WriteOutput(json ? ToLine(ToJson(findings)) : ToText(findings))) return kOutputClosed;
  const bool ill = std::ranges::any_of(findings, [](const Finding& f) { return f.state == State::kProblem; });
  return ill ? ExitCode(ErrorKind::kDevice) : kOk;
}

}  // namespace

void AddDoctor(const Command& program) {
  const Command command =
      program.Add("doctor", "Say what this build finds on this machine, and what is missing");
  struct Flags {
    bool json = false;
    DoctorBundleFlags bundle;
  };
  auto flags = std::make_shared<Flags>();
  DoctorBundleFlags& b = flags->bundle;
  AddJson(command, flags->json);
  const Flag bundle =
      command
          .Text("--bundle,--ane", b.bundle,
                "examine this machine's Neural Engine with an exported model: a report, ready to be sent")
          .ValueName("DIR");
  command
      .Text("-m,--model", b.model, "with --bundle: the model that was exported; default: the default model")
      .ValueName("MODEL")
      .Needs(bundle);
  command
      .Text("--decode", b.decode,
            "with --bundle: the device beside it; default: a GPU where there is one, else the CPU")
      .ValueName("NAME")
      .Needs(bundle);
  command.Text("-o,--output", b.output, "with --bundle: where the report goes, as NAME.json and NAME.txt")
      .ValueName("NAME")
      .Needs(bundle);
  command
      .Text("--goldens", b.goldens,
            "with --bundle: keys and values to compare with, made by the interpreter when absent; default: "
            "in the cache")
      .ValueName("FILE")
      .Needs(bundle);
  command.Runs([flags, bundle] {
    return bundle.given() ? DoctorBundle(flags->bundle, flags->json) : Doctor(flags->json);
  });
}

}  // namespace pd::cli
