# fetch_mlx_wheel(<out root> <cpu|cuda|metal>): unpacks MLX's wheel for this platform below the build folder, once.
# pip does the download, so that its configuration (index, proxy, certificates) counts, and refuses a wrong hash.

set(PD_MLX_VERSION 0.32.4)

# backend, processor, package, platform tag, sha256
set(PD_MLX_WHEELS
  cpu   x86_64  mlx-cpu     manylinux_2_35_x86_64  0e0a24fa2ce8b6b94d2e6a90604e8813aa8e29fcb918bb2aa01cfb6d133d8cee
  cpu   aarch64 mlx-cpu     manylinux_2_35_aarch64 1289e85e64af1fd16380bf331438bfe4afe875d27afc3e0bcf35f427c488fadd
  cuda  x86_64  mlx-cuda-13 manylinux_2_35_x86_64  94cb48fba73e5ee39467e51c35c51c691123359ca17bafd1a24cf92ad6732bee
  cuda  aarch64 mlx-cuda-13 manylinux_2_35_aarch64 cf8a67b49cebff85cd98b1d118c09f6c8ee966b899a914c50cc74d614b25616e
  metal arm64   mlx-metal   macosx_15_0_arm64      9f0a3cc26d89724434d9684932fc6f3e4e83669d2a895d858ed2c8a55eb84e8b)
# The wheel for macOS 26 alone holds the kernels for the matrix units of the M5: chosen where it can run.
if(APPLE AND CMAKE_OSX_DEPLOYMENT_TARGET VERSION_GREATER_EQUAL 26)
  list(TRANSFORM PD_MLX_WHEELS REPLACE macosx_15_0_arm64 macosx_26_0_arm64)
  list(TRANSFORM PD_MLX_WHEELS REPLACE 9f0a3cc26d89724434d9684932fc6f3e4e83669d2a895d858ed2c8a55eb84e8b
    514df92d41a286895d2564b4b18f4da45096bd7a4a0c47e1042f345ad5a7f936)
endif()

function(fetch_mlx_wheel out backend)
  set(wheels ${PD_MLX_WHEELS})
  while(wheels)
    list(POP_FRONT wheels for processor package platform sha256)
    if(for STREQUAL backend AND processor STREQUAL CMAKE_SYSTEM_PROCESSOR)
      break()
    endif()
    unset(package)
  endwhile()
  if(NOT package)
    message(FATAL_ERROR "PD_MLX=${backend}: no MLX wheel is pinned for ${CMAKE_SYSTEM_PROCESSOR}. "
      "Set PD_MLX_ROOT to a folder that holds MLX ${PD_MLX_VERSION} as mlx/include and mlx/lib, or PD_MLX=off.")
  endif()

  set(root "${CMAKE_BINARY_DIR}/_mlx/${package}-${PD_MLX_VERSION}-${platform}")
  set(${out} "${root}" PARENT_SCOPE)
  if(EXISTS "${root}/.complete")
    return()
  endif()
  find_package(Python3 COMPONENTS Interpreter)
  if(NOT Python3_FOUND)
    message(FATAL_ERROR "PD_MLX=${backend} fetches MLX with pip, and there is no python3. "
      "Install python3 and python3-pip, or set PD_MLX_ROOT to an unpacked wheel, or PD_MLX=off.")
  endif()
  message(STATUS "Fetching ${package} ${PD_MLX_VERSION} for ${platform}")
  file(REMOVE_RECURSE "${root}")
  file(WRITE "${root}/requirements.txt" "${package}==${PD_MLX_VERSION} --hash=sha256:${sha256}\n")
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes
      --only-binary=:all: --python-version 3.11 --implementation py --abi none --platform ${platform}
      --requirement requirements.txt --dest .
    WORKING_DIRECTORY "${root}" RESULT_VARIABLE status ERROR_VARIABLE messages)
  file(GLOB wheel "${root}/*.whl")
  if(NOT status EQUAL 0 OR NOT wheel)
    message(FATAL_ERROR "PD_MLX=${backend}: pip could not fetch ${package} ${PD_MLX_VERSION}: ${messages}"
      "Offline, set PD_MLX_ROOT to an unpacked wheel, or PD_MLX=off.")
  endif()
  file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${root}")
  file(REMOVE "${wheel}")
  file(TOUCH "${root}/.complete")
endfunction()
