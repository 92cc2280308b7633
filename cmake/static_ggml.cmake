# For LINKCPP_WORKER_ONLY: ggml with its CPU backend as static libraries, for one program in one file.
#
# A phone's processor is not known when the program is built, and ggml can choose kernels at run time only from backends that
# are shared libraries. So its CPU backend is compiled here once per set of instructions, each time packed into one
# object in which every name but the entry is local, and src/moe/cpu_variants.cpp picks an entry when the program starts.

set(BUILD_SHARED_LIBS OFF)
set(GGML_STATIC ON CACHE BOOL "" FORCE)
set(GGML_BACKEND_DL OFF CACHE BOOL "" FORCE)
set(GGML_NATIVE OFF CACHE BOOL "" FORCE)
set(GGML_OPENMP OFF CACHE BOOL "" FORCE)
set(GGML_LLAMAFILE ON CACHE BOOL "" FORCE)  # as llama.cpp has it
set(GGML_CPU_ARM_ARCH armv8-a CACHE STRING "" FORCE)
set(GGML_ALL_WARNINGS OFF CACHE BOOL "" FORCE)
add_subdirectory(${linkcpp_llama_dir}/ggml ${CMAKE_BINARY_DIR}/ggml EXCLUDE_FROM_ALL)

# objcopy cannot make "unique" symbols local.
target_compile_options(ggml-cpu PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)

set(LINKCPP_CPU_VARIANTS "")

# One relocatable object whose only global name is linkcpp_cpu_reg_<name>. Groups are dissolved: what two variants share by
# name (inline functions) is compiled for different processors.
function(linkcpp_pack_variant name target)
  set(object ${CMAKE_BINARY_DIR}/cpu_${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_LINKER} -r --force-group-allocation --whole-archive $<TARGET_FILE:${target}> -o ${object}.all
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=ggml_backend_cpu_reg ${object}.all ${object}.local
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym ggml_backend_cpu_reg=linkcpp_cpu_reg_${name} ${object}.local ${object}
    COMMAND ${CMAKE_COMMAND} -E rm ${object}.all ${object}.local
    DEPENDS ${target}
    COMMENT "Packing ggml's CPU backend for ${name}"
    VERBATIM)
  set(LINKCPP_CPU_VARIANTS ${LINKCPP_CPU_VARIANTS} ${object} PARENT_SCOPE)
endfunction()

# ggml's own target once more, for other instructions.
function(linkcpp_cpu_variant name march)
  add_library(linkcpp_cpu_${name} STATIC EXCLUDE_FROM_ALL)
  foreach(property COMPILE_DEFINITIONS COMPILE_FEATURES COMPILE_OPTIONS LINK_LIBRARIES)
    get_target_property(value ggml-cpu ${property})
    if(property STREQUAL COMPILE_OPTIONS)
      string(REPLACE -march=armv8-a -march=${march} value "${value}")
    endif()
    if(value)
      set_target_properties(linkcpp_cpu_${name} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  get_target_property(folder ggml-cpu SOURCE_DIR)
  get_target_property(includes ggml-cpu INCLUDE_DIRECTORIES)
  get_target_property(sources ggml-cpu SOURCES)
  foreach(list includes sources)
    set(absolute "")
    foreach(path IN LISTS ${list})
      cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY ${folder} NORMALIZE)
      list(APPEND absolute ${path})
    endforeach()
    set(${list} ${absolute})
  endforeach()
  target_sources(linkcpp_cpu_${name} PRIVATE ${sources})
  target_include_directories(linkcpp_cpu_${name} PRIVATE ${includes})
  get_directory_property(definitions DIRECTORY ${folder} COMPILE_DEFINITIONS)
  target_compile_definitions(linkcpp_cpu_${name} PRIVATE ${definitions})
  linkcpp_pack_variant(${name} linkcpp_cpu_${name})
  set(LINKCPP_CPU_VARIANTS ${LINKCPP_CPU_VARIANTS} PARENT_SCOPE)
endfunction()

linkcpp_pack_variant(armv8 ggml-cpu)
linkcpp_cpu_variant(dotprod armv8.2-a+fp16+dotprod)
linkcpp_cpu_variant(i8mm armv8.2-a+fp16+dotprod+i8mm)
add_custom_target(linkcpp_cpu_variants DEPENDS ${LINKCPP_CPU_VARIANTS})
