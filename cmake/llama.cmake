# llama.cpp, as published: one shared-library build whose backends are modules, used by everything here.
# Only the targets that something of ours needs are built (EXCLUDE_FROM_ALL, then LINKCPP_LLAMA_TOOLS).
#
# Whatever LINKCPP_SANITIZE says, these sources are compiled with the same flags, so that the compiler cache serves all
# presets. For the same reason nothing here may depend on the build folder's name.

if(LINKCPP_LLAMA_DIR)
  if(NOT EXISTS ${LINKCPP_LLAMA_DIR}/ggml/src/ggml-backend-impl.h)
    message(FATAL_ERROR "LINKCPP_LLAMA_DIR=${LINKCPP_LLAMA_DIR} is not a checkout of llama.cpp: "
                        "it has no ggml/src/ggml-backend-impl.h")
  endif()
  set(linkcpp_llama_dir ${LINKCPP_LLAMA_DIR})
else()
  # Shared by the build folders of all presets, which lie side by side.
  cmake_path(GET CMAKE_BINARY_DIR PARENT_PATH linkcpp_builds)
  set(linkcpp_llama_dir ${linkcpp_builds}/llama.cpp)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/scripts/fetch-llama ${linkcpp_llama_dir} COMMAND_ERROR_IS_FATAL ANY)
endif()

# Headers only: programs and tests link the libraries, the plugin finds ggml in the process that loads it (a copy of its
# own would be a second registry of backends).
add_library(linkcpp_ggml INTERFACE)
target_include_directories(linkcpp_ggml SYSTEM INTERFACE ${linkcpp_llama_dir}/ggml/include)

if(LINKCPP_WORKER_ONLY)
  include(cmake/static_ggml.cmake)
  return()
endif()

set(BUILD_SHARED_LIBS ON)
set(GGML_BACKEND_DL ON CACHE BOOL "" FORCE)
set(GGML_NATIVE OFF CACHE BOOL "" FORCE)
# Our workers keep one thread pool for life and let it sleep between requests; with OpenMP ggml ignores thread pools.
set(GGML_OPENMP OFF CACHE BOOL "" FORCE)
set(LLAMA_BUILD_COMMON ON CACHE BOOL "" FORCE)
set(LLAMA_BUILD_TOOLS ${LINKCPP_STOCK_TOOLS} CACHE BOOL "" FORCE)
set(LLAMA_BUILD_SERVER ${LINKCPP_STOCK_TOOLS} CACHE BOOL "" FORCE)
set(LLAMA_TOOLS_INSTALL OFF CACHE BOOL "" FORCE)
# `linkcpp bench` measures beside llama.cpp's own way to use other machines.
set(GGML_RPC ${LINKCPP_STOCK_TOOLS} CACHE BOOL "" FORCE)
foreach(unwanted TESTS EXAMPLES APP UI)
  set(LLAMA_BUILD_${unwanted} OFF CACHE BOOL "" FORCE)
endforeach()
set(LLAMA_USE_PREBUILT_UI OFF CACHE BOOL "" FORCE)
set(LLAMA_OPENSSL OFF CACHE BOOL "" FORCE)
set(LLAMA_ALL_WARNINGS OFF CACHE BOOL "" FORCE)
set(GGML_ALL_WARNINGS OFF CACHE BOOL "" FORCE)

if(LINKCPP_CPU STREQUAL "portable")
  set(GGML_CPU_ALL_VARIANTS ON CACHE BOOL "" FORCE)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND EXISTS /proc/cpuinfo)
  # GGML_NATIVE cannot be combined with backends as modules, so the flags of this CPU are set one by one.
  set(GGML_CPU_ALL_VARIANTS OFF CACHE BOOL "" FORCE)
  file(STRINGS /proc/cpuinfo linkcpp_cpu_flags REGEX "^flags" LIMIT_COUNT 1)
  string(APPEND linkcpp_cpu_flags " ")
  foreach(pair SSE42=sse4_2 AVX=avx F16C=f16c FMA=fma BMI2=bmi2 AVX2=avx2 AVX_VNNI=avx_vnni AVX512=avx512vl
               AVX512_VBMI=avx512_vbmi AVX512_VNNI=avx512_vnni AVX512_BF16=avx512_bf16
               AMX_TILE=amx_tile AMX_INT8=amx_int8 AMX_BF16=amx_bf16)
    string(REGEX MATCH "^([^=]+)=(.+)$" _ ${pair})
    set(feature ${CMAKE_MATCH_1})
    if(linkcpp_cpu_flags MATCHES " ${CMAKE_MATCH_2} ")
      set(GGML_${feature} ON CACHE BOOL "" FORCE)
    else()
      set(GGML_${feature} OFF CACHE BOOL "" FORCE)
    endif()
  endforeach()
endif()

add_subdirectory(${linkcpp_llama_dir} ${CMAKE_BINARY_DIR}/llama EXCLUDE_FROM_ALL)

# The stock tools that the demo, the tests and the benchmarks run beside our own.
set(LINKCPP_LLAMA_TOOLS "")
set(LINKCPP_RPC_SERVER "")  # for `linkcpp bench`
if(LINKCPP_STOCK_TOOLS)
  set(LINKCPP_LLAMA_TOOLS llama-completion llama-server llama-bench llama-batched-bench llama-perplexity llama-quantize)
  set(LINKCPP_RPC_SERVER ggml-rpc-server)
endif()
add_custom_target(linkcpp-llama-tools ALL DEPENDS ${LINKCPP_LLAMA_TOOLS} ${LINKCPP_RPC_SERVER})

# The interface between ggml and its backends is internal to ggml; it is only for the room `backend`.
add_library(linkcpp_ggml_internal INTERFACE)
target_include_directories(linkcpp_ggml_internal SYSTEM INTERFACE ${linkcpp_llama_dir}/ggml/src
                                                                  ${linkcpp_llama_dir}/ggml/include)
add_library(linkcpp_llama INTERFACE)
target_include_directories(linkcpp_llama SYSTEM INTERFACE ${linkcpp_llama_dir}/include ${linkcpp_llama_dir}/ggml/include)
target_link_libraries(linkcpp_llama INTERFACE llama ggml)
