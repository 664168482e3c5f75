# Cross-compiles for arm64 macOS on Linux, with zig's clang, libc headers and linker, and with declarations of our own
# for Apple's frameworks (stubs/). It checks that everything compiles and links: what users run is built on a Mac, by
# the same CMake files. The environment's PD_ZIG is the folder that holds zig.
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_SYSTEM_VERSION 24)
set(CMAKE_C_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-clang)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-clang++)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig-ar)
set(CMAKE_RANLIB ${CMAKE_CURRENT_LIST_DIR}/zig-ranlib)
set(CMAKE_INSTALL_NAME_TOOL /bin/true)
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_OSX_DEPLOYMENT_TARGET "")  # the wrappers name the target
set(CMAKE_OSX_ARCHITECTURES "")
# Without these no rpath is written. CMake's own files empty them, since they see no SDK: so they are set behind project().
set(CMAKE_PROJECT_INCLUDE ${CMAKE_CURRENT_LIST_DIR}/project.cmake)

# Header-only libraries come from a copy of their folders: /usr/include as a whole is this machine's.
list(APPEND CMAKE_MODULE_PATH ${CMAKE_CURRENT_LIST_DIR}/modules)
set(PD_HEADERS ${CMAKE_CURRENT_LIST_DIR}/../../build/macos/headers)
set(XXHASH_INCLUDE_DIR ${PD_HEADERS})
set(PD_VENDOR ${CMAKE_CURRENT_LIST_DIR}/../../build/macos/vendor)  # sources that tools/dev/macos.sh has fetched

# Where there is no SDK: headers and link stubs of the frameworks.
set(PD_APPLE_STUBS ${CMAKE_CURRENT_LIST_DIR}/stubs)

set(CARGO ${CMAKE_CURRENT_LIST_DIR}/cargo)
set(PD_CARGO_TARGET aarch64-apple-darwin)
