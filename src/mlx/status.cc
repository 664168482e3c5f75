#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "mlx/arrays.h"
#include "mlx/mlx_device.h"

namespace pd {
namespace {

// The folder of the library file that holds MLX: its Metal kernels are in the same folder.
std::filesystem::path LibraryFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&mx::version), &info) == 0) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

bool Contains(const std::filesystem::path& file, std::string_view word) {
  const auto map = MappedFile::Open(file);
  const auto bytes = map->bytes();
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()).find(word) !=
         std::string_view::npos;
}

void FindMetalKernels(MlxStatus* status) {
  const auto library = LibraryFolder() / "mlx.metallib";
  if (!std::filesystem::exists(library)) {
    status->usable = false;
    status->problem =
        "mlx: " + library.string() + " is missing; install libmlx.dylib and mlx.metallib in one folder";
    return;
  }
  status->kernel_library = library.string();
  status->matrix_unit_kernels = Contains(library, "_nax_");
}

}  // namespace

const char* MlxBackendName() { return PD_MLX_BACKEND; }

std::vector<std::pair<std::string, std::string>> MlxEnvironment(const std::string& kernel_folder) {
  const std::string_view backend = MlxBackendName();
  if (backend == "metal") return {};  // compiles in memory
  std::vector<std::pair<std::string, std::string>> variables = {{"TMPDIR", kernel_folder}};
  if (backend == "cuda") {
    variables.emplace_back("MLX_PTX_CACHE_DIR", kernel_folder);
    // MLX counts misses of its graph caches over the life of the process and throws at some number.
    variables.emplace_back("MLX_ENABLE_CACHE_THRASHING_CHECK", "0");
    variables.emplace_back("MLX_CUDA_GRAPH_CACHE_SIZE", "4000");
    variables.emplace_back("MLX_MAX_OPS_PER_BUFFER", "400");  // a step is handed over in fewer pieces
  }
  return variables;
}

MlxStatus GetMlxStatus() {
  MlxStatus status;
  status.backend = MlxBackendName();
  status.version = mx::version();
  const std::string built = fmt::format("{}.{}.{}", MLX_VERSION_MAJOR, MLX_VERSION_MINOR, MLX_VERSION_PATCH);
  if (status.version != built) {
    // Its headers define how arrays are laid out: another version would read our memory wrongly.
    status.problem = fmt::format("mlx: built for MLX {}, but {} is loaded from {}; install the two together",
                                 built, status.version, LibraryFolder().string());
    return status;
  }
  try {
    const mx::Device device = mx::default_device();
    if (status.backend != "cpu" && device != mx::Device::gpu) {
      status.problem =
          fmt::format("mlx: built for {}, but MLX finds no GPU; check the driver", status.backend);
      return status;
    }
    const auto& properties = mx::device_info(device);
    if (const auto it = properties.find("device_name"); it != properties.end())
      if (const auto* name = std::get_if<std::string>(&it->second)) status.device = *name;
    status.memory_bytes = mx::get_memory_limit();
    status.usable = true;
    if (status.backend == "metal") FindMetalKernels(&status);
  } catch (const std::exception& e) {
    status.usable = false;
    status.problem = MlxFailure(e).what();
  }
  return status;
}

}  // namespace pd
