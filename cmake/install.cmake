# An installation is one folder that runs wherever it lies: prefix/lib/linkcpp holds our programs, llama.cpp's tools and
# every library they share, which find each other by $ORIGIN. prefix/bin links to our programs only, so that a llama.cpp
# of the system keeps its names.

include(GNUInstallDirs)
set(linkcpp_home lib/linkcpp)

set(linkcpp_own "")
foreach(target linkcpp linkcpp-expert-worker linkcpp-hub ggml-linkcpp linkcpp-preload)
  if(TARGET ${target})
    list(APPEND linkcpp_own ${target})
  endif()
endforeach()
add_custom_target(programs DEPENDS ${linkcpp_own} linkcpp-llama-tools)

# ggml opens its backends (ggml-cpu, or one per CPU variant, and what else was configured) at run time; it depends on them.
get_target_property(linkcpp_ggml_backends ggml MANUALLY_ADDED_DEPENDENCIES)
set(linkcpp_shared ggml ggml-base llama ${linkcpp_ggml_backends})
if(LINKCPP_STOCK_TOOLS)
  list(APPEND linkcpp_shared llama-common mtmd)
  list(TRANSFORM LINKCPP_LLAMA_TOOLS APPEND -impl OUTPUT_VARIABLE linkcpp_tool_libraries)
  list(APPEND linkcpp_shared ${linkcpp_tool_libraries})
endif()
foreach(target ${linkcpp_own} ${linkcpp_shared} ${LINKCPP_LLAMA_TOOLS} ${LINKCPP_RPC_SERVER})
  install(TARGETS ${target}
          RUNTIME DESTINATION ${linkcpp_home}
          LIBRARY DESTINATION ${linkcpp_home} NAMELINK_SKIP
          PUBLIC_HEADER DESTINATION include COMPONENT headers EXCLUDE_FROM_ALL
          PRIVATE_HEADER DESTINATION include COMPONENT headers EXCLUDE_FROM_ALL)
endforeach()

foreach(program linkcpp linkcpp-expert-worker linkcpp-hub)
  if(TARGET ${program})
    install(CODE "
      set(bin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
      file(MAKE_DIRECTORY \"\${bin}\")
      file(CREATE_LINK ../${linkcpp_home}/${program} \"\${bin}/${program}\" SYMBOLIC)
      message(STATUS \"Installing: \${bin}/${program}\")")
  endif()
endforeach()

set(linkcpp_doc share/doc/linkcpp)
install(FILES LICENSE DESTINATION ${linkcpp_doc})
install(FILES README.md DESTINATION ${linkcpp_doc} OPTIONAL)
install(DIRECTORY docs/ DESTINATION ${linkcpp_doc}/docs)
# The licences of what is installed with us; docs/DEPENDENCIES.md says what is what.
install(FILES ${linkcpp_llama_dir}/LICENSE DESTINATION ${linkcpp_doc}/licenses RENAME llama.cpp)
foreach(part cpp-httplib=vendor/cpp-httplib/LICENSE nlohmann-json=licenses/LICENSE-jsonhpp
             xxhash=vendor/hash/xxhash/LICENSE sha256=vendor/hash/sha256/LICENSE
             rotate-bits=vendor/hash/rotate-bits/LICENSE.md)
  string(REGEX MATCH "^([^=]+)=(.+)$" _ ${part})
  install(FILES ${linkcpp_llama_dir}/${CMAKE_MATCH_2} DESTINATION ${linkcpp_doc}/licenses RENAME ${CMAKE_MATCH_1} OPTIONAL)
endforeach()
