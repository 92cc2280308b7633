# Toolchain: programs for 64-bit ARM Linux (phones, single-board computers, ARM servers) with Debian's cross compiler.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# Of these only headers are used, which are the same for every architecture; Debian has their CMake files in the folder of
# the host's architecture.
foreach(package fmt spdlog Boost-1.81.0 boost_headers-1.81.0)
  string(REGEX REPLACE "-[0-9.]+$" "" name ${package})
  file(GLOB folder /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake/${package})
  set(${name}_DIR "${folder}" CACHE PATH "")
endforeach()
