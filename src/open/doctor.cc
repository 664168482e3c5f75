#include "open/doctor.h"

#include <fmt/format.h>

#include <string_view>
#include <thread>

#include "coreml/runtime/core_ml.h"
#include "cpu/level.h"
#include "mlx/mlx_device.h"

namespace pd {
namespace {

using State = Finding::State;

void FindCpu(std::vector<Finding>& findings) {
  const cpu::Level level = cpu::BestLevel();
  Finding f{State::kFine, "cpu",
            fmt::format("{} kernels, {} processors", cpu::Name(level), std::thread::hardware_concurrency()),
            ""};
  if (level == cpu::Level::kScalar) {
    f.state = State::kNote;
    f.remedy = "there are kernels for AVX2 and AVX-512 processors only: expect a tenth of their speed";
  }
  findings.push_back(std::move(f));
}

void FindMlx(std::vector<Finding>& findings) {
  const MlxStatus status = GetMlxStatus();
  if (status.backend == "off") {
    findings.push_back({State::kNote, "mlx", "not in this build",
                        "configure with -DPD_MLX=metal on a Mac, -DPD_MLX=cuda for an NVIDIA GPU"});
    return;
  }
  const std::string value = fmt::format("MLX {}, {} backend", status.version, status.backend);
  if (!status.usable) {
    findings.push_back({State::kProblem, "mlx", value, status.problem});
    return;
  }
  findings.push_back({State::kFine, "mlx",
                      fmt::format("{}, {}, {:.1f} GB at most", value,
                                  status.device.empty() ? "device without a name" : status.device,
                                  double(status.memory_bytes) / 1e9),
                      ""});
  if (status.backend == "cpu") {
    findings.back().state = State::kNote;
    findings.back().remedy = "MLX's processor backend is there for tests; the device cpu is faster";
  }
  if (status.backend != "metal") return;
  findings.push_back({State::kFine, "mlx kernels", status.kernel_library, ""});
  findings.push_back({State::kFine, "mlx matrix units", "kernels for the M5's are there", ""});
  if (!status.matrix_unit_kernels)
    findings.back() = {State::kNote, "mlx matrix units", "no kernels for the M5's",
                       "on an M5 with macOS 26, configure with -DCMAKE_OSX_DEPLOYMENT_TARGET=26.0: MLX's "
                       "build for it reads prompts faster; other chips have none"};
}

void FindNeuralEngine(std::vector<Finding>& findings) {
  const std::unique_ptr<CoreMl> core_ml = SystemCoreMl();
  if (!core_ml)
    findings.push_back({State::kNote, "coreml", "ane-reference: exported programs run in our interpreter",
                        "no Neural Engine is used; where speed matters, prefill on another device"});
  else if (!core_ml->HasNeuralEngine())
    findings.push_back({State::kNote, "coreml", "Core ML finds no Neural Engine",
                        "exported programs would run on the processor: prefill on another device"});
  else
    findings.push_back({State::kFine, "coreml", "Core ML, with a Neural Engine", ""});
}

}  // namespace

std::vector<Finding> FindDevices() {
  std::vector<Finding> findings;
  FindCpu(findings);
  FindMlx(findings);
  FindNeuralEngine(findings);
  return findings;
}

}  // namespace pd
