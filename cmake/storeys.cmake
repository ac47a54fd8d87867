# Makes the targets out of the folders: layers.txt gives the order, file names say what a file is.
#
#   tensortap_<storey>   static library, from src/<storey>/**/*.cc, linked to every storey below it
#   <storey>_tests       from *_test.cc        (TENSORTAP_TESTS; run from the repository's root)
#   <x>_module           from each *_module_for_test.cc: a shared object that the storey's tests load,
#                        in the folder TENSORTAP_TEST_MODULES
#   <storey>_bench       from *_bench.cc       (TENSORTAP_BENCHMARKS)
#   <x>_fuzzer           from each *_fuzzer.cc (TENSORTAP_FUZZERS)
#   tensortap            the program, from src/cli/main.cc
#
# Adding a file and building is enough: the globs are checked at every build.

# What is registered by being a file of a leaf folder. For `vanishing_gradient.cc` in rules/builtin
# the build expects `const RuleDescriptor& vanishing_gradient_rule();` and lists it in
# `builtin_rules()`. Columns: leaf folder, header that declares type and list, type, suffix, list.
set(TENSORTAP_REGISTRIES
  "rules/builtin     rules/registry.h   RuleDescriptor    rule    builtin_rules"
  "actions/builtin   actions/registry.h ActionDescriptor  action  builtin_actions"
  "storage/backends  storage/registry.h StorageDescriptor storage builtin_storages"
  "cli/commands      cli/registry.h     CommandDescriptor command builtin_commands")

# The folder names under [order] in layers.txt.
function(tensortap_read_order out)
  set(layers ${PROJECT_SOURCE_DIR}/layers.txt)
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${layers})
  file(STRINGS ${layers} lines)
  set(order "")
  set(in_order FALSE)
  foreach(line IN LISTS lines)
    if(line MATCHES "^\\[order\\]")
      set(in_order TRUE)
    elseif(line MATCHES "^\\[")
      set(in_order FALSE)
    elseif(in_order AND line MATCHES "^([a-z_]+)")
      list(APPEND order ${CMAKE_MATCH_1})
    endif()
  endforeach()
  set(${out} ${order} PARENT_SCOPE)
endfunction()

# Writes the registration list of each leaf folder of a storey, and gives the written files.
function(tensortap_generate_registries storey out)
  set(generated "")
  foreach(row IN LISTS TENSORTAP_REGISTRIES)
    string(REGEX REPLACE " +" ";" row "${row}")
    list(GET row 0 leaf)
    list(GET row 1 registry_header)
    list(GET row 2 registry_type)
    list(GET row 3 suffix)
    list(GET row 4 registry_list)
    if(NOT leaf MATCHES "^${storey}/")
      continue()
    endif()
    file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${leaf}/*.cc)
    list(FILTER files EXCLUDE REGEX "_(test|bench|fuzzer)\\.cc$")
    if(NOT files)
      continue()
    endif()
    set(registry_declarations "")
    set(registry_entries "")
    foreach(file IN LISTS files)
      get_filename_component(name ${file} NAME_WE)
      string(APPEND registry_declarations "const ${registry_type}& ${name}_${suffix}();\n")
      string(APPEND registry_entries "      &${name}_${suffix}(),\n")
    endforeach()
    set(target ${PROJECT_BINARY_DIR}/generated/${leaf}/registry.cc)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/registry.cc.in ${target} @ONLY)
    list(APPEND generated ${target})
  endforeach()
  set(${out} ${generated} PARENT_SCOPE)
endfunction()

function(tensortap_add_tests storey sources)
  add_executable(${storey}_tests ${sources})
  target_link_libraries(${storey}_tests PRIVATE
    tensortap_${storey} ${TENSORTAP_LIBRARIES_${storey}} ${TENSORTAP_LIBRARIES_tests})
  # PRE_TEST: tests are listed when ctest runs, so that building never runs a program.
  gtest_discover_tests(${storey}_tests TEST_PREFIX "${storey}/" DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES TIMEOUT 300)
endfunction()

function(tensortap_add_test_modules storey sources)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_for_test$" "" name ${name})
    add_library(${name} MODULE ${source})
    set_target_properties(${name} PROPERTIES
      PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test_modules)
    add_dependencies(${storey}_tests ${name})
  endforeach()
  target_compile_definitions(${storey}_tests PRIVATE
    TENSORTAP_TEST_MODULES="${PROJECT_BINARY_DIR}/test_modules")
endfunction()

function(tensortap_add_benchmarks storey sources)
  add_executable(${storey}_bench ${sources})
  target_link_libraries(${storey}_bench PRIVATE
    tensortap_${storey} ${TENSORTAP_LIBRARIES_${storey}} ${TENSORTAP_LIBRARIES_benchmarks})
endfunction()

function(tensortap_add_fuzzers storey sources)
  foreach(source IN LISTS sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE tensortap_${storey} ${TENSORTAP_LIBRARIES_${storey}})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  endforeach()
endfunction()

# One storey on top of those in `below`. Makes nothing as long as the folder has no sources.
function(tensortap_add_storey storey below)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${storey}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER tests EXCLUDE REGEX "_module_for_test\\.cc$")
  set(benchmarks ${sources})
  list(FILTER benchmarks INCLUDE REGEX "_bench\\.cc$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzzer\\.cc$")
  set(modules ${sources})
  list(FILTER modules INCLUDE REGEX "_module_for_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|bench|fuzzer)\\.cc$|/cli/main\\.cc$")
  if(NOT sources)
    return()
  endif()

  tensortap_generate_registries(${storey} generated)
  add_library(tensortap_${storey} STATIC ${sources} ${generated})
  target_include_directories(tensortap_${storey} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(tensortap_${storey}
    PUBLIC ${below} ${TENSORTAP_LIBRARIES_all}
    PRIVATE ${TENSORTAP_LIBRARIES_${storey}})

  if(TENSORTAP_TESTS AND tests)
    tensortap_add_tests(${storey} "${tests}")
    if(modules)
      tensortap_add_test_modules(${storey} "${modules}")
    endif()
  endif()
  if(TENSORTAP_BENCHMARKS AND benchmarks)
    tensortap_add_benchmarks(${storey} "${benchmarks}")
  endif()
  if(TENSORTAP_FUZZERS AND fuzzers)
    tensortap_add_fuzzers(${storey} "${fuzzers}")
  endif()
endfunction()

function(tensortap_add_program)
  if(NOT TARGET tensortap_cli OR NOT EXISTS ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
    return()
  endif()
  add_executable(tensortap ${PROJECT_SOURCE_DIR}/src/cli/main.cc)
  target_link_libraries(tensortap PRIVATE tensortap_cli)
  # A wheel takes its programs from python/bindings, whose component is installed alone.
  include(GNUInstallDirs)
  install(TARGETS tensortap RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
endfunction()

function(tensortap_add_storeys)
  # Our own targets only: whoever links a storey from outside keeps their own warnings.
  link_libraries(tensortap_compile_options)
  add_compile_definitions(TENSORTAP_VERSION="${PROJECT_VERSION}")
  tensortap_read_order(order)
  set(below "")
  foreach(storey IN LISTS order)
    tensortap_add_storey(${storey} "${below}")
    if(TARGET tensortap_${storey})
      list(APPEND below tensortap_${storey})
    endif()
  endforeach()
  tensortap_add_program()
endfunction()
