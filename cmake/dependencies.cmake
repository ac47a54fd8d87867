# Every library that Tensortap uses, each named here once. They come from Debian (12 and 13);
# docs/architecture.md says what each is for. TENSORTAP_LIBRARIES_<storey> is what a storey links.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
# pkg-config, since the CMake files of these differ from one Debian release to the next.
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy>=1.0)
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.30)
# Only its header: the library is loaded when something is sent (base/curl_library.cc).
pkg_check_modules(curl REQUIRED IMPORTED_TARGET libcurl>=7.75)
get_target_property(curl_includes PkgConfig::curl INTERFACE_INCLUDE_DIRECTORIES)
add_library(curl_header INTERFACE)
if(curl_includes)
  target_include_directories(curl_header SYSTEM INTERFACE ${curl_includes})
endif()
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd>=1.5)

set(TENSORTAP_LIBRARIES_base PkgConfig::pcre2 curl_header ${CMAKE_DL_LIBS})
set(TENSORTAP_LIBRARIES_tensor PkgConfig::hwy)
set(TENSORTAP_LIBRARIES_monitor ${CMAKE_DL_LIBS})
set(TENSORTAP_LIBRARIES_trace PkgConfig::zstd)
set(TENSORTAP_LIBRARIES_rules ${CMAKE_DL_LIBS})
set(TENSORTAP_LIBRARIES_cli CLI11::CLI11)
# Any source file may use these; header-only or part of the platform, so they cost no layering.
set(TENSORTAP_LIBRARIES_all fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)

if(TENSORTAP_TESTS)
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
  enable_testing()
  set(TENSORTAP_LIBRARIES_tests GTest::gtest_main GTest::gmock)
endif()
if(TENSORTAP_BENCHMARKS)
  find_package(benchmark 1.7 REQUIRED)
  set(TENSORTAP_LIBRARIES_benchmarks benchmark::benchmark benchmark::benchmark_main)
endif()
