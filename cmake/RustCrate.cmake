# A crate of ours that is linked as a static library.
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
set(PD_CARGO_TARGET "" CACHE STRING "cargo's target triple for a cross build; empty: this machine's")

# pd_rust_crate(TARGET crates/folder libname.a): the imported library TARGET, built with the versions of Cargo.lock. cargo itself
# decides what is out of date, since build trees of several presets share its folder; it leaves a fresh archive untouched.
function(pd_rust_crate name folder archive)
  set(crate ${PROJECT_SOURCE_DIR}/${folder})
  set(library ${PD_CARGO_TARGET_DIR}/release/${archive})
  set(command ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${PD_CARGO_TARGET_DIR} ${CARGO})
  set(options --release --locked --quiet --manifest-path ${crate}/Cargo.toml)
  if(PD_CARGO_TARGET)
    set(library ${PD_CARGO_TARGET_DIR}/${PD_CARGO_TARGET}/release/${archive})
    list(APPEND options --target ${PD_CARGO_TARGET})
  endif()
  add_custom_target(${name}_build COMMAND ${command} build ${options} BYPRODUCTS ${library} USES_TERMINAL VERBATIM
    COMMENT "cargo build ${folder}")
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${library} INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
  add_dependencies(${name} ${name}_build)
  set_property(GLOBAL PROPERTY PD_CARGO_TEST_${name} ${command} test ${options})
endfunction()
