// Linked instead of the backend in builds without MLX.
#include "base/error.h"
#include "mlx/mlx_device.h"

namespace pd {
namespace {

Error Absent() {
  return Fail(ErrorKind::kUnsupported,
              "mlx: this build has no MLX; configure it with -DPD_MLX=metal (Apple), cuda (NVIDIA) or cpu");
}

}  // namespace

const char* MlxBackendName() { return "off"; }

MlxStatus GetMlxStatus() {
  MlxStatus status;
  status.backend = MlxBackendName();
  status.problem = Absent().what();
  return status;
}

MlxMemory EstimateMlxMemory(const ModelSpec&, const Weights<TensorView>&, const MlxOptions&) {
  throw Absent();
}

std::vector<std::pair<std::string, std::string>> MlxEnvironment(const std::string&) { return {}; }

std::shared_ptr<const MlxModel> LoadMlxModel(const ModelSpec&, const Weights<TensorView>&, const MlxOptions&,
                                             const std::function<void(size_t, size_t)>&,
                                             std::optional<uint64_t>) {
  throw Absent();
}

const std::vector<std::string>& LoadNotes(const MlxModel&) { throw Absent(); }

std::unique_ptr<DecodeDevice> OpenMlxDevice(std::shared_ptr<const MlxModel>) { throw Absent(); }

MlxPeak MeasureMlxPeak() { throw Absent(); }

void LeaveMlxThread() {}

}  // namespace pd
