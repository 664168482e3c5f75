# Read behind project(): ours, and those of CMake's own checks.

foreach(kind SHARED_LIBRARY EXECUTABLE)
  foreach(language C CXX)
    set(CMAKE_${kind}_RUNTIME_${language}_FLAG "-Wl,-rpath,")
  endforeach()
endforeach()
