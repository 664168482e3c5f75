# Finds MLX's C++ library and makes the target mlx::mlx. MLX's own package files ask for a CUDA toolkit and hold paths
# of the machine that built them, so they are not used.
#
# Input   PD_MLX        cpu, cuda or metal: which build of the library
#         PD_MLX_ROOT   a folder that holds mlx/include and mlx/lib: an unpacked wheel, or the site-packages of an
#                       environment with mlx in it. Empty: the pinned wheel is fetched.
# With cuda, the NVIDIA libraries (cuBLAS, cuDNN, cuFFT, NCCL, NVRTC) are looked for at run time only: beside the root
# as pip lays them out, then where the loader looks.

include(FetchMlxWheel)
set(mlx_root "${PD_MLX_ROOT}")
if(NOT mlx_root)
  fetch_mlx_wheel(mlx_root ${PD_MLX})
endif()

find_path(MLX_INCLUDE_DIR mlx/mlx.h PATHS "${mlx_root}/mlx/include" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
find_library(MLX_LIBRARY mlx PATHS "${mlx_root}/mlx/lib" NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
if(MLX_INCLUDE_DIR)
  file(STRINGS "${MLX_INCLUDE_DIR}/mlx/version.h" version_lines REGEX "^#define MLX_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" version_lines "${version_lines}")
  string(REPLACE ";" "." Mlx_VERSION "${version_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Mlx REQUIRED_VARS MLX_LIBRARY MLX_INCLUDE_DIR VERSION_VAR Mlx_VERSION)
if(Mlx_FOUND AND NOT TARGET mlx::mlx)
  add_library(mlx::mlx SHARED IMPORTED GLOBAL)
  set_target_properties(mlx::mlx PROPERTIES
    IMPORTED_LOCATION "${MLX_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${MLX_INCLUDE_DIR}"
    INTERFACE_COMPILE_FEATURES cxx_std_20)
  if(PD_MLX STREQUAL metal)
    set_target_properties(mlx::mlx PROPERTIES IMPORTED_SONAME @rpath/libmlx.dylib)
  else()
    set_target_properties(mlx::mlx PROPERTIES IMPORTED_SONAME libmlx.so)
  endif()
  if(PD_MLX STREQUAL cuda)
    target_link_options(mlx::mlx INTERFACE -Wl,--allow-shlib-undefined)
  endif()
endif()
