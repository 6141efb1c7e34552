# Two options make a whole build short: headers are parsed once for many files, and files are compiled together.
# Both hide a missing #include, so the presets clang and debug switch them off.
option(QUIRE_PRECOMPILE "Parse common headers once for many files" ON)
option(QUIRE_UNITY "Compile several files of a folder together: a change of one costs a little more, all cost half" ON)

set(QUIRE_COMMON_HEADERS
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstring> <deque> <filesystem> <fstream>
  <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <thread> <tuple>
  <utility> <variant> <vector> <fmt/format.h> ${PROJECT_SOURCE_DIR}/core/check.h ${PROJECT_SOURCE_DIR}/core/tensor.h)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "// A target needs a source.\n")

# quire_precompile(NAME [OPTIONS ...] [HEADERS ...] [LINK ...]) parses the common headers and HEADERS for every target
# that quire_take_headers() gives them to. These targets must have the same OPTIONS, and no definition of their own that
# means something to the headers; the compiler refuses others.
function(quire_precompile name)
  if(NOT QUIRE_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "OPTIONS;HEADERS;LINK" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_link_libraries(${name} PRIVATE quire_options fmt::fmt ${ARG_LINK})
  target_precompile_headers(${name} PRIVATE ${QUIRE_COMMON_HEADERS} ${ARG_HEADERS})
endfunction()

function(quire_take_headers target owner)
  if(QUIRE_PRECOMPILE)
    set_target_properties(${target} PROPERTIES PRECOMPILE_HEADERS_REUSE_FROM ${owner})
  endif()
endfunction()

# Compiles the files of a target together, those of one folder and at most `most` at a time. Files of one group share
# their unnamed namespaces: names in them must differ, or a file stands aside by SKIP_UNITY_BUILD_INCLUSION.
function(quire_compile_together target most)
  if(NOT QUIRE_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    string(MAKE_C_IDENTIFIER "files${folder}" folder)
    list(APPEND folders ${folder})
    list(APPEND ${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    # Groups of nearly equal size.
    list(LENGTH ${folder} count)
    math(EXPR groups "(${count} + ${most} - 1) / ${most}")
    set(index 0)
    foreach(source IN LISTS ${folder})
      math(EXPR group "${index} * ${groups} / ${count}")
      set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder}_${group})
      math(EXPR index "${index} + 1")
    endforeach()
  endforeach()
endfunction()

# A compiler cache has to be told that precompiled headers are there.
foreach(language C CXX)
  if(QUIRE_PRECOMPILE AND CMAKE_${language}_COMPILER_LAUNCHER MATCHES "ccache$")
    set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                            ${CMAKE_${language}_COMPILER_LAUNCHER})
    add_compile_options($<$<COMPILE_LANG_AND_ID:${language},GNU>:-fpch-preprocess>)
  endif()
endforeach()
