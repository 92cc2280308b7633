# A room is one folder of src/ and one static library. linkcpp_room(NAME [USES room…] [LINK library…] FILES file…)

set(linkcpp_warnings -Wall -Wextra -Werror -Wshadow -Wnon-virtual-dtor -Wcast-align -Wno-missing-field-initializers)
# Expert outputs are combined with one rounding per multiplication and one per addition, as ggml does it:
# a fused multiply-add would change the last bit.
set(linkcpp_exact -ffp-contract=off)

add_library(linkcpp_options INTERFACE)
target_compile_options(linkcpp_options INTERFACE ${linkcpp_warnings} ${linkcpp_exact} -fvisibility=hidden)
target_include_directories(linkcpp_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(linkcpp_options INTERFACE LINKCPP_VERSION="${PROJECT_VERSION}")
if(LINKCPP_SANITIZE STREQUAL "address")
  set(linkcpp_sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(LINKCPP_SANITIZE STREQUAL "thread")
  # Asio uses a fence, which ThreadSanitizer does not model; its locks, which it does, order the same accesses.
  set(linkcpp_sanitizers -fsanitize=thread -Wno-tsan)
elseif(LINKCPP_SANITIZE STREQUAL "fuzzer")
  set(linkcpp_sanitizers -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined)
elseif(LINKCPP_SANITIZE)
  message(FATAL_ERROR "LINKCPP_SANITIZE is '${LINKCPP_SANITIZE}'; it can be 'address', 'thread' or 'fuzzer'")
endif()
if(LINKCPP_SANITIZE)
  # With asserts and readable stacks, and optimised just enough to be quick; llama.cpp keeps the flags of a release.
  target_compile_options(linkcpp_options INTERFACE ${linkcpp_sanitizers} -O1 -g1 -fno-omit-frame-pointer -UNDEBUG)
endif()
target_link_options(linkcpp_options INTERFACE ${linkcpp_sanitizers})

function(linkcpp_room name)
  cmake_parse_arguments(ROOM "" "" "USES;LINK;FILES" ${ARGN})
  list(TRANSFORM ROOM_USES PREPEND linkcpp_)
  add_library(linkcpp_${name} STATIC ${ROOM_FILES})
  target_link_libraries(linkcpp_${name} PUBLIC ${ROOM_USES} ${ROOM_LINK} PRIVATE linkcpp_options)
  target_include_directories(linkcpp_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
endfunction()

function(linkcpp_program name)
  cmake_parse_arguments(PROGRAM "" "" "USES;LINK;FILES" ${ARGN})
  list(TRANSFORM PROGRAM_USES PREPEND linkcpp_)
  add_executable(${name} ${PROGRAM_FILES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_USES} ${PROGRAM_LINK} ggml linkcpp_options)
endfunction()
