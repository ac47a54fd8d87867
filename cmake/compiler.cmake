# How everything is compiled: the language, warnings, sanitizers, the compiler cache.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# The Python module and the programs share one set of objects, so that nothing is compiled twice.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# A user's `pip install` runs with a compiler that we may not have seen; a new warning there must not
# stop it. Everywhere else a warning is an error.
if(SKBUILD)
  set(default_werror OFF)
else()
  set(default_werror ON)
endif()
option(TENSORTAP_WERROR "Warnings are errors" ${default_werror})
set(TENSORTAP_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=, for example address,undefined")

if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(TENSORTAP_CCACHE ccache)
  if(TENSORTAP_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${TENSORTAP_CCACHE})
  endif()
endif()

add_library(tensortap_compile_options INTERFACE)
target_compile_options(tensortap_compile_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual -Wvla)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Clang has no -Wshadow=local; its -Wshadow leaves constructor parameters alone, as wanted.
  get_target_property(options tensortap_compile_options INTERFACE_COMPILE_OPTIONS)
  list(TRANSFORM options REPLACE "^-Wshadow=local$" "-Wshadow")
  set_target_properties(tensortap_compile_options PROPERTIES INTERFACE_COMPILE_OPTIONS "${options}")
endif()
if(TENSORTAP_WERROR)
  target_compile_options(tensortap_compile_options INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # These look across inlined calls and report code of libstdc++ that is right (GCC bug 105651 and
  # its family); they stay visible but do not stop a build.
  target_compile_options(tensortap_compile_options INTERFACE
    -Wno-error=array-bounds -Wno-error=maybe-uninitialized -Wno-error=stringop-overflow
    -Wno-error=stringop-overread -Wno-error=free-nonheap-object -Wno-restrict)
endif()

if(TENSORTAP_FUZZERS)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "TENSORTAP_FUZZERS needs clang: use the preset `fuzz`")
  endif()
  # Coverage in the libraries as well; only a fuzzer itself links libFuzzer's main.
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(TENSORTAP_SANITIZE)
  # Frame pointers keep the reports readable; UB ends the test instead of printing a line.
  add_compile_options(-fsanitize=${TENSORTAP_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${TENSORTAP_SANITIZE})
endif()
