# One static library per folder of src/, and the layer rules of docs/decisions/layers.md as link edges.

# Lowest first: a library may depend only on libraries that stand before it here.
set(PD_LAYERS base model formats kv sample text device reference cpu mlx
  coreml_mil coreml_package coreml_interpreter coreml_export coreml_device coreml_runtime open power serving planning session doctor cli)

add_library(pd_flags INTERFACE)
target_compile_options(pd_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror
  -ffp-contract=off)  # the compiler may not fuse what our kernels keep apart: results must not depend on inlining
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees trouble that is not there: in std::optional and variant, and in std::string (PR 105651).
  target_compile_options(pd_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict)
endif()
if(PD_SANITIZE)
  target_compile_options(pd_flags INTERFACE -fsanitize=${PD_SANITIZE} -fno-omit-frame-pointer)
  if(PD_SANITIZE MATCHES undefined)
    target_compile_options(pd_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
  target_link_options(pd_flags INTERFACE -fsanitize=${PD_SANITIZE})
endif()
if(PD_FUZZ)
  target_compile_options(pd_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(pd_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(pd_flags INTERFACE fmt::fmt Threads::Threads)

# pd_library(NAME SOURCES a.cc b.cc DEPS base model LIBS external::target)
function(pd_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  list(FIND PD_LAYERS ${name} rank)
  if(rank EQUAL -1)
    message(FATAL_ERROR "pd_library(${name}): add it to PD_LAYERS in cmake/PdLibrary.cmake")
  endif()
  foreach(dep IN LISTS A_DEPS)
    list(FIND PD_LAYERS ${dep} dep_rank)
    if(dep_rank EQUAL -1 OR NOT dep_rank LESS rank)
      message(FATAL_ERROR "pd_library(${name}): ${dep} is not below it (order: ${PD_LAYERS})")
    endif()
  endforeach()
  list(TRANSFORM A_DEPS PREPEND pd_ OUTPUT_VARIABLE deps)
  add_library(pd_${name} STATIC ${A_SOURCES})
  target_link_libraries(pd_${name} PUBLIC pd_flags ${deps} ${A_LIBS})
endfunction()

# pd_test(NAME SOURCES a_test.cc DEPS base LIBS external::target LABELS asan tsan long FIXTURES name): the gtest executable NAME_test, usually
# one per folder of src/. Labels: asan and tsan run under those sanitizers too; long runs in ./dev check only. Tests start in
# the repository root, so that no compile command holds an absolute path and every clone shares one compiler cache; the
# default model's path is in $PD_TEST_MODEL. Fixture coremltools: a Python that has it, in $PD_COREMLTOOLS_PYTHON.
foreach(sanitizer asan tsan)
  add_custom_target(${sanitizer}_tests)
endforeach()
function(pd_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LIBS;LABELS;FIXTURES" ${ARGN})
  foreach(label IN LISTS A_LABELS)
    if(NOT label MATCHES "^(asan|tsan|long)$")
      message(FATAL_ERROR "pd_test(${name}): label ${label} is not one of asan, tsan, long")
    endif()
  endforeach()
  list(TRANSFORM A_DEPS PREPEND pd_ OUTPUT_VARIABLE deps)
  add_executable(${name}_test ${A_SOURCES})
  target_link_libraries(${name}_test PRIVATE pd_flags ${deps} ${A_LIBS} GTest::gtest_main)
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name}_test PRIVATE PD_TEST_DATA="tests/data")
  # What is tested is optimised in its library; optimising the tests as well doubles the time to compile them.
  target_compile_options(${name}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  foreach(sanitizer asan tsan)
    if(sanitizer IN_LIST A_LABELS)
      add_dependencies(${sanitizer}_tests ${name}_test)
    endif()
  endforeach()
  set(properties TIMEOUT 300 ENVIRONMENT "PD_TEST_MODEL=${PD_DEFAULT_MODEL}")
  if("coremltools" IN_LIST A_FIXTURES)
    set(properties ${properties} TIMEOUT 600  # a second variable: a list in ENVIRONMENT would be taken apart
      ENVIRONMENT_MODIFICATION "PD_COREMLTOOLS_PYTHON=set:${PD_COREMLTOOLS_PYTHON_RUN}")
  endif()
  if(A_FIXTURES)
    list(APPEND properties FIXTURES_REQUIRED ${A_FIXTURES})
  endif()
  if(A_LABELS)
    list(JOIN A_LABELS "+" label)  # one label, since gtest_discover_tests takes lists apart; the presets look for a part of it
    list(APPEND properties LABELS ${label})
  endif()
  gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    PROPERTIES ${properties})
endfunction()

# pd_bench(NAME SOURCES a_bench.cc DEPS base): the google-benchmark executable NAME_bench, run by ./dev bench NAME
add_custom_target(benches)
function(pd_bench name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  list(TRANSFORM A_DEPS PREPEND pd_ OUTPUT_VARIABLE deps)
  add_executable(${name}_bench ${A_SOURCES})
  target_link_libraries(${name}_bench PRIVATE pd_flags ${deps} ${A_LIBS} benchmark::benchmark_main)
  set_target_properties(${name}_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  add_dependencies(benches ${name}_bench)
endfunction()
