# Objective-C++ for tests on Linux: src/coreml/runtime/core_ml.mm over stand-ins of Apple's classes, compiled by clang
# for GNUstep's Foundation and gcc's Objective-C runtime, with the declarations that the macOS build uses too.

# pd_standin_objects(<out objects> <out libraries> <out why>): objects to add to a test and what it links; `why` says
# what is missing here, then nothing is defined.
function(pd_standin_objects out_objects out_libraries out_why)
  set(${out_objects} "" PARENT_SCOPE)
  if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(${out_why} "they are for Linux" PARENT_SCOPE)
    return()
  endif()
  find_program(PD_CLANG_OBJCXX NAMES clang++-19 clang++)
  find_path(PD_GNUSTEP_INCLUDE Foundation/Foundation.h PATH_SUFFIXES GNUstep)
  file(GLOB gcc_objc /usr/lib/gcc/*/12/include/objc/objc.h)
  find_library(PD_GNUSTEP_BASE gnustep-base)
  find_library(PD_BLOCKS_RUNTIME BlocksRuntime)
  foreach(need PD_CLANG_OBJCXX PD_GNUSTEP_INCLUDE gcc_objc PD_GNUSTEP_BASE PD_BLOCKS_RUNTIME)
    if(NOT ${need})
      set(${out_why} "no ${need} here; ./dev test installs clang-19 gobjc++-12 libobjc-12-dev libgnustep-base-dev libblocksruntime-dev"
        PARENT_SCOPE)
      return()
    endif()
  endforeach()
  cmake_path(GET gcc_objc PARENT_PATH gcc_objc)
  cmake_path(GET gcc_objc PARENT_PATH gcc_include)
  cmake_path(GET gcc_include PARENT_PATH gcc_folder)

  # <CoreML/CoreML.h> as a framework would offer it, and the header that gcc's runtime lacks.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/standin)
  file(MAKE_DIRECTORY ${include})
  foreach(framework CoreML CoreVideo CoreFoundation)
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/tools/macos/stubs/Frameworks/${framework}.framework/Headers ${include}/${framework}
      SYMBOLIC)
  endforeach()
  file(CONFIGURE OUTPUT ${include}/objc/blocks_runtime.h CONTENT "#include <Block.h>\n")

  set(flags -std=c++20 -O1 -g1 -Wall -Wextra -Werror -Wno-nullability-completeness -Wno-incomplete-implementation
    -Wno-objc-property-implementation -fobjc-runtime=gcc -fblocks -fconstant-string-class=NSConstantString -fexceptions
    -fobjc-exceptions -D_NATIVE_OBJC_EXCEPTIONS -I ${include} -isystem ${PD_GNUSTEP_INCLUDE} -isystem ${gcc_include}
    -I ${PROJECT_SOURCE_DIR}/src -I ${PROJECT_SOURCE_DIR})
  if(PD_SANITIZE)
    list(APPEND flags -fsanitize=${PD_SANITIZE} -fno-omit-frame-pointer)
    if(PD_SANITIZE MATCHES undefined)  # those that gcc's library knows
      list(APPEND flags -fno-sanitize-recover=undefined -fno-sanitize=function,vptr)
    endif()
    if(PD_SANITIZE MATCHES thread)  # gcc's library sees memcpy itself
      list(APPEND flags -mllvm -tsan-instrument-memintrinsics=0)
    endif()
  endif()
  set(objects "")
  foreach(source src/coreml/runtime/core_ml.mm tests/coreml/standin/arrays.mm tests/coreml/standin/models.mm
      tests/coreml/standin/plans.mm tests/coreml/standin/core_video.mm)
    cmake_path(GET source STEM stem)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/standin/${stem}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${PD_CLANG_OBJCXX} ${flags} -MD -MF ${object}.d -c ${PROJECT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${PROJECT_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM COMMENT "Building Objective-C++ object ${stem}.o")
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    list(APPEND objects ${object})
  endforeach()
  set(${out_objects} ${objects} PARENT_SCOPE)
  # The blocks of libgnustep-base do not copy what C++ a block holds: the real ones come first, and for all.
  set(${out_libraries} ${PD_BLOCKS_RUNTIME} ${PD_GNUSTEP_BASE} -L${gcc_folder} objc PARENT_SCOPE)
endfunction()
