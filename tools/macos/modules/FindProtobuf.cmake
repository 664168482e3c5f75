# The runtime for messages without reflection, from sources: the library that is installed here is this machine's. Its
# compiler, protoc, is this machine's.
set(root ${PD_VENDOR}/protobuf-src/protobuf)
file(STRINGS ${root}/cmake/libprotobuf-lite.cmake sources REGEX "/google/protobuf/.*\\.cc$")
string(REGEX REPLACE " *\\\${protobuf_SOURCE_DIR}" "${root}" sources "${sources}")
add_library(pd_protobuf_lite STATIC ${sources})
target_include_directories(pd_protobuf_lite SYSTEM PUBLIC ${root}/src)
target_compile_definitions(pd_protobuf_lite PRIVATE HAVE_PTHREAD)
target_compile_options(pd_protobuf_lite PRIVATE -O0 -w)
add_library(protobuf::libprotobuf-lite ALIAS pd_protobuf_lite)

find_program(PROTOC protoc REQUIRED)
add_executable(protobuf::protoc IMPORTED)
set_target_properties(protobuf::protoc PROPERTIES IMPORTED_LOCATION ${PROTOC})
set(Protobuf_FOUND TRUE)
